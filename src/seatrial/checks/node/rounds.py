"""Node side: measure all links of a step's nodes in rounds of disjoint pairs, then suspects alone.

    python3 -IS rounds.py STEP INTERFACE PORT OPTIONS NPTCP...

One process runs on each node. The first node's process coordinates: each node connects to it over
any network, gets orders, and reports. In a round each node has one partner (circle method): n - 1
rounds of n / 2 pairs, or n rounds for an odd number. A pair measures a stream of bytes in each
direction, which the receiver times, the best of a few, and then NPtcp. NPtcp's own streams (-s)
cannot tell the directions apart: the sender times them, and with -r, which they need over TCP, they
end with "Connection reset by peer".

Every wait is bounded. A node that ends or does not answer is left out of the later rounds, and a
pair that fails is on record with the reason. After the rounds the links that are worse than the
others, and as many good ones, are measured again with no other pair beside them.

OPTIONS is a JSON object: ``limit_s`` of a pair, ``budget_s`` of the step, ``at_once`` (pairs),
``cores`` (of each node, for the pairs of a round in turn), ``stream_bytes``, ``suspect_factor``,
``two_way`` (path of the module), ``most_alone`` (links).
Results: STEP.pairs.jsonl, one line for each pair, and the last line ``{"end": true, ...}``.
"""

import contextlib
import importlib.util
import json
import math
import os
import re
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pair as pairs_of_ranks  # (with -I, Python does not add this folder to the path)
from names import node_name

CONNECT_S = 5
GREETING_S = 30  # from a connection to its whole greeting, which a node sends at once
GREETING_B = 4096
MOST_STRANGERS = 64  # connections without a greeting beside the nodes; then the oldest is closed
GRACE_S = 10  # for an answer to an order to stop
NPTCP_LESS_S = 2  # of a pair's time is not NPtcp's: the streams need that, and the end
STREAM_S = 1.0  # a stream that takes longer is cut off
#: A program that comes between takes some ms of a processor. So a short stream is measured again,
#: as NPtcp does with its messages, and the best counts.
STREAMS, STREAMS_S = 5, 0.05
CHUNK = 1 << 18
#: of a node without a link that works, with nodes that have one: its other links are not tried
SILENT_LINKS = 3
NODE_LINKS = 3  # of a suspected node that are measured alone
CONTROLS = 5  # good links that are measured alone, and one more for each bad one
TRIES = 5  # of a link alone, as long as it is slow
ALONE_LEAST_S = 30  # for what is measured alone; or as long as the rounds took
LINE = re.compile(r"\d+:\s+\d+ bytes\s+\d+ times -->\s+(\S+) Mbps in\s+(\S+) usec")
#: metric -> whether lower values are better
BETTER = {"latency_us": "lower", "bandwidth_MB_s": "higher", "stream_MB_s": "higher"}


def schedule(count):
    """The rounds of ``count`` nodes: each pair of numbers once, disjoint within a round.

    The circle method: the first node stays, the others move on by one place. With an odd number
    one node rests in each round.
    """
    places = list(range(count)) + ([-1] if count % 2 else [])
    rounds = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        facing = [(places[at], places[-1 - at]) for at in range(half)]
        rounds.append([tuple(sorted(two)) for two in facing if -1 not in two])
        places.insert(1, places.pop())
    return rounds


# -- one pair, in a process of its own on each of its nodes


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


# -- the process of a node


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


# -- the coordinator


def greeting(line):
    """Token, number and name of the node in a first line; None if it is no greeting."""
    try:
        hello = json.loads(line.decode())
        token, number, node = hello["token"], hello["number"], hello["node"]
        known = type(number) is int and isinstance(token, str) and isinstance(node, str)
        token.encode()  # not a half of a surrogate pair
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return (token, number, node) if known else None


class Pair:
    """Two nodes that measure their link. ``low`` serves, ``high`` connects."""

    def __init__(self, low, high, serial, core):
        self.core = core
        self.ends = {low, high}
        self.low, self.high, self.serial = low, high, serial
        self.begun = time.monotonic()
        self.asked = {low}  # the ends that have an order
        self.said = {}  # type: dict
        self.stopped = 0.0


class Coordinator:
    def __init__(self, step, count, interface, port, options, nptcp):
        self.step, self.count, self.interface = step, count, interface
        self.port, self.options, self.nptcp = port, options, nptcp
        self.begun = time.monotonic()
        self.connections, self.texts, self.names = {}, {}, {}
        self.absent, self.serial = {}, 0
        self.failed = []  # type: list
        self.works, self.silent = set(), {}
        self.apart = {}  # type: dict  # silent node -> why
        self.selector = selectors.DefaultSelector()
        self.file = open(step + ".pairs.jsonl", "w")  # noqa: SIM115 (open for the whole step)

    def write(self, record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()

    # Nodes

    def gather(self):
        """Wait until every node has connected, or for as long as a start may take.

        Anybody on the network can connect: nothing that a stranger sends, and no silence, may end
        this process or keep a node waiting.
        """
        listener = socket.socket()
        listener.bind(("", 0))
        listener.listen(self.count + 16)
        listener.setblocking(False)
        token = secrets.token_hex(16)
        known = {"addresses": self._addresses(), "port": listener.getsockname()[1], "token": token}
        descriptor = os.open(self.step + ".hidden", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(known, stream)
        os.replace(self.step + ".hidden", self.step + ".coordinator")
        end = time.monotonic() + pairs_of_ranks.START_S
        waiting = {}  # type: dict  # connection -> its text and until when, the oldest first
        with selectors.DefaultSelector() as chosen:
            chosen.register(listener, selectors.EVENT_READ)
            while len(self.connections) < self.count and time.monotonic() < end:
                for key, _ in chosen.select(1):
                    if key.fileobj is listener:
                        self._accept(listener, chosen, waiting)
                    elif key.fileobj in waiting:
                        self._greet(key.fileobj, chosen, waiting, token)
                for connection in list(waiting):
                    if waiting[connection][1] < time.monotonic():
                        self._turn_away(connection, chosen, waiting)
            for connection in list(waiting):
                self._turn_away(connection, chosen, waiting)
        listener.close()
        os.unlink(self.step + ".coordinator")
        for number in range(self.count):
            if number not in self.connections:
                self.absent[number] = "it did not start within %d s" % pairs_of_ranks.START_S

    def _accept(self, listener, chosen, waiting):
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it is gone again
        connection.setblocking(False)
        if len(waiting) >= self.count + MOST_STRANGERS:
            self._turn_away(next(iter(waiting)), chosen, waiting)
        waiting[connection] = (b"", time.monotonic() + GREETING_S)
        chosen.register(connection, selectors.EVENT_READ)

    def _turn_away(self, connection, chosen, waiting):
        del waiting[connection]
        chosen.unregister(connection)
        connection.close()

    def _greet(self, connection, chosen, waiting, token):
        """Read what a connection has sent, and take it as a node's if it knows the token."""
        text, until = waiting[connection]
        try:
            data = connection.recv(GREETING_B)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        line, complete, rest = (text + data).partition(b"\n")
        if data and not complete and len(line) < GREETING_B:
            waiting[connection] = (line, until)
            return
        hello = greeting(line) if complete else None
        if hello is None or not secrets.compare_digest(hello[0].encode(), token.encode()):
            self._turn_away(connection, chosen, waiting)
            return
        _, number, node = hello
        if number in self.connections or not 0 <= number < self.count:
            self._turn_away(connection, chosen, waiting)
            return
        del waiting[connection]
        chosen.unregister(connection)
        connection.settimeout(CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[number], self.texts[number] = connection, rest
        self.names[number] = node
        self.selector.register(connection, selectors.EVENT_READ, number)

    def _addresses(self):
        """IPv4 addresses of this node; that under test last, as it may be what is broken."""
        addresses = []
        names = [name for _, name in socket.if_nameindex() if name not in ("lo", self.interface)]
        for name in [*names, self.interface]:
            with contextlib.suppress(OSError, SystemExit):  # it has none
                addresses.append(pairs_of_ranks.address_of(name))
        return addresses

    def drop(self, number, reason):
        connection = self.connections.pop(number, None)
        if connection:
            self.selector.unregister(connection)
            connection.close()
            self.absent[number] = reason

    def order(self, number, what):
        try:
            self.connections[number].sendall(json.dumps(what).encode() + b"\n")
        except (OSError, KeyError):
            self.drop(number, "its connection broke")

    # Pairs

    def measure(self, wanted, at_once, round_number):
        """Measure disjoint pairs, some at once. Returns (low, high) -> figures of those that work,
        with the lower number first, as in ``wanted``.

        ``round_number`` None: alone.
        """
        waiting, figures = list(wanted), {}
        running = []  # type: list
        while waiting or running:
            while waiting and len(running) < at_once:
                low, high = waiting.pop(0)
                if low in self.connections and high in self.connections:
                    busy = [one.core for one in running]
                    core = min(self.options["cores"] or [None], key=busy.count)
                    running.append(self._start(low, high, core))
            for key, _ in self.selector.select(0.5):
                self._hear(key.data, running)
            for one in list(running):
                self._tend(one)
                missing = [end for end in one.ends if end not in one.said]
                if not missing:
                    running.remove(one)
                    own = self._record(one, round_number)
                    if own:
                        figures[tuple(sorted(one.ends))] = own  # either end may serve
        return figures

    def _start(self, low, high, core):
        # Either end serves as often.
        if (low + high) % 2:
            low, high = high, low
        self.serial += 1
        one = Pair(low, high, self.serial, core)
        self.order(low, dict(self._common(one), role="serve"))
        return one

    def _common(self, one):
        port = self.port + one.serial % 200
        return {
            "id": one.serial, "interface": self.interface, "port": port, "core": one.core,
            "limit_s": self.options["limit_s"], "stream_bytes": self.options["stream_bytes"],
            "nptcp": [word.replace("{port}", str(port)) for word in self.nptcp],
        }  # fmt: skip

    def _hear(self, number, running):
        try:
            data = self.connections[number].recv(1 << 20)
        except (OSError, KeyError):
            data = b""
        if not data:
            self.drop(number, "its connection broke: the node or its process has ended")
            return
        reports, self.texts[number] = lines_of(self.texts[number] + data)
        for text in reports:
            report = json.loads(text.decode())
            for one in running:
                if one.serial == report["id"] and number in one.ends:
                    if "ready" in report:
                        order = dict(self._common(one), role="connect", address=report["ready"])
                        one.asked.add(one.high)
                        self.order(one.high, order)
                    else:
                        one.said[number] = report

    def _tend(self, one):
        """End a pair that has failed at one end, or takes too long."""
        for end in one.ends:
            if end not in self.connections and end not in one.said:
                one.said[end] = {"failed": "node %s: %s" % (self.name(end), self.absent[end])}
        now = time.monotonic()
        failed = any("failed" in said for said in one.said.values())
        left = [end for end in one.ends if end not in one.said]
        if one.stopped and now > one.stopped + GRACE_S:
            for end in left:
                self.drop(end, "it did not answer for %d s" % (now - one.begun))
        elif not one.stopped and (failed or now > one.begun + self.options["limit_s"]):
            one.stopped = now
            for end in left:
                if end in one.asked:
                    self.order(end, {"role": "stop", "id": one.serial})
                else:
                    one.said[end] = {"failed": "stopped"}

    def name(self, number):
        return self.names.get(number, "number %d" % number)

    def _record(self, one, round_number):
        low, high = sorted(one.ends)
        record = {"pair": [low, high], "round": round_number}
        server, client = one.said[one.low], one.said[one.high]
        reasons = [
            "%s: %s" % (self.name(end), said["failed"])
            for end, said in one.said.items()
            if said.get("failed", "stopped") != "stopped"
        ]
        if "result" not in server or "result" not in client:
            late = "no result within %d s" % self.options["limit_s"]
            record["failed"] = "; ".join(reasons) or late
            self.write(record)
            self.failed.append((low, high))
            for end, other in ((low, high), (high, low)):
                self.silent.setdefault(end, []).append(other)
                if end not in self.apart and self._is_silent(end):
                    self.apart[end] = "none of its first %d links worked (%s)" % (
                        len(self.silent[end]), record["failed"])  # fmt: skip
            return None
        self.works.update(one.ends)
        server, client = server["result"], client["result"]
        # The server receives what the client sends.
        received = {one.low: server["received"], one.high: client["received"]}
        record.update(
            seconds=time.monotonic() - one.begun,
            text=client["text"],
            streams=[received[high], received[low]],  # the first from the lower number
            failed=client["failed_nptcp"],
            bytes=[(server if end == one.low else client)["bytes"] for end in (low, high)],
        )
        self.write(record)
        return figures_of(record)

    def _is_silent(self, number):
        """Whether the links that failed are the fault of this node.

        Links with nodes that are silent themselves say nothing of it: three bad nodes may be its
        first three partners. Where no node has worked yet, twice as many links must have failed.
        """
        if number in self.works:
            return False
        failed = self.silent[number]
        with_working = sum(other in self.works for other in failed)
        return with_working >= SILENT_LINKS or (not self.works and len(failed) >= 2 * SILENT_LINKS)

    # The whole step

    def run(self):
        self.gather()
        self.write({"nodes": self.names})
        budget = self.begun + self.options["budget_s"]
        in_rounds, rounds = {}, 0
        for number, one in enumerate(schedule(self.count)):
            if time.monotonic() > budget:
                self.write({"stopped": "rounds from %d on: the time of the step is over" % number})
                break
            one = [pair for pair in one if not self.apart.keys() & set(pair)]
            in_rounds.update(self.measure(one, self.options["at_once"], number))
            rounds = number + 1
        in_rounds.update(self.among_silent(rounds, budget))
        self.alone(in_rounds, budget)
        self.write({"end": True, "absent": self.absent, "seconds": time.monotonic() - self.begun})
        for number in list(self.connections):
            self.connections.pop(number).close()
        pairs_of_ranks.publish(self.step + ".end", "end")

    def among_silent(self, number, budget):
        """Measure the links between silent nodes, in rounds from ``number`` on, and if one works
        their other links: the network is in parts. Nodes without a link that works are left out.
        Returns the figures.

        Dead nodes cost SILENT_LINKS rounds, if there are several.
        """
        figures = {}  # type: dict
        silent = sorted(end for end in self.apart if end in self.connections)
        own = [[(silent[low], silent[high]) for low, high in one] for one in schedule(len(silent))]
        tried, without = set(self.failed), 0
        for at, one in enumerate(own + schedule(self.count)):
            if time.monotonic() > budget or without == SILENT_LINKS:
                break
            if at >= len(own) and not figures:
                break
            pairs = [
                pair for pair in one
                if self.apart.keys() & set(pair) and pair not in tried and pair not in figures
            ]  # fmt: skip
            figures.update(self.measure(pairs, self.options["at_once"], number))
            tried.update(pairs)
            number += 1
            without += bool(pairs) and not figures
        for end, reason in self.apart.items():
            if end not in self.works:
                self.drop(end, reason)
        return figures

    def alone(self, in_rounds, budget):
        """Measure suspects, and pairs that failed, with nothing beside them, and good links.

        Good links are measured alone without a suspect, too: the load of a round is no excuse of a
        fabric whose links are all slow.
        """
        if len(in_rounds) < 2 or not self.options["most_alone"]:
            return
        with_fit = load(self.options["two_way"])
        factor = math.log(self.options["suspect_factor"])
        suspects, good, of_nodes = choose(in_rounds, factor, with_fit)
        # A pair may have failed by the load of its round. Such pairs are the last: each that fails
        # again takes as long as a pair may.
        again = [
            one for one in self.failed
            if all(end in self.connections and end not in self.apart for end in one)
        ]  # fmt: skip
        suspects = suspects + again
        if not suspects and self.options["at_once"] == 1:
            return  # nothing was beside any link
        took = time.monotonic() - self.begun
        budget = min(budget, time.monotonic() + max(ALONE_LEAST_S, took))
        left = self.options["most_alone"]
        usual, bad = {}, set()  # type: dict, set

        def control(count):
            for one in good[:count]:
                for metric, value in self._best(one, {}, factor, with_fit, budget).items():
                    usual.setdefault(metric[0], []).append(value)
            del good[:count]

        def compare(links):
            """Measure suspects; keep those that are slow alone, too."""
            middles = {metric: median(values) for metric, values in usual.items()}
            for one in links[:left]:
                best = self._best(one, middles, factor, with_fit, budget)
                if any(best[key] > middles.get(key[0], best[key]) + factor for key in best):
                    bad.add(one)
            return len(links[:left])

        control(CONTROLS)
        left -= compare(suspects)
        # The other links of a node that is as good as others alone: it was not the node.
        cleared = [own for own in of_nodes if not bad.intersection(own[:NODE_LINKS])]
        rest = {link for own in cleared for link in own[NODE_LINKS:]}
        left -= compare(sorted(rest.difference(suspects)))
        # Each is compared with the median of the others that were measured alone.
        control(len(bad))

    def _best(self, one, usual, factor, with_fit, budget):
        """Measure a link alone, again as long as it is slow. Returns the best of its figures.

        Another program makes a measurement slower and none faster; a bad cable is slow each time.
        """
        best = {}  # type: dict
        for _ in range(TRIES):
            if time.monotonic() > budget:
                break
            figures = self.measure([one], 1, None).get(one)
            if not figures:
                break  # no load is its excuse
            for key, value in figures.items():
                value = with_fit.badness(value, BETTER[key[0]])
                best[key] = min(value, best.get(key, value))
            if all(best[key] <= usual.get(key[0], best[key]) + factor for key in best):
                break
        return best


def figures_of(record):
    """(metric, sender, receiver) or (metric,) -> figure, of a measured pair.

    The whole table is read, and checked, by the parser of the benchmark.
    """
    low, high = record["pair"]
    rows = [(float(a), float(b)) for a, b in LINE.findall(record["text"])]
    figures = {}  # type: dict
    for ends, (count, seconds) in zip(((low, high), (high, low)), record["streams"]):  # noqa: B905
        figures[("stream_MB_s", *ends)] = count / seconds / 1e6
    if rows and not record["failed"]:
        figures["latency_us",] = rows[0][1]
        figures["bandwidth_MB_s",] = max(rate for rate, _ in rows)
    return {key: value for key, value in figures.items() if value > 0}


def choose(in_rounds, factor, two_way):
    """Suspected links, the worst first; good ones, the best first; the links of suspected nodes.

    A link is suspected if it is worse than usual by ``factor`` (a logarithm), in any metric. Where
    the effect of a node explains that, only a few links of the node are, with the best partners.
    """
    worst, explained = {}, {}  # type: dict, dict
    for metric, better in BETTER.items():
        cells = {}
        for link, figures in in_rounds.items():
            for key, value in figures.items():
                if key[0] == metric:
                    ends = key[1:]
                    groups = (("sends", ends[0]), ("receives", ends[1])) if ends else tuple(
                        ("node", end) for end in link)  # fmt: skip
                    cells[(link, *ends)] = (two_way.badness(value, better), groups)
        if not cells:
            continue
        fitted = two_way.fit(cells)
        for cell, (value, groups) in cells.items():
            link = cell[0]
            excess = value - fitted.overall
            worst[link] = max(worst.get(link, excess), excess)
            for group in groups:
                if fitted.effects[group] > factor and fitted.residuals[cell] <= factor < excess:
                    explained.setdefault(group, []).append(link)
    suspects = {link for link, excess in worst.items() if excess > factor}
    by_node = set()  # type: set
    kept = set()  # type: set
    for own in explained.values():
        own[:] = sorted(set(own), key=lambda link: worst[link])
        kept.update(own[:NODE_LINKS])
        by_node.update(own)
    suspects -= by_node - kept
    ordered = sorted(suspects, key=lambda link: -worst[link])
    good = sorted((link for link in worst if worst[link] <= factor), key=lambda link: worst[link])
    return ordered, good, list(explained.values())


def load(path):
    spec = importlib.util.spec_from_file_location("two_way", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(argv):
    step, interface, port, options = argv[0], argv[1], int(argv[2]), json.loads(argv[3])
    number, count = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    coordinator = 0
    if number == 0:
        coordinator = os.fork()
        if coordinator == 0:
            Coordinator(step, count, interface, port, options, argv[4:]).run()
            os._exit(0)
    agent(step, number)
    return os.waitstatus_to_exitcode(os.waitpid(coordinator, 0)[1]) if coordinator else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
