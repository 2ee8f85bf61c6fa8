"""Node side: run a server on the first node of a step and its client on the second.

    python3 -IS pair.py STEP INTERFACE PORT SERVER... -- CLIENT...

``{address}`` in the client's command is replaced by the server's IPv4 address on
INTERFACE. The server's rank (0) writes that address into the working folder, which
both nodes share; the client waits until the port accepts connections, so that a
slow start is not mistaken for a broken network. A server that outlives its client
by 5 s is ended.
"""

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

SIOCGIFADDR = 0x8915
#: generous: in a lab whose clock counts instructions it runs on while the host reads a file
START_S = 120
END_S = 5


def address_of(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(sock, SIOCGIFADDR, request)[20:24])


def listening(port):
    """Whether something on this node listens on the port (without connecting to it).

    NPtcp serves one connection only: a trial connection would be taken for the client.
    """
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as stream:
            for line in stream.readlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    sys.exit("pair.py: waited %d s in vain for %s" % (seconds, what))


def publish(name, text):
    with open(name + ".partial", "w") as stream:
        stream.write(text)
    os.replace(name + ".partial", name)


def ended(pid):
    """Whether a child has ended; it is left to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def note_wait(step, pid):
    """Leave to run.py how long a child waited for a processor (ns), before it is reaped."""
    with contextlib.suppress(OSError, IndexError), open("/proc/%d/schedstat" % pid) as stream:
        publish("%s.%s.waited" % (step, os.environ["SLURM_PROCID"]), stream.read().split()[1])


def content(name):
    try:
        with open(name) as stream:
            return stream.read().strip()
    except OSError:
        return ""


def serve(command, interface, port, step):
    ready, done = step + ".address", step + ".done"
    with open(ready.replace(".address", ".server"), "w") as said:
        # Kept apart: what it says must not land in the client's table.
        server = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        until(lambda: listening(port) or ended(server.pid), START_S, "the server's port")
        publish(ready, address_of(interface))
        until(lambda: content(done) or ended(server.pid), 3600, "the client's end")
        note_wait(step, server.pid)
        try:
            return server.wait(END_S)
        except subprocess.TimeoutExpired:
            return 0  # the client has finished: iperf3 -s and the like serve on
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def main(argv):
    step, interface, port = argv[0], argv[1], int(argv[2])
    split = argv.index("--")
    ready, done = step + ".address", step + ".done"
    if os.environ["SLURM_PROCID"] == "0":
        return serve(argv[3:split], interface, port, step)
    address = until(lambda: content(ready), START_S, "the server's address")
    command = [word.replace("{address}", address) for word in argv[split + 1 :]]
    try:
        client = subprocess.Popen(command)
        os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
        note_wait(step, client.pid)
        return client.wait()
    finally:
        publish(done, "done")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
