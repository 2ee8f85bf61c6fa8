"""Node side: run a server on the first node of a step and its client on the second.

    python3 -IS pair.py STEP INTERFACE PORT SERVER... -- CLIENT...

``{address}`` in the client's command is replaced by the IPv4 address of the server on INTERFACE,
``{node}`` in both commands by the name of the node.
The server's rank (0) writes the address into the working folder, which both nodes share, when the
server listens on the port. The client starts after that, so that a slow start of the server does
not look like a broken network. A server that runs 5 s longer than its client is ended.
"""

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from names import node_name  # (with -I, Python does not add this folder to the path)

SIOCGIFADDR = 0x8915
#: long, because the clock of the virtual lab advances fast while its host reads a file
START_S = 120
END_S = 5


def address_of(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            return socket.inet_ntoa(fcntl.ioctl(sock, SIOCGIFADDR, request)[20:24])
        except OSError as error:
            reason = (node_name(), interface, error.strerror)
            sys.exit("%s: %s has no IPv4 address: %s" % reason)


def listening(port):
    """Whether a program on this node listens on the port.

    It does not connect: NPtcp serves only one connection.
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
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    sys.exit("pair.py: %s did not come within %d s" % (what, seconds))


def publish(name, text):
    with open(name + ".partial", "w") as stream:
        stream.write(text)
    os.replace(name + ".partial", name)


def ended(pid):
    """Whether a child has ended. It is not reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def record_wait(step, pid):
    """Write how long an unreaped child waited for a processor (ns), for run.py."""
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
    with open(step + ".server", "w") as output:
        # The client's output must not have lines of the server.
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until(lambda: listening(port) or ended(server.pid), START_S, "the server's port")
        publish(ready, address_of(interface))
        until(lambda: content(done) or ended(server.pid), 3600, "the client's end")
        record_wait(step, server.pid)
        try:
            return server.wait(END_S)
        except subprocess.TimeoutExpired:
            return 0  # the client has finished; some servers (iperf3 -s) do not end
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def main(argv):
    step, interface, port = argv[0], argv[1], int(argv[2])
    split = argv.index("--")
    ready, done = step + ".address", step + ".done"
    argv = [word.replace("{node}", node_name()) for word in argv]
    if os.environ["SLURM_PROCID"] == "0":
        return serve(argv[3:split], interface, port, step)
    address = until(lambda: content(ready), START_S, "the server's address")
    command = [word.replace("{address}", address) for word in argv[split + 1 :]]
    try:
        client = subprocess.Popen(command)
        os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
        record_wait(step, client.pid)
        return client.wait()
    finally:
        publish(done, "done")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
