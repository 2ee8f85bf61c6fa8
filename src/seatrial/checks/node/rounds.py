"""Node side: measure all links of a step's nodes in rounds of disjoint pairs, then suspects alone.

    python3 -IS rounds.py STEP INTERFACE PORT OPTIONS NPTCP...

One process runs on each node. The first node's process coordinates: each node connects to it over
any network, gets orders, and reports. In a round each node has one partner (circle method): n - 1
rounds of n / 2 pairs, or n rounds for an odd number. ``rounds_node.py`` is what a node does for a
pair, ``rounds_links.py`` which links are measured.

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
import secrets
import selectors
import socket
import sys
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pair as pairs_of_ranks  # (with -I, Python does not add this folder to the path)
from rounds_links import BETTER, NODE_LINKS, choose, figures_of, schedule
from rounds_node import CONNECT_S, agent, lines_of

GREETING_S = 30  # from a connection to its whole greeting, which a node sends at once
GREETING_B = 4096
MOST_STRANGERS = 64  # connections without a greeting beside the nodes; then the oldest is closed
GRACE_S = 10  # for an answer to an order to stop
#: of a node without a link that works, with nodes that have one: its other links are not tried
SILENT_LINKS = 3
CONTROLS = 5  # good links that are measured alone, and one more for each bad one
TRIES = 5  # of a link alone, as long as it is slow
FAILURES = 2  # of a link alone that has figures from its round
ALONE_LEAST_S = 30  # for what is measured alone; or as long as the rounds took


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
                    busy = [pair.core for pair in running]
                    core = min(self.options["cores"] or [None], key=busy.count)
                    running.append(self._start(low, high, core))
            for key, _ in self.selector.select(0.5):
                self._hear(key.data, running)
            for pair in list(running):
                self._tend(pair)
                missing = [end for end in pair.ends if end not in pair.said]
                if not missing:
                    running.remove(pair)
                    of_pair = self._record(pair, round_number)
                    if of_pair:
                        figures[tuple(sorted(pair.ends))] = of_pair  # either end may serve
        return figures

    def _start(self, low, high, core):
        # Either end serves as often.
        if (low + high) % 2:
            low, high = high, low
        self.serial += 1
        pair = Pair(low, high, self.serial, core)
        self.order(low, dict(self._common(pair), role="serve"))
        return pair

    def _common(self, pair):
        port = self.port + pair.serial % 200
        return {
            "id": pair.serial, "interface": self.interface, "port": port, "core": pair.core,
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
            for pair in running:
                if pair.serial == report["id"] and number in pair.ends:
                    if "ready" in report:
                        order = dict(self._common(pair), role="connect", address=report["ready"])
                        pair.asked.add(pair.high)
                        self.order(pair.high, order)
                    else:
                        pair.said[number] = report

    def _tend(self, pair):
        """End a pair that has failed at one end, or takes too long."""
        for end in pair.ends:
            if end not in self.connections and end not in pair.said:
                pair.said[end] = {"failed": "node %s: %s" % (self.name(end), self.absent[end])}
        now = time.monotonic()
        failed = any("failed" in said for said in pair.said.values())
        left = [end for end in pair.ends if end not in pair.said]
        if pair.stopped and now > pair.stopped + GRACE_S:
            for end in left:
                self.drop(end, "it did not answer for %d s" % (now - pair.begun))
        elif not pair.stopped and (failed or now > pair.begun + self.options["limit_s"]):
            pair.stopped = now
            for end in left:
                if end in pair.asked:
                    self.order(end, {"role": "stop", "id": pair.serial})
                else:
                    pair.said[end] = {"failed": "stopped"}

    def name(self, number):
        return self.names.get(number, "number %d" % number)

    def _record(self, pair, round_number):
        low, high = sorted(pair.ends)
        record = {"pair": [low, high], "round": round_number}
        server, client = pair.said[pair.low], pair.said[pair.high]
        reasons = [
            "%s: %s" % (self.name(end), said["failed"])
            for end, said in pair.said.items()
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
        self.works.update(pair.ends)
        server, client = server["result"], client["result"]
        # The server receives what the client sends.
        received = {pair.low: server["received"], pair.high: client["received"]}
        record.update(
            seconds=time.monotonic() - pair.begun,
            text=client["text"],
            streams=[received[high], received[low]],  # the first from the lower number
            failed=client["failed_nptcp"],
            bytes=[(server if end == pair.low else client)["bytes"] for end in (low, high)],
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
        for number, pairs in enumerate(schedule(self.count)):
            if time.monotonic() > budget:
                self.write({"stopped": "rounds from %d on: the time of the step is over" % number})
                break
            pairs = [pair for pair in pairs if not self.apart.keys() & set(pair)]
            in_rounds.update(self.measure(pairs, self.options["at_once"], number))
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
        among = [
            [(silent[low], silent[high]) for low, high in in_round]
            for in_round in schedule(len(silent))
        ]
        tried, without = set(self.failed), 0
        for at, in_round in enumerate(among + schedule(self.count)):
            if time.monotonic() > budget or without == SILENT_LINKS:
                break
            if at >= len(among) and not figures:
                break
            pairs = [
                pair for pair in in_round
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
            pair for pair in self.failed
            if all(end in self.connections and end not in self.apart for end in pair)
        ]  # fmt: skip
        suspects = suspects + again
        if not suspects and self.options["at_once"] == 1:
            return  # nothing was beside any link
        took = time.monotonic() - self.begun
        budget = min(budget, time.monotonic() + max(ALONE_LEAST_S, took))
        left = self.options["most_alone"]
        usual, bad = {}, set()  # type: dict, set

        def best_of(link, usual):
            return self._best(link, usual, factor, with_fit, budget, in_rounds.get(link, {}))

        def control(count):
            for link in good[:count]:
                for metric, value in best_of(link, {}).items():
                    usual.setdefault(metric[0], []).append(value)
            del good[:count]

        def compare(links):
            """Measure suspects; keep those that are slow alone, too."""
            middles = {metric: median(values) for metric, values in usual.items()}
            for link in links[:left]:
                best = best_of(link, middles)
                if any(best[key] > middles.get(key[0], best[key]) + factor for key in best):
                    bad.add(link)
            return len(links[:left])

        control(CONTROLS)
        left -= compare(suspects)
        # The other links of a node that is as good as others alone: it was not the node.
        cleared = [links for links in of_nodes if not bad.intersection(links[:NODE_LINKS])]
        rest = {link for links in cleared for link in links[NODE_LINKS:]}
        left -= compare(sorted(rest.difference(suspects)))
        # Each is compared with the median of the others that were measured alone.
        control(len(bad))

    def _best(self, link, usual, factor, with_fit, budget, had):
        """Measure a link alone, again as long as it is slow. Returns the best of its figures.

        Another program makes a measurement slower and none faster; a bad cable is slow each time.
        A link that lacks figures that it ``had`` in its round is tried once more.
        """
        best, failures = {}, 0  # type: dict, int
        for _ in range(TRIES):
            if time.monotonic() > budget:
                break
            figures = self.measure([link], 1, None).get(link) or {}
            for key, value in figures.items():
                value = with_fit.badness(value, BETTER[key[0]])
                best[key] = min(value, best.get(key, value))
            if not figures or set(had).difference(figures):
                failures += 1
                if not had or failures == FAILURES:
                    break  # no load is its excuse
                continue
            if all(best[key] <= usual.get(key[0], best[key]) + factor for key in best):
                break
        return best


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
