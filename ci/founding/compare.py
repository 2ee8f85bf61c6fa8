"""Write docs/founding-results.md and its picture: published figures beside a trial's own.

    .venv/bin/python ci/founding/compare.py TRIAL_FOLDER ... [--check]

Several trials may be given; of a figure that more than one has, the last one's counts. With
--check nothing is written, and the exit code is 1 where a finding does not agree as far as
``published.yaml`` holds the lab to.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from published import compare, load_published
from side_by_side import markdown, picture

from seatrial.base.paths import CHECKOUT
from seatrial.results.record import read_results

PUBLISHED = CHECKOUT / "site-configs" / "lab-virtual" / "published.yaml"
DOCS = CHECKOUT / "docs"
PAGE, PICTURE = DOCS / "founding-results.md", DOCS / "images" / "founding-results.svg"
MARK = "<!-- below: written by ci/founding/compare.py -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", nargs="+", type=Path, metavar="TRIAL_FOLDER")
    parser.add_argument("--published", type=Path, default=PUBLISHED)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    published = load_published(given.published)
    trials = [read_results(folder) for folder in given.trials]
    outcomes = compare(published, trials)
    for one in outcomes:
        word = "as held" if one.as_held else f"LESS than {one.comparison.agrees}"
        print(f"{one.comparison.id}: {one.agrees} ({word}) {one.missing}".rstrip())
    if not given.check:
        above = (
            PAGE.read_text().partition(MARK)[0] if PAGE.exists() else "# The founding results\n\n"
        )
        PAGE.write_text(markdown(published, outcomes, f"{above.rstrip()}\n\n{MARK}"))
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture(outcomes))
        print(f"written: {PAGE}, {PICTURE}")
    return 0 if all(one.as_held for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
