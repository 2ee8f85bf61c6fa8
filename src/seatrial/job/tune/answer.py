"""The answer of a tune: as data for programs, and as a text for people."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seatrial.analysis.conclusion import CONFIDENCE
from seatrial.analysis.decision import Decision, failing
from seatrial.base.files import write_whole
from seatrial.job.choose import DEFAULT
from seatrial.job.tune.record import Book, Candidate, Ran, Tuned
from seatrial.job.tune.study import LOOKS, NOT_ITS_OWN, Stop, Study
from seatrial.report.chapter import joined
from seatrial.report.estimates import small_difference, times
from seatrial.report.text import clean, folded, quantity
from seatrial.results.statistics import median
from seatrial.results.wording import number, plural, some

DATA_FILE, TEXT_FILE = "answer.json", "answer.txt"
WIDTH = 96
MOST_SHOWN = 8  # reasons why runs do not count
SHORT_S = 1.0  # below this, the start of the ranks is a large part of the wall time


class Answer:
    """What a tune concludes from the record, after ``stop``."""

    def __init__(self, book: Book, stop: Stop, folder: Path):
        assert book.tuned
        self.tuned: Tuned = book.tuned
        self.stop, self.folder = stop, folder
        self.study = Study(book.tuned, book.runs, book.looks)
        self.counted = [run for run in book.runs if not run.fault]
        self.failed = [run for run in book.runs if run.fault]
        self.decision = self._decision(book)
        self.choice = self._choice()

    def _decision(self, book: Book) -> Decision:
        """The decision of the last look: what was measured since then waits for the next one."""
        if not book.looks:
            made = self.study.decision()
            if not self.counted:
                why = f": the last one {said}" if (said := self._last_failure()) else ""
                return Decision("measure more", reason=f"no run counts{why}")
            if len(self.study.compared) < 2:
                why = "fewer than two candidates have runs that count"
                return Decision("measure more", made.leaders, reason=why)
            least = self.study.least
            why = f"each candidate needs {least} runs that count"
            return Decision("measure more", made.leaders, (), made.ahead, needs=least, reason=why)
        last = book.looks[-1]
        return Study(self.tuned, book.runs[: last.runs], book.looks[:-1]).decision()

    def _last_failure(self) -> str:
        """How the last run of the program failed, if it did, as a clause without a subject."""
        reasons = [run.reason for run in self.failed if run.fault in ("program", "timeout")]
        return reasons[-1].removeprefix("it ") if reasons else ""

    @property
    def doubt(self) -> str:
        """Why what is best in the runs that count may not be; "": no reason is known."""
        of_candidates = [
            run for run in [*self.counted, *self.failed] if run.fault not in NOT_ITS_OWN
        ]
        runs = Counter(run.candidate.name for run in of_candidates)
        failed = Counter(run.candidate.name for run in of_candidates if run.fault)
        return failing(self.decision, {name: (failed[name], count) for name, count in runs.items()})

    def _choice(self) -> Candidate | None:
        """What to use: the best; else of those at the top one of the site's default profile."""
        names, d = self.tuned.names, self.decision
        if d.answer == "best":
            return names[d.leaders[0]]
        if d.answer == "no difference":
            plain = [names[name] for name in d.leaders if names[name].profile == DEFAULT]
            return plain[0] if plain else names[d.leaders[0]]
        return None

    # -- data

    def data(self) -> dict[str, Any]:
        d = self.decision
        return {
            "schema": 1,
            "answer": d.answer,
            "use": asdict(self.choice) if self.choice else None,
            "program": self.tuned.program,
            "site": self.tuned.site_name,
            "nodes": self.tuned.nodes,
            "ranks_per_node": self.tuned.ranks_per_node,
            "figure": self.tuned.figure or "wall time",
            "unit": self.tuned.unit,
            "better": self.tuned.better,
            "leaders": list(d.leaders),
            "worse": list(d.worse),
            "reason": d.reason,
            "doubt": self.doubt,
            "needs": d.needs,
            "confidence": CONFIDENCE,
            "candidates": [self._row(candidate.candidate) for candidate in self.tuned.candidates],
            "left_out": self.tuned.left_out,
            "not_counted": [
                {"run": run.number, "job": run.job, "candidate": run.candidate.name,
                 "fault": run.fault, "reason": run.reason}
                for run in self.failed
            ],
            "proven": self.proven(),
            "not_proven": self.not_proven(),
            "node_hours": self.study.node_hours,
            "stopped": self.stop.why,
        }  # fmt: skip

    def _row(self, candidate: Candidate) -> dict[str, Any]:
        values = self.study.samples(candidate)
        ahead = self.decision.ahead.get(candidate.name)
        known = ahead and math.isfinite(ahead.low) and math.isfinite(ahead.high)
        return {
            "candidate": candidate.name,
            "profile": candidate.profile,
            "transport": candidate.transport,
            "runs": len(values),
            "median": median(values) if values else None,
            "samples": values,
            "first_is_better_by": asdict(ahead) if ahead and known else None,
            "out": self.study.out.get(candidate, ""),
        }

    def write(self) -> None:
        """Write both files. Raises OSError."""
        write_whole(self.folder / DATA_FILE, json.dumps(self.data(), indent=1) + "\n")
        write_whole(self.folder / TEXT_FILE, self.text())

    # -- text

    def text(self) -> str:
        doubt = f" But {self.doubt}." if self.choice and self.doubt else ""
        where = " where it succeeds" if doubt and self.decision.answer == "best" else ""
        lines = [f"{self.decision.answer}{where}: {self._sentence()}{doubt}", ""]
        if self.choice:
            lines += ["Use it:", *self._how(self.choice), ""]
        lines += [*self._table(), ""]
        lines += self._not_counted()
        lines += [f"Left out: {text}" for text in self.tuned.left_out_lines()]
        lines += [f"Proven: {sentence}" for sentence in self.proven()]
        lines += [f"Not proven: {sentence}" for sentence in self.not_proven()]
        lines += [f"Note: {note}" for note in self.notes()]
        lines.append(
            f"Used: {number(self.study.node_hours, 3)} node hours, "
            f"{plural(len(self.study.runs), 'run')}, {plural(len(self.study.looks), 'look')} of at "
            f"most {LOOKS}. Stopped: {self.stop.why}."
        )
        if self.decision.answer == "measure more":
            lines.append(self._more())
        return "\n".join(_wrapped(clean(line)) for line in lines) + "\n"

    def _not_counted(self) -> list[str]:
        """The runs that do not count, those with the same reason together."""
        alike: dict[str, list[Ran]] = {}
        for run in self.failed:
            alike.setdefault(run.reason, []).append(run)
        lines = []
        for why, runs in list(alike.items())[:MOST_SHOWN]:
            first = runs[0]
            names = list(dict.fromkeys(run.candidate.name for run in runs))
            which = f"run {first.number} (job {first.job or 'none'}), {names[0]}"
            if len(runs) > 1:
                numbers = some([str(run.number) for run in runs])
                which = f"{plural(len(runs), 'run')} ({numbers}), {some(names)}"
            lines.append(f"Not counted: {which}: {why}.")
        shown = sum(len(runs) for runs in list(alike.values())[:MOST_SHOWN])
        if len(self.failed) > shown:
            lines.append(f"Not counted: {plural(len(self.failed) - shown, 'other run')}.")
        return lines

    @property
    def _what(self) -> str:
        t = self.tuned
        program = clean(shlex.join(t.program).replace("\n", "\\n"))
        program = program if len(program) <= 60 else program[:57] + "..."
        ranks = t.nodes * t.ranks_per_node
        return f"{program} ({plural(t.nodes, 'node')}, {plural(ranks, 'rank')})"

    @property
    def _figure(self) -> str:
        return "figure" if self.tuned.figure else "wall time"

    def _median(self, name: str) -> str:
        values = self.study.samples(self.tuned.names[name])
        return f"{self._figure} {quantity(median(values), self.tuned.unit)}" if values else "no run"

    def _sentence(self) -> str:
        d, names = self.decision, self.tuned.names
        if d.answer == "best":
            top = names[d.leaders[0]]
            near = min(d.ahead, key=lambda name: d.ahead[name].value)
            text = (
                f"use NIC profile {top.profile} with transport {top.transport} for {self._what}: "
                f"{self._median(top.name)}, {times(d.ahead[near])} as good as the next, {near}."
            )
            if self.tuned.nodes > 1 and not all(run.crossed for run in self.counted):
                text += " The path is not proven in all runs, see below."
            return text
        if d.answer == "no difference":
            assert self.choice
            most = number(100 * d.apart, 2)
            which = "the candidates" if not d.worse else joined(d.leaders)
            text = f"{which} differ by at most {most} % for {self._what}, with 95 % confidence; "
            why = "the site's default" if self.choice.profile == DEFAULT else "which is no worse"
            if small := small_difference(d):
                text = f"{small}; {text}"
            if d.uneven:
                text += f"but {d.uneven}; "
            return f"{text}use {self.choice.name}, {why}: {self._median(self.choice.name)}."
        text = f"it is not known which candidate suits {self._what}: {d.reason}."
        finite = [name for name in d.leaders[1:] if name in d.ahead
                  and math.isfinite(d.ahead[name].high)]  # fmt: skip
        if finite:
            top = names[d.leaders[0]]
            others = ", ".join(f"{times(d.ahead[name])} that of {name}" for name in finite[:3])
            text += f" {top.name} has the best median, which may be chance: {others}."
        return text

    def _how(self, candidate: Candidate) -> list[str]:
        t = self.tuned
        chosen = t.chosen(candidate)
        feature, transport = chosen.feature, candidate.transport
        if chosen.variant_of:
            transport = (
                f"{chosen.variant_of} with env and options of {candidate.transport} in site.yaml"
            )
        words = ["seatrial", "job", "render", "mpi", "--site", t.site, "--profile",
                 candidate.profile, "--transport", candidate.transport, "--nodes", str(t.nodes),
                 "--ranks-per-node", str(t.ranks_per_node), "--set",
                 f"program={shlex.join(t.program)}"]  # fmt: skip
        for key, value in t.settings.items():
            words += ["--set", f"{key}={value}"]
        command = (
            f"sbatch --constraint={feature} --exclusive" if feature else "sbatch, no --constraint"
        )
        return [f"  your own script: {command}, transport {transport}; a new script:",
                f"  {clean(shlex.join(words))} --output job.sh"]  # fmt: skip

    def _table(self) -> list[str]:
        d = self.decision
        head = ["candidate", "runs", "median", "first is better by (95 %)", ""]
        rows = [head]
        order = [*d.leaders, *sorted(d.worse, key=lambda name: d.ahead[name].value)]
        listed = sorted(
            self.study.all,
            key=lambda candidate: (
                order.index(candidate.name) if candidate.name in order else len(order)
            ),
        )
        for candidate in listed:
            row = self._row(candidate)
            value = "-" if row["median"] is None else quantity(row["median"], self.tuned.unit)
            ahead = d.ahead.get(candidate.name)
            by = "first" if d.leaders[:1] == (candidate.name,) else times(ahead) if ahead else "-"
            word = "out" if row["out"] else "worse" if candidate.name in d.worse else ""
            rows.append([candidate.name, str(row["runs"]), value, by, word])
        widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]

    def proven(self) -> list[str]:
        if not self.counted:
            return []
        runs = plural(len(self.counted), "counted run")
        text = (
            f"the NIC profile, on each node of {runs}, before and after the program: the settings "
            "that the interfaces report and, for a profile other than default, the journal of "
            "Slurm's Prolog, which names profile and job."
        )
        sentences = [text]
        crossed = [run for run in self.counted if run.crossed]
        if crossed and self.tuned.nodes > 1:
            networks = ", ".join(sorted({self._network(run) for run in crossed}))
            carried = median([self._carried(run) for run in crossed])
            sentences.append(
                f"in {len(crossed)} of {runs} most bytes between the nodes were on the network "
                f"under test ({networks}): {number(carried / 1e6, 3)} MB for each node in the "
                "median, by its counters."
            )
        seen = sorted({Path(name).name for run in self.counted for name in run.libraries})
        if seen:
            sentences.append(f"the MPI library that the program loaded: {', '.join(seen)}.")
        return sentences

    def not_proven(self) -> list[str]:
        sentences = []
        other = [run for run in self.counted if run.crossed is False]
        silent = [run for run in self.counted if run.crossed is None]
        if other:
            sentences.append(
                f"the path in {plural(len(other), 'counted run')}: another network carried more. "
                f"Run {other[0].number}: {other[0].path}. Files on a network file system count, "
                "too."
            )
        if silent and self.tuned.nodes > 1:
            why = silent[0].path or "the nodes sent less than 64 KiB"
            sentences.append(
                f"the path in {plural(len(silent), 'counted run')}: {why}. What a NIC profile "
                "changes can hardly matter to a program that sends so little."
            )
        if self.counted and self.tuned.nodes > 1:
            sentences.append(
                "that no message took another way: how much a program of yours sends is not "
                "known, only the bytes of each network are."
            )
        if self.counted:
            sentences.append("that the card does what its settings say: a trial tests that.")
        return sentences

    def notes(self) -> list[str]:
        sentences = []
        places = Counter(folded(sorted(run.nodes)) for run in self.counted if run.nodes)
        if len(places) > 1:
            listed = "; ".join(f"{name}: {plural(n, 'run')}" for name, n in places.most_common(4))
            sentences.append(f"the runs were on different nodes ({listed}).")
        walls = [run.wall_s for run in self.counted if run.wall_s]
        if walls and not self.tuned.figure and median(walls) < SHORT_S:
            sentences.append(
                f"a run takes {number(median(walls), 2)} s, much of which is the start of the "
                "ranks: give the program more to do, or compare a figure that it prints (--figure)."
            )
        return sentences

    def _network(self, run: Ran) -> str:
        return self.tuned.chosen(run.candidate).network

    def _carried(self, run: Ran) -> float:
        """Bytes of the network under test, of the median node."""
        network = self._network(run)
        by_node: Counter[str] = Counter()
        for counter in run.counters:
            if counter.network == network:
                by_node[counter.node] += counter.rx_bytes + counter.tx_bytes
        return median(list(by_node.values())) if by_node else 0.0

    def _more(self) -> str:
        needs = self.decision.needs
        it_takes = f"It takes about {needs} runs of each candidate. " if needs else ""
        if self.stop.final:
            return f"{it_takes}More time changes nothing in this folder: begin another tune."
        return (
            f"{it_takes}Continue: seatrial job tune --output {shlex.quote(str(self.folder))}, with "
            "--node-hours and --time-limit as you need them."
        )


def _wrapped(line: str) -> str:
    """A sentence of several lines; a line of a table or a command stays whole."""
    if len(line) <= WIDTH or line.startswith("  "):
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip
