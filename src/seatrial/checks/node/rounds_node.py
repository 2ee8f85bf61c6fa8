"""Node side: what each node of a step does for ``rounds.py``: the orders of the coordinator.

A pair measures a stream of bytes in each direction, which the receiver times, the best of a few,
and then NPtcp. NPtcp's own streams (-s) cannot tell the directions apart: the sender times them,
and with -r, which they need over TCP, they end with "Connection reset by peer".
Only the Python standard library is used.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pair as pairs_of_ranks
from names import node_name

CONNECT_S = 5
NPTCP_LESS_S = 2  # of a pair's time is not NPtcp's: the streams need that, and the end
STREAM_S = 1.0  # a stream that takes longer is cut off
#: A program that comes between takes some ms of a processor. So a short stream is measured again,
#: as NPtcp does with its messages, and the best counts.
STREAMS, STREAMS_S = 5, 0.05
CHUNK = 1 << 18


def carried():
    """Bytes received and sent by each interface of this node since boot."""
    counted = {}
    with open("/proc/net/dev") as stream:
        for line in stream.readlines()[2:]:
            name, _, numbers = line.partition(":")
            words = numbers.split()
            counted[name.strip()] = int(words[0]) + int(words[8])
    return counted


def send(connection, size):
    """Send ``size`` bytes each time the receiver is ready, or until it has enough."""
    order = connection.recv(1)
    if order != b"g":
        raise OSError("the other end closed the connection")
    block = memoryview(bytes(CHUNK))
    with contextlib.suppress(ConnectionError):
        while order:
            left = size
            while left:
                part = min(left, CHUNK)
                connection.sendall(block[:part])
                left -= part
            order = connection.recv(1)  # when the receiver has it all


def receive(connection, size):
    """Receive ``size`` bytes, or for STREAM_S, up to STREAMS times. Returns bytes and seconds of
    the fastest.

    The clock runs from the order to send, so that bytes that wait for this process do not count as
    fast ones. The rate is too low by one round trip.
    """
    block = memoryview(bytearray(CHUNK))
    best, spent = [0, 0.0], 0.0
    for _ in range(STREAMS):
        begin, left, seconds = time.monotonic(), size, 0.0
        connection.sendall(b"g")
        while left and seconds < STREAM_S:
            got = connection.recv_into(block, min(left, CHUNK))
            if not got:
                raise OSError("the stream ended %d bytes early" % left)
            left -= got
            seconds = time.monotonic() - begin
        if (size - left) * best[1] >= best[0] * seconds:
            best = [size - left, seconds]
        spent += seconds
        if spent > STREAMS_S:
            break
    return best


def waited_s(pid):
    """Seconds for which a process waited for a processor; 0 if the kernel does not count them."""
    try:
        with open("/proc/%s/schedstat" % pid) as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def finish(process, seconds):
    """Wait for NPtcp, so long. Returns the time for which it waited for a processor in s, and why
    it did not end."""
    end, reason = time.monotonic() + seconds, ""
    while not pairs_of_ranks.ended(process.pid):
        if time.monotonic() > end:
            process.kill()
            reason = "NPtcp did not end within %d s" % seconds
            break
        time.sleep(0.002)
    waited = waited_s(process.pid)
    process.wait()
    return waited, reason


def serve(order, tell):
    """The server's end of a pair."""
    limit, size = order["limit_s"], order["stream_bytes"]
    address = pairs_of_ranks.address_of(order["interface"])
    with socket.socket() as listener, open(os.devnull, "w") as null:
        listener.settimeout(limit)
        listener.bind((address, 0))
        listener.listen(1)
        server = subprocess.Popen(order["nptcp"], stdout=null, stderr=null)
        begin = time.monotonic()
        while not pairs_of_ranks.listening(order["port"]):
            if pairs_of_ranks.ended(server.pid):
                raise OSError("NPtcp ended with code %s" % server.wait())
            if time.monotonic() > begin + limit:
                raise OSError("NPtcp did not listen within %d s" % limit)
            time.sleep(0.002)
        tell({"ready": [address, listener.getsockname()[1]]})
        received = None
        for role in (receive, send):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(limit)
                received = role(connection, size) or received
        waited, _ = finish(server, limit)
        return {"received": received, "waited_s": waited}


def connect(order, _tell):
    """The client's end of a pair: it connects, and its NPtcp prints the table."""
    limit, size, address = order["limit_s"], order["stream_bytes"], order["address"]
    received = None
    for role in (send, receive):
        with socket.socket() as connection:
            connection.settimeout(CONNECT_S)
            connection.connect((address[0], address[1]))
            connection.settimeout(limit)
            received = role(connection, size) or received
    with tempfile.TemporaryFile("w+") as said:
        client = subprocess.Popen([*order["nptcp"], "-h", address[0]], stdout=said, stderr=said)
        waited, reason = finish(client, limit - NPTCP_LESS_S)
        said.seek(0)
        text = said.read()
        return {"received": received, "waited_s": waited, "text": text, "failed_nptcp": reason}


def bind(core):
    """Run this process, and those that it starts, on one of the cores that it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if core >= len(allowed):
        raise OSError("no core %d: the job has %d on this node" % (core, len(allowed)))
    os.sched_setaffinity(0, {allowed[core]})


class Worker:
    """The process of one order. Its reports come through a pipe, line by line, as JSON."""

    def __init__(self, order):
        self.order = order
        self.out, inner = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            os.close(self.out)
            self._work(inner)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)
        os.close(inner)
        self.text = b""

    def _work(self, pipe):
        def tell(what):
            os.write(pipe, json.dumps(dict(what, id=self.order["id"])).encode() + b"\n")

        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            if self.order["core"] is not None:
                bind(self.order["core"])
            before = carried()
            role = serve if self.order["role"] == "serve" else connect
            result = role(self.order, tell)
            after = carried()
            result["bytes"] = {name: after[name] - before.get(name, 0) for name in after}
            result["waited_s"] += waited_s("self")
            data = json.dumps({"id": self.order["id"], "result": result}).encode() + b"\n"
            while data:
                data = data[os.write(pipe, data) :]
        except (Exception, SystemExit) as error:
            tell({"failed": "%s: %s" % (type(error).__name__, error)})
        finally:
            with contextlib.suppress(OSError):
                os.killpg(0, signal.SIGKILL)
            os._exit(1)

    def end(self):
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.out)


def lines_of(text):
    """Complete lines, and the rest."""
    *complete, rest = text.split(b"\n")
    return complete, rest


class Agent:
    """Does a node's orders. One pair at a time; an order to stop ends it."""

    def __init__(self, connection, step):
        self.connection, self.step = connection, step
        self.worker = None  # type: Worker | None
        self.waited = 0.0

    def say(self, what):
        self.connection.sendall(json.dumps(what).encode() + b"\n")

    def run(self):
        """Until the coordinator closes the connection."""
        text = b""
        while True:
            with selectors.DefaultSelector() as chosen:
                chosen.register(self.connection, selectors.EVENT_READ)
                if self.worker:
                    chosen.register(self.worker.out, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in chosen.select()]
            if self.worker and self.worker.out in ready:
                self._hear_worker(self.worker)
            if self.connection in ready:
                data = self.connection.recv(1 << 16)
                if not data:
                    return
                orders, text = lines_of(text + data)
                for order in orders:
                    self._obey(json.loads(order.decode()))

    def _obey(self, order):
        if order["role"] != "stop":
            self.worker = Worker(order)
        elif self.worker and self.worker.order["id"] == order["id"]:
            self._close(self.worker, {"id": order["id"], "failed": "stopped"})

    def _hear_worker(self, worker):
        data = os.read(worker.out, 1 << 16)
        reports, worker.text = lines_of(worker.text + data)
        for text in reports:
            report = json.loads(text.decode())
            if "ready" in report:
                self.say(report)
                continue
            self.waited += report.get("result", {}).get("waited_s", 0.0)
            self._close(worker, report)
            return
        if not data:
            self._close(worker, {"id": worker.order["id"], "failed": "its process ended early"})

    def _close(self, worker, report):
        worker.end()
        self.worker = None
        self.say(report)


def agent(step, number):
    name = step + ".coordinator"
    text = pairs_of_ranks.until(
        lambda: pairs_of_ranks.content(name), pairs_of_ranks.START_S, "the coordinator"
    )
    known = json.loads(text)
    connection = None
    for address in known["addresses"]:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((address, known["port"]), CONNECT_S)
            break
    if connection is None:
        sys.exit("rounds.py: no connection to %s" % " or ".join(known["addresses"]))
    with connection:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        node = Agent(connection, step)
        node.say({"token": known["token"], "number": number, "node": node_name()})
        try:
            node.run()
        except OSError:
            pass  # the coordinator is no more
        finally:
            if node.worker:
                node.worker.end()
            name = "%s.%s.waited" % (step, os.environ.get("SLURM_PROCID", "0"))
            pairs_of_ranks.publish(name, "%d" % (node.waited * 1e9))
