"""Write docs/founding-results.md and its picture: published figures beside the lab's own.

    .venv/bin/python ci/founding/compare.py [TRIAL_FOLDER ...]
    .venv/bin/python ci/founding/compare.py --check TRIAL_FOLDER ...
    .venv/bin/python ci/founding/compare.py --trials

Of a figure that several trials have, the last one's counts. What no trial has is taken from
``measured.jsonl`` beside ``published.yaml``, which is written with the page. With --check nothing
is written, the kept figures do not count, and the exit code is 1 where a finding does not agree as
far as ``published.yaml`` holds the lab to. --trials prints the options of all trials.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from figures import read_measured, write_measured
from published import compare, load_published, measured_in
from side_by_side import markdown, picture

from seatrial.base.errors import SeatrialError
from seatrial.base.paths import CHECKOUT
from seatrial.results.folder import read_results

PUBLISHED = CHECKOUT / "site-configs" / "lab-virtual" / "published.yaml"
MEASURED = PUBLISHED.with_name("measured.jsonl")
DOCS = CHECKOUT / "docs"
PAGE, PICTURE = DOCS / "founding-results.md", DOCS / "images" / "founding-results.svg"
MARK = "<!-- below: written by ci/founding/compare.py -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", nargs="*", type=Path, metavar="TRIAL_FOLDER")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--trials", action="store_true", dest="options")
    given = parser.parse_args()
    published = load_published(PUBLISHED)
    if given.options:
        print("\n".join(published.trials))
        return 0
    trials = [read_results(folder) for folder in given.trials]
    kept = {} if given.check else read_measured(MEASURED)
    needed = set(published.figures())
    found = kept | measured_in(published, trials)
    measured = {figure: one for figure, one in found.items() if figure in needed}
    outcomes = compare(published, measured)
    for outcome in outcomes:
        word = "as held" if outcome.as_held else f"LESS than {outcome.comparison.agrees}"
        print(f"{outcome.comparison.id}: {outcome.agrees} ({word}) {outcome.missing}".rstrip())
    if not given.check:
        write_measured(MEASURED, measured.values())
        above = PAGE.read_text().partition(MARK)[0]
        PAGE.write_text(markdown(published, outcomes, f"{above.rstrip()}\n\n{MARK}"))
        PICTURE.write_text(picture(outcomes))
        print(f"written: {PAGE}, {PICTURE}, {MEASURED}")
    return 0 if all(one.as_held for one in outcomes) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SeatrialError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
