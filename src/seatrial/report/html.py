"""``report.html``: a trial in one file that needs no network and no server.

plotly.js (4.8 MB; its Python package has no smaller build) is embedded once, compressed by gzip
(1.96 MB as base64), and unpacked by the browser. A browser that cannot do that shows the numbers
as tables. A content security policy allows only the two scripts of this file and no connection,
so that an error in the escaping runs nothing and loads nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from seatrial.base.errors import unexpected
from seatrial.base.files import write_whole
from seatrial.base.memory import no_collections
from seatrial.report import (
    HISTORY_FILE,
    cases,
    contract,
    curves,
    figures,
    judgements,
    locations,
    profiles,
    summary,
    text,
)
from seatrial.results.folder import Results
from seatrial.results.record import Run

if TYPE_CHECKING:
    from seatrial.report.chapter import Section

T = TypeVar("T")
_OPEN_MAPS = 4  # link maps that are open; the others are folded
_OPEN_FINDINGS = 15


@no_collections()
def write_html(results: Results, path: Path) -> None:
    """Write ``path`` atomically. Links to evidence are relative to its folder."""
    base = os.path.relpath(results.folder, path.parent)
    page = render(results, base).encode(errors="replace")
    write_whole(path, page, below=results.above(path))


def render(results: Results, base: str = ".") -> str:
    """The page as text. ``base`` leads from its folder to that of the trial.

    A part that cannot be made, such as of a hostile record, is named at the top of the page.
    """
    parts = _Parts()
    context = _context(results, base, parts)
    template = environment().get_template("report.html.j2")
    failed = dict(parts.failed)
    page = template.render(context, failed=failed)
    if parts.failed != failed:  # parts that the template itself calls
        page = template.render(context, failed=parts.failed)
    return page


class _Parts:
    """Makes the parts of a page. ``failed``: the name of each that cannot be made -> why."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def made(self, name: str, make: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """What ``make`` returns; what ``otherwise`` returns if it fails."""
        try:
            return make()
        except Exception as error:
            self.failed.setdefault(name, unexpected(error))
            return otherwise()

    def of_run(
        self, name: str, make: Callable[[Run], T], otherwise: Callable[[], T]
    ) -> Callable[[Run], T]:
        """The same for each run, for a template to call."""
        return lambda run: self.made(
            f"{name} of {run.case.id}, repeat {run.repeat + 1}", lambda: make(run), otherwise
        )


def _finalize(value: Any) -> Any:
    """Replace control characters in every value that a template prints."""
    return text.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("seatrial.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters |= {
        "number": text.number,
        "moment": text.moment,
        "duration": text.duration,
        "plain": cases.plain,
        "flat": lambda value: list(cases.flat(value)),
    }
    return made


def packaged(name: str) -> Markup:
    """A file of this package, verbatim: the policy holds the hash of these bytes."""
    loader = environment().loader
    assert loader is not None
    return Markup(loader.get_source(environment(), name)[0])


def script_hash(script: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"


@cache
def _plotly() -> tuple[str, str]:
    """plotly.js, gzip-compressed and as base64, and its hash for the policy."""
    from plotly.offline import get_plotlyjs

    # Browsers normalize the line ends of a script before they hash it.
    source = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")
    packed = gzip.compress(source.encode(), 9, mtime=0)
    return base64.b64encode(packed).decode(), script_hash(source)


def _context(results: Results, base: str, parts: _Parts) -> dict[str, Any]:
    views = summary.gather(results)
    keys = figures.keys_of(views)
    links, nodes = locations.by_location(results.runs)
    nodes = {key: samples for key, samples in nodes.items() if key[1] not in profiles.COSTS}
    usual, declared = profiles.usual_states(results.runs), profiles.declared_settings(results)
    of_nodes = dict.fromkeys(case for cases in nodes.values() for case in cases)
    at_nodes = [
        ((j.case, j.metric, j.location), j)
        for case in of_nodes
        for _, j in views[case].judgements
        if j.location
    ]
    failed = {key for key, j in at_nodes if j.verdict == "fail"}
    judged = {key: j.value for key, j in at_nodes if j.value is not None}
    bad_locations = {
        case: {j.location for _, j in view.bad if j.verdict == "fail" and j.location}
        for case, view in views.items()
    }
    clauses = contract.rows(results)
    findings = summary.findings_of(results, views)
    linked = {row.judgement for row in clauses} | {finding.judgement for finding in findings}
    listed = judgements.listing(results, {index for index in linked if index is not None})
    lines: list[figures.Figure] = parts.made(
        "Latency and bandwidth", lambda: curves.curve_figures(results.runs, keys), list
    )
    of_locations: list[figures.Figure] = parts.made(
        "curves of links", lambda: curves.location_figures(results.runs, bad_locations), list
    )
    hpl: list[figures.Figure] = parts.made(
        "HPL", lambda: figures.hpl_figures(results.runs, keys), list
    )
    cpu: list[figures.Figure] = parts.made(
        "CPU use",
        lambda: figures.cpu_figures(results.runs, keys),
        list,
    )
    per_node: list[figures.Figure] = parts.made(
        "Nodes", lambda: figures.node_figures(nodes, failed, keys, judged), list
    )
    meant, of_meaning = parts.made("What it means", lambda: _meaning(results), _no_meaning)
    drawn_meaning = [f for figures_of in of_meaning.values() for f in figures_of]
    drawn = {f.id: f for f in [*drawn_meaning, *lines, *of_locations, *hpl, *cpu, *per_node]}
    spec = {
        "figures": {f.id: {"data": f.data, "layout": f.layout} for f in drawn.values()},
        "profiles": keys.profiles,
    }
    anchors = dict(zip(views, text.slugs(f"case-{case.id}" for case in views), strict=True))
    script = packaged("script.js.j2")
    packed, plotly_hash = _plotly() if drawn else ("", "")
    return {
        "trial": results.trial,
        "history": _history(results.folder, base),
        "command": shlex.join(results.trial.command),
        "head": summary.headline(results, views),
        "verdicts": summary.verdict_history(results),
        "views": views,
        "anchors": anchors,
        "findings": findings,
        "matrix": summary.matrix(views),
        "case_counts": Counter(view.status.key for view in views.values()),
        "statuses": text.STATUSES,
        "contract": clauses,
        "contract_words": contract.in_words([row.clause for row in clauses]),
        "digest": contract.digest(results.folder),
        "verdict": results.verdict,
        "meaning": meant,
        "meaning_figures": {"": [], **of_meaning},
        "curves": lines,
        "of_locations": of_locations,
        "hpl": hpl,
        "cpu": cpu,
        "per_node": per_node,
        "profiles": keys.profiles,
        "many_profiles": keys.many,
        "maps": parts.made("Links", lambda: locations.link_maps(links, views), list),
        "open_maps": _OPEN_MAPS,
        "dense": locations.DENSE,
        "level_names": locations.LEVEL_NAMES,
        "open_findings": _OPEN_FINDINGS,
        "listed": listed,
        "total": len(results.judgements),
        "folded": text.folded,
        "first_rows": cases.first_rows,
        "not_enough": lambda row: not row.enough,
        "not_ok": lambda proof: not proof.ok,
        "left_changed": lambda state: state.left_changed,
        "bound": text.bound,
        "check_name": text.check_name,
        "evidence": {
            case: [cases.evidence_link(run, results.folder, base) for run in view.runs]
            for case, view in views.items()
        },
        "raw_files": parts.of_run(
            "Raw files", lambda run: cases.raw_files(run, results.folder, base), list
        ),
        "nic_states": parts.of_run(
            "NIC state", lambda run: cases.nic_states(run, usual, declared), lambda: ([], "")
        ),
        "profile_views": parts.made("NIC profiles", lambda: profiles.profile_views(results), list),
        "costs": parts.made(
            "costs of profiles", lambda: profiles.cost_table(results), lambda: ([], [])
        ),
        "cost_names": list(profiles.COSTS.values()),
        "activity_rows": parts.of_run("Interrupts", profiles.activity_rows, list),
        "counted": parts.of_run("Counters", cases.counted, list),
        "metric_rows": lambda view: parts.made(
            f"Figures of {view.case.id}", lambda: cases.metric_rows(view, listed.shown), list
        ),
        "spec": htmlsafe_json_dumps(_finite(spec), separators=(",", ":"), allow_nan=False),
        "script": script,
        "style": packaged("style.css.j2"),
        "plotly": Markup(packed),
        "script_hashes": f"{script_hash(script)} {plotly_hash}".strip(),
    }


_Meaning = tuple[list["Section"], dict[str, list[figures.Figure]]]


def _no_meaning() -> _Meaning:
    return [], {}


def _meaning(results: Results) -> _Meaning:
    """The chapter "What it means": its sections, and their figures."""
    from seatrial.analysis.trials import analyse  # its libraries are slow to import
    from seatrial.report.meaning.figures import meaning_figures
    from seatrial.report.meaning.sections import sections

    analysis = analyse([results])
    return sections(analysis), meaning_figures(analysis)


def _history(folder: Path, base: str) -> str:
    """The link to the page of all trials; "" if there is none."""
    if not (folder.parent / HISTORY_FILE).is_file():
        return ""
    lead = os.path.normpath(os.path.join(base, os.pardir))  # noqa: PTH118 - no path, a link
    return text.relative_href(HISTORY_FILE, lead) or ""


def _finite(value: Any) -> Any:
    """NaN and infinities as null, which JSON can hold and Plotly shows as a gap."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
