"""Links in rounds on light nodes: cost over the number of nodes, planted faults, healthy labs.

    .venv/bin/python ci/bench/links.py growth [--nodes 8 16 32 64]
    .venv/bin/python ci/bench/links.py faults [--trials 10] [--nodes 64]
    .venv/bin/python ci/bench/links.py healthy [--trials 20] [--nodes 64] [--busy 4]

As root, in a checkout whose `seatrial trial` has run once. Trials and `links.jsonl`, one line for
each, go to --folder (default .seatrial/bench/links).

``growth`` prints wall time of the step, size of its command, files and time limit, and as a ratio
those of one srun for each pair in turn: the time of that way is that of a sample of such steps in
the same lab times the number of pairs. ``faults`` plants in each trial a slow node, a slow link and
a link that is slow in one direction, at other places each time, and counts what was named, and what
else. ``healthy`` counts what is named where nothing is planted; --busy adds processes that compute.
Exit code 1: a fault was not named, or something else was.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from false_alarms import load
from light import Place, make_site

from seatrial.base.paths import CHECKOUT
from seatrial.plan.estimate import jobs_of
from seatrial.plan.model import MARGIN_S
from seatrial.plan.resolve import plan_trial
from seatrial.plan.selection import Selection
from seatrial.results.folder import Results
from seatrial_lab.native import faults

RULES = """
schema: 1
defaults: {statistic: best}
requirements:
  - {select: {check: links}, metric: bandwidth_MB_s, basis: relative, peers: median, at_least: 0.2}
  - {select: {check: links}, metric: stream_MB_s, basis: relative, peers: median, at_least: 0.2}
  - {select: {check: links}, metric: latency_us, basis: relative, peers: median, at_most: 5.0}
informative:
  - {select: {}, metric: n_half_B, reason: the curve}
"""
LIGHT = {"max_bytes": "16 KiB", "repetitions": 3, "stream_bytes": "1 MiB", "pairs_at_once": 2,
         "cores": list(range(min(os.cpu_count() or 1, 2))), "suspect_factor": 2.5,
         "time_limit_s": 20}  # fmt: skip
OLD_STEP_LIMIT_S = 60  # of a step of the old way, by default
OLD_FILES = 9  # of each step: output, errors, records of two nodes, waits, address, server ...
SAMPLE = 20  # steps of the old way that are timed


def lab_of(folder: Path, count: int) -> Place:
    benchmarks = {"links": {"nodes": [count], **LIGHT}}
    file = make_site(folder / f"links{count}", count, benchmarks, RULES)
    return Place(folder, file, f"bench_l{count}", "links.jsonl")


def growth(folder: Path, counts: list[int]) -> bool:
    print("nodes  links  wall s  ratio  command B  ratio  files  ratio  limit s  ratio")
    for count in counts:
        with lab_of(folder, count) as place:
            results = place.trial()
            (run,) = results.runs
            if run.outcome != "ran":
                raise SystemExit(run.reason)
            case = results.folder / run.evidence
            command = next(
                line for line in sorted(case.glob("rfm_*.sh"))[0].read_text().splitlines()
                if line.startswith("seatrial_lossy_step")
            )  # fmt: skip
            files = sum(file.is_file() for file in case.iterdir())
            (job,) = jobs_of(plan_trial(place.file, Selection()))
            wall = float(run.facts["seconds"])
            pairs = count * (count - 1) // 2
            old_step, old_bytes = sample_of_old_way(place)
            old = (old_step * pairs, old_bytes * pairs, OLD_FILES * pairs,
                   OLD_STEP_LIMIT_S * pairs + MARGIN_S)  # fmt: skip
            new = (wall, len(command), files, job.limit_s)
        columns = [f"{a:8.0f} {b / a:7.1f}" for a, b in zip(new, old, strict=True)]
        print(f"{count:5d} {pairs:6d} {' '.join(columns)}", flush=True)
        place.note(kind="growth", nodes=count, new=new, old=old)
    return True


def sample_of_old_way(place: Place) -> tuple[float, int]:
    """Seconds and bytes of one pair by a step of its own: srun, the wrapper, pair.py, NPtcp."""
    node = CHECKOUT / "src" / "seatrial" / "checks" / "node"
    stage = place.folder / "trials" / f"old{place.count}"
    stage.mkdir(parents=True, exist_ok=True)
    stage.chmod(0o777)
    rng = random.Random(1)
    lines = []
    for number in range(SAMPLE):
        a, b = rng.sample(range(1, place.count + 1), 2)
        np = f"NPtcp -P {5700 + number} -u 16384 -p 0 -n 3 -o link.np"
        lines.append(
            f"timeout 60 srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 "
            f"--wait=5 --overlap --nodelist=n{a},n{b} /usr/bin/python3 -IS {node}/run.py "
            f"link-{number} test=eth1,mgmt=eth0 -- /usr/bin/python3 -IS {node}/pair.py "
            f"link-{number} eth1 {5700 + number} {np} -- {np} -h '{{address}}' >/dev/null 2>&1 "
            f"|| echo failed"
        )
    script = "\n".join(["cd " + str(stage), "date +%s.%N", *lines, "date +%s.%N"])
    done = place.lab.run(
        ["salloc", "-Q", f"-N{place.count}", "--exclusive", "sh", "-c", script], timeout=900,
        cwd=str(stage), check=True,
    )  # fmt: skip
    words = done.stdout.split()
    if "failed" in words:
        raise SystemExit(f"steps of the old way failed: {done.stdout}")
    return (float(words[-1]) - float(words[0])) / SAMPLE, round(median(map(len, lines)))


def named(results: Results) -> set[str]:
    return {j.location or "" for j in results.judgements if j.verdict == "fail"}


def faulty(folder: Path, count: int, trials: int) -> bool:
    hits = wanted = 0
    others: list[str] = []
    with lab_of(folder, count) as place:
        for number in range(trials):
            rng = random.Random(number)
            node, a, b, sender, receiver = (f"n{x}" for x in rng.sample(range(1, count + 1), 5))
            faults.slow_link(place.lab, node, "100mbit")
            faults.slow_link(place.lab, a, "100mbit", peer=b)
            faults.slow_link(place.lab, sender, "100mbit", peer=receiver, only="sends")
            began = time.monotonic()
            try:
                results = place.trial()
            finally:
                faults.clear(place.lab)
            assert results.verdict is not None
            text = "\n".join(results.verdict.findings)
            failing = named(results)
            link = "-".join(sorted((a, b)))
            got = {
                f"node {node}": f"node {node} is common to" in text,
                f"link {link}": bool({link, f"{a}>{b}", f"{b}>{a}"} & failing),
                f"direction {sender}>{receiver}": f"{sender}>{receiver}" in failing
                and f"{receiver}>{sender}" not in failing,
            }
            allowed = {link, f"{a}>{b}", f"{b}>{a}", f"{sender}>{receiver}"}
            allowed.add("-".join(sorted((sender, receiver))))  # a round trip is slow, too
            more = [at for at in failing - allowed if node not in at.replace(">", "-").split("-")]
            hits += sum(got.values())
            wanted += len(got)
            others += more
            seconds = time.monotonic() - began
            print(f"trial {number + 1}: {got}, others {more}, {results.verdict.verdict}, "
                  f"{seconds:.0f} s", flush=True)  # fmt: skip
            place.note(kind="faults", nodes=count, got=got, others=more, seconds=seconds)
    print(f"{hits} of {wanted} planted faults named; {len(others)} other locations named")
    return hits == wanted and not others


def healthy(folder: Path, count: int, trials: int, busy: int) -> bool:
    others: list[set[str]] = []
    with lab_of(folder, count) as place, load(busy):
        for number in range(trials):
            began = time.monotonic()
            results = place.trial()
            assert results.verdict is not None
            others.append(named(results))
            (run,) = results.runs
            undecided = results.verdict.counts["inconclusive"]
            seconds = time.monotonic() - began
            line = {
                "kind": "healthy",
                "nodes": count,
                "busy": busy,
                "outcome": run.outcome,
                "verdict": results.verdict.verdict,
                "named": sorted(others[-1]),
                "unmeasured": run.unmeasured,
                "inconclusive": undecided,
                "alone": run.facts.get("links measured alone"),
                "seconds": round(seconds),
            }
            print(f"trial {number + 1}: {line}", flush=True)
            place.note(**line)
    bad = sum(bool(one) for one in others)
    print(f"{bad} of {len(others)} trials of a healthy lab named a location")
    return not bad


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["growth", "faults", "healthy"])
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".seatrial" / "bench" / "links")
    parser.add_argument("--nodes", type=int, nargs="+")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--busy", type=int, default=0, metavar="PROCESSES")
    given = parser.parse_args()
    one = (given.nodes or [64])[0]
    ways: dict[str, Callable[[], bool]] = {
        "growth": lambda: growth(given.folder, given.nodes or [8, 16, 32, 64]),
        "faults": lambda: faulty(given.folder, one, given.trials or 10),
        "healthy": lambda: healthy(given.folder, one, given.trials or 20, given.busy),
    }
    return 0 if ways[given.what]() else 1


if __name__ == "__main__":
    sys.exit(main())
