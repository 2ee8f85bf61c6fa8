"""Node side: several iperf3 streams at once from the second node of a step to the first.

    python3 -IS streams.py STEP INTERFACE[,...] PORT COUNT IPERF3... -- [OPTION ...]

The streams use the interfaces in turn: each goes to the server's address on its interface, or on
the bond that the interface is a member of. The server's rank (0) writes the list of streams to
STEP.streams.json. The client's rank writes each report to STEP.I.json and the ends of the streams
(in seconds of one clock) to STEP.ended.json; its exit code is the first that is not 0.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pair  # (with -I, Python does not add this folder to the path)

NET = "/sys/class/net"


def carrier(interface):
    """The bond that the interface is a member of; else the interface."""
    master = "%s/%s/master" % (NET, interface)
    return os.path.basename(os.path.realpath(master)) if os.path.exists(master) else interface


def plan(interfaces, count, port):
    """The streams: interface, interface or bond that carries it, address and port of the server."""
    streams = []
    for number in range(count):
        interface = interfaces[number % len(interfaces)]
        through = carrier(interface)
        streams.append({"interface": interface, "through": through,
                        "address": pair.address_of(through), "port": port + number})  # fmt: skip
    return streams


def serve(step, streams, program):
    servers = []
    try:
        for stream in streams:
            options = ["-s", "-1", "-B", stream["address"], "-p", str(stream["port"])]
            with open("%s.%d.server" % (step, stream["port"]), "w") as output:
                servers.append(subprocess.Popen([*program, *options], stdout=output, stderr=output))
        for stream, server in zip(streams, servers):  # noqa: B905 (strict= came with Python 3.10)
            ready = lambda: pair.listening(stream["port"]) or server.poll() is not None  # noqa: B023, E731
            pair.until(ready, pair.START_S, "the server of port %d" % stream["port"])
        pair.publish(step + ".streams.json", json.dumps(streams))
        pair.until(lambda: pair.content(step + ".done"), 3600, "the clients' end")
        return 0
    finally:
        for server in servers:
            if server.poll() is None:
                server.kill()
            server.wait()


def send(step, program, options):
    text = pair.until(lambda: pair.content(step + ".streams.json"), pair.START_S, "the servers")
    clients = []
    try:
        for number, load in enumerate(json.loads(text)):
            with open("%s.%d.json" % (step, number), "w") as report:
                words = ["-c", load["address"], "-p", str(load["port"]), "-J", *options]
                clients.append(subprocess.Popen([*program, *words], stdout=report))
        pair.publish(step + ".ended.json", json.dumps(ends_of(clients)))
        codes = [client.wait() for client in clients]
        return next((code for code in codes if code), 0)
    finally:
        pair.publish(step + ".done", "done")


def ends_of(clients):
    """Wait for all clients. Returns the end of each, in seconds of one clock, in their order."""

    def end(client):
        client.wait()
        return time.monotonic()

    with ThreadPoolExecutor(len(clients)) as waiting:
        return list(waiting.map(end, clients))


def main(argv):
    step, interfaces, port, count = argv[0], argv[1].split(","), int(argv[2]), int(argv[3])
    split = argv.index("--")
    program, options = argv[4:split], argv[split + 1 :]
    if os.environ["SLURM_PROCID"] == "0":
        return serve(step, plan(interfaces, count, port), program)
    return send(step, program, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
