"""``requirements.yaml``: the thresholds of a site, and the thresholds that apply to a figure.

Each entry selects cases (glob patterns), names a metric and gives a bound in one of four forms:
a fraction about a ``reference``, absolute, ``relative_to`` another metric of the same trial, or
relative to the metric's ``peers``. ``seatrial.results.judge`` compares figures with the bounds.

A contract is a clause. A waiver names one clause by its ``source``.

To a figure apply all clauses that match, and the most specific of the other entries (baseline,
relative). An exact word counts more than a list of words, a list more than a pattern, a pattern
more than nothing or ``*``; the weights of the selection's keys and of the metric are added. Of
equally specific entries the last one applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from seatrial.base import globs, yamlfile
from seatrial.base.names import NO_TRANSPORT
from seatrial.base.suggest import suggest
from seatrial.base.yamlfile import InvalidValue, Lines
from seatrial.results.record import Case, Time
from seatrial.results.record import Requirement as RequirementRecord
from seatrial.results.record import Waiver as WaiverRecord
from seatrial.results.statistics import Statistic

SCHEMA = 1
Patterns = str | list[str]
Finite = Annotated[float, Field(allow_inf_nan=False)]
#: widest bound of a reference, as a fraction: a wider one decides nothing
WIDEST = 1.0
_PATTERNS = ("check", "variant", "transport", "network", "profile")
#: the keys that select cases
CASE_KEYS = (*_PATTERNS, "nodes")


def _no_number(value: Any) -> Any:
    """Reject a number for a date: pydantic reads it as seconds since 1970."""
    if isinstance(value, (int, float)) or (isinstance(value, str) and value.strip().isdigit()):
        raise InvalidValue("a number is not a date", "write for example 2027-03-31")
    return value


def _words(text: str) -> str:
    if not text.strip():
        raise InvalidValue("it is empty", "write a name or a sentence")
    return text


Words = Annotated[str, AfterValidator(_words)]


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Select(Entry):
    """Selects cases by glob patterns or lists of them; an omitted key matches everything.

    ``location: ""`` is the case as a whole, ``location: "?*"`` every named location.
    """

    check: Patterns | None = Field(None, examples=["netpipe"])
    variant: Patterns | None = Field(None, examples=['""'])
    transport: Patterns | None = Field(None, examples=["tcp"])
    network: Patterns | None = Field(None, examples=["rail2"])
    profile: Patterns | None = Field(None, examples=["default"])
    nodes: int | list[int] | None = Field(None, examples=["2"])
    location: Patterns | None = Field(None, examples=["n1-n2"])

    def matches_case(self, case: Case) -> bool:
        nodes = [self.nodes] if isinstance(self.nodes, int) else self.nodes
        return (nodes is None or case.nodes in nodes) and all(
            fits(patterns, getattr(case, key))
            for key in _PATTERNS
            if (patterns := getattr(self, key)) is not None
        )

    def matches(self, case: Case, location: str | None) -> bool:
        return self.matches_case(case) and fits(self.location, location or "")

    def text(self) -> str:
        """The selection for people: ``check netpipe, profile default``."""
        words = []
        for key in (*CASE_KEYS, "location"):
            value = getattr(self, key)
            if value is not None:
                several = value if isinstance(value, list) else [value]
                words.append(f"{key} {' or '.join(map(str, several)) or 'none'}")
        return ", ".join(words) or "every case"

    def each(self) -> Iterable[tuple[str, str, Select]]:
        """Key, pattern and the selection with only this one, for each pattern of a list."""
        for key in (*_PATTERNS, "location", "nodes"):
            several = getattr(self, key)
            if isinstance(several, list):
                yield from (
                    (key, str(pattern), self.model_copy(update={key: pattern}))
                    for pattern in several
                )

    def weight(self) -> int:
        nodes = 0 if self.nodes is None else 3 if isinstance(self.nodes, int) else 2
        return nodes + sum(_weight(getattr(self, key)) for key in (*_PATTERNS, "location"))


class Other(Entry):
    """Another metric of the same trial. Omitted keys are those of the judged case.

    For another ``check``, an omitted ``variant`` is "". For the transport ``none``, an omitted
    ``network`` is "": its cases have none.
    """

    check: str | None = Field(None, examples=["netpipe"])
    variant: str | None = None
    transport: str | None = Field(None, examples=["tcp"])
    network: str | None = Field(None, examples=["rail2"])
    profile: str | None = Field(None, examples=["default"])
    nodes: int | None = Field(None, examples=["2"])
    location: str | None = None
    metric: str = Field(examples=["latency_us"])
    same_run: bool = False

    @property
    def case_keys(self) -> list[str]:
        """The keys that name another case than the judged one."""
        return [key for key in CASE_KEYS if getattr(self, key) is not None]

    def case(self, judged: Case) -> Case:
        new_check = self.check is not None and self.check != judged.check
        variant = self.variant if self.variant is not None else "" if new_check else judged.variant
        transport = self.transport or judged.transport
        network = "" if transport == NO_TRANSPORT else judged.network
        return Case(
            check=self.check or judged.check,
            variant=variant,
            transport=transport,
            network=network if self.network is None else self.network,
            profile=self.profile or judged.profile,
            nodes=self.nodes or judged.nodes,
        )

    @model_validator(mode="after")
    def _one_run_is_one_case(self) -> Other:
        if self.same_run and self.case_keys:
            named = self.case_keys[0]
            raise InvalidValue(
                f"the same run is of the same case: '{named}' cannot be given",
                f"remove '{named}', or 'same_run'",
                named,
            )
        return self


class Threshold(Entry):
    """One entry of ``requirements``."""

    select: Select = Select()
    metric: str = Field(examples=["latency_us"])
    basis: Literal["contract", "baseline", "relative"]
    source: str = Field("", examples=['"tender 2026-17, annex B, line 4"'])
    statistic: Statistic | None = None
    unit: str | None = Field(None, examples=["us"])
    reference: Finite | None = Field(None, ge=0)
    lower: Finite | None = None
    upper: Finite | None = None
    relative_to: Other | None = None
    peers: Literal["median"] | None = None
    at_most: Finite | None = None
    at_least: Finite | None = None

    @property
    def form(self) -> Literal["reference", "relative", "peers", "plain"]:
        if self.reference is not None:
            return "reference"
        return "relative" if self.relative_to else "peers" if self.peers else "plain"

    def bounds(self) -> tuple[float | None, float | None]:
        """(least, most) in ``unit``, for the two absolute forms."""
        if self.reference is None:
            return self.at_least, self.at_most
        if self.reference == 0:
            return self.lower, self.upper
        base = self.reference
        least = None if self.lower is None else base * (1 + self.lower)
        return least, None if self.upper is None else base * (1 + self.upper)

    @model_validator(mode="after")
    def _coherent(self) -> Threshold:
        faults = list(self._faults())
        if faults:
            raise InvalidValue.several(faults)
        return self

    def _faults(self) -> Iterable[tuple[str, str, str]]:
        forms = [f for f in ("reference", "relative_to", "peers") if getattr(self, f) is not None]
        if len(forms) > 1:
            yield f"'{forms[0]}' and '{forms[1]}' exclude each other", "keep one", forms[1]
        if self.basis == "contract" and not self.source.strip():
            yield "a contract must name its source", "add 'source: \"tender, page\"'", "source"
        if self.form in ("reference", "plain") and not self.unit:
            yield (
                "an absolute bound needs its unit",
                "add unit, such as 'unit: us', or peers, or relative_to",
                "unit",
            )
        fractions = [k for k in ("lower", "upper") if getattr(self, k) is not None]
        ratios = [k for k in ("at_most", "at_least") if getattr(self, k) is not None]
        if self.form == "reference":
            yield from self._reference_faults(fractions, ratios)
            return
        if fractions:
            name = fractions[0]
            yield (
                f"'{name}' is a fraction of a 'reference', which is not given",
                (f"add 'reference', or use '{'at_most' if name == 'upper' else 'at_least'}'"),
                name,
            )
        elif not ratios:
            yield "there is no bound", "add 'at_most' or 'at_least'", ""
        if len(ratios) == 2 and self.at_least > self.at_most:  # type: ignore[operator]
            yield "'at_least' is above 'at_most': nothing can pass", "exchange them", "at_least"
        for name in ratios if self.form in ("relative", "peers") else []:
            if getattr(self, name) <= 0:
                yield "a ratio must be above zero", f"write for example '{name}: 1.5'", name
        if self.form == "peers":  # else the locations in the middle break it
            if self.at_least is not None and self.at_least > 1:
                text = "the median of the locations is below 'at_least' times itself"
                yield text, "write 80 % of the median as at_least: 0.8", "at_least"
            if self.at_most is not None and self.at_most < 1:
                text = "the median of the locations is above 'at_most' times itself"
                yield text, "write 20 % above the median as at_most: 1.2", "at_most"

    def _reference_faults(
        self, fractions: list[str], ratios: list[str]
    ) -> Iterable[tuple[str, str, str]]:
        if ratios:
            name = ratios[0]
            use = "upper" if name == "at_most" else "lower"
            yield f"'{name}' does not go with 'reference'", f"use '{use}', a fraction", name
        elif not fractions:
            yield "a reference needs a bound", "add 'upper: 0.10' or 'lower: -0.05'", "reference"
        # The limits of ReFrame's references, so that ReFrame accepts them.
        if self.lower is not None and self.lower > 0:
            yield "'lower' must not be above zero", f"write 'lower: -{self.lower:g}'", "lower"
        if self.lower is not None and self.lower < -1 and self.reference:
            yield "'lower' is a fraction, from -1 to 0", "write 5 % below as -0.05", "lower"
        if self.upper is not None and self.upper < 0:
            yield "'upper' must not be below zero", f"write 'upper: {-self.upper:g}'", "upper"


class Informative(Entry):
    """Metrics that are recorded and not judged, with the reason."""

    select: Select = Select()
    metric: Patterns = Field(examples=['"*_triad_*"'])
    reason: str = Field(min_length=1, examples=['"context for hpl_GFLOPS"'])


class Waiver(Entry):
    """The buyer does not insist on a clause until a date. A waiver turns nothing into a pass."""

    clause: str = Field(min_length=1, examples=['"tender 2026-17, annex B, line 4"'])
    metric: str | None = Field(None, examples=["latency_us"])
    by: Words = Field(examples=['"J. Doe, University of X"'])
    reason: Words = Field(examples=['"switch firmware 4.2 is due in March"'])
    expires: Annotated[date, BeforeValidator(_no_number)] = Field(examples=["2027-03-31"])

    def names(self, threshold: Threshold) -> bool:
        return (
            threshold.basis == "contract"
            and threshold.source == self.clause
            and self.metric in (None, threshold.metric)
        )


class Accepted(Entry):
    """A change of level that is the new baseline; ``seatrial baseline --accept`` writes it."""

    change: Words = Field(examples=["2026-11-03-5f2a"])
    by: Words = Field(examples=['"J. Doe, University of X"'])
    when: Annotated[date, BeforeValidator(_no_number)] = Field(examples=["2026-11-23"])
    reason: Words = Field(examples=['"driver igb 5.2 is wanted"'])
    #: begin of the newest trial of the site then: what later trials show is not accepted
    newest: Annotated[Time, BeforeValidator(_no_number)] | None = Field(
        default=None, examples=["2026-11-22T22:00:00Z"]
    )


class Defaults(Entry):
    statistic: Statistic = "median"


class Document(Entry):
    schema_version: Literal[1] = Field(alias="schema")
    defaults: Defaults = Defaults()
    requirements: list[Threshold] = []
    informative: list[Informative] = []
    waivers: list[Waiver] = []
    accepted: list[Accepted] = []

    @model_validator(mode="after")
    def _waivers_name_clauses(self) -> Document:
        faults = list(self._waiver_faults())
        if faults:
            raise InvalidValue.several(faults)
        return self

    def _waiver_faults(self) -> Iterable[tuple[str, str, str]]:
        sources = [t.source for t in self.requirements if t.basis == "contract"]
        seen: dict[int, int] = {}
        for number, waiver in enumerate(self.waivers):
            where = f"waivers.{number}.clause"
            named = [i for i, t in enumerate(self.requirements) if waiver.names(t)]
            if not named and waiver.clause in sources:
                metrics = [t.metric for t in self.requirements if t.source == waiver.clause]
                yield (
                    f"no contract with this source has the metric {waiver.metric!r}",
                    suggest(waiver.metric, metrics),
                    f"waivers.{number}.metric",
                )
            elif not named:
                text = f"no contract has the source {waiver.clause!r}"
                yield text, suggest(waiver.clause, sources), where
            elif len(named) > 1:
                metrics = [self.requirements[i].metric for i in named]
                distinct = len(set(metrics)) == len(metrics)
                yield (
                    f"{len(named)} clauses have this source, and a waiver is of one",
                    f"add for example 'metric: {metrics[0]}'"
                    if distinct
                    else "give each of these clauses a source of its own",
                    where,
                )
            elif named[0] in seen:
                text = f"the clause has a waiver already: waivers.{seen[named[0]]}"
                yield text, "keep one of the two", where
            else:
                seen[named[0]] = number

    @model_validator(mode="before")
    @classmethod
    def _empty_lists(cls, data: Any) -> Any:
        """Accept ``requirements:`` without a value as an empty list, as in a new file."""
        if not isinstance(data, dict):
            return data
        return {k: v for k, v in data.items() if v is not None or k == "schema"}


@dataclass(frozen=True)
class Rule:
    """A threshold with its line in the file."""

    threshold: Threshold
    file: str  # the file's name, without its folder: records must not name a machine's paths
    line: int
    statistic: Statistic
    entry: int = 1  # of the entries that begin in this line, as in a file of JSON

    @property
    def select(self) -> Select:
        return self.threshold.select

    @property
    def metric(self) -> str:
        return self.threshold.metric

    @property
    def id(self) -> str:
        """Name in records; no two rules of a file have the same."""
        more = f"({self.entry})" if self.entry > 1 else ""
        return f"{self.file}:{self.line}{more}"

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the rule in its file and in the judgements."""
        return self.id, self.text()

    @property
    def kind(self) -> str:
        """The basis, for use in a sentence."""
        basis = self.threshold.basis
        return "relative requirement" if basis == "relative" else basis

    @property
    def weight(self) -> int:
        return self.threshold.select.weight() + _weight(self.threshold.metric)

    def is_for(self, metric: str) -> bool:
        return fits(self.threshold.metric, metric)

    def is_at(self, location: str | None) -> bool:
        if self.threshold.peers and not location:  # the case as a whole has no peers
            return False
        return fits(self.threshold.select.location, location or "")

    def is_at_any(self, locations: Collection[str | None]) -> bool:
        if self.one_location:
            return self.one_location in locations
        return any(map(self.is_at, locations))

    @property
    def one_location(self) -> str:
        """The location, if the rule is of this one only; else ""."""
        location = self.threshold.select.location
        return location if isinstance(location, str) and not is_glob(location) else ""

    @cached_property
    def record(self) -> RequirementRecord:
        return RequirementRecord(id=self.id, basis=self.threshold.basis, text=self.text())

    def text(self) -> str:
        """The bound for people: ``at most 3 x latency_us of netpipe.tcp``."""
        t = self.threshold
        unit = f" {t.unit}" if t.unit else ""
        if t.form == "reference":
            least, most = t.bounds()
            limits = [f"at least {least:.6g}{unit}"] if least is not None else []
            limits += [f"at most {most:.6g}{unit}"] if most is not None else []
            return f"{' and '.join(limits)} (reference {t.reference:.6g}{unit})"
        of = ""
        if t.relative_to:
            of = f" x {t.relative_to.metric}{_of(t.relative_to)}"
        elif t.peers:
            of = " x the median of the other locations"
        elif unit:
            of = unit
        words = (("at least", t.at_least), ("at most", t.at_most))
        return " and ".join(f"{word} {x:.6g}{of}" for word, x in words if x is not None)


@dataclass(frozen=True)
class Requirements:
    """A requirements file in memory. Empty: every metric is without a requirement."""

    rules: tuple[Rule, ...] = ()
    informative: tuple[Informative, ...] = ()
    default_statistic: Statistic = "median"
    file: Path | None = None
    lines: Lines | None = None
    waivers: dict[tuple[str, str], WaiverRecord] = field(default_factory=dict)  # by Rule.key
    accepted: tuple[Accepted, ...] = ()

    def acceptance(self, change: str) -> Accepted | None:
        """Who accepted the change of level of this name."""
        return next(
            (accepted for accepted in reversed(self.accepted) if accepted.change == change), None
        )

    @property
    def contract(self) -> list[Rule]:
        """The clauses, in the order of the file."""
        return [rule for rule in self.rules if rule.threshold.basis == "contract"]

    def applying(self, case: Case, metric: str, location: str | None = None) -> list[Rule]:
        """The rules that apply: all clauses, then the most specific of the others."""
        return self.of(case, metric).applying(location)

    def is_informative(self, case: Case, metric: str, location: str | None = None) -> bool:
        return self.of(case, metric).is_informative(location)

    def of(self, case: Case, metric: str) -> MetricRequirements:
        """What applies to one metric of one case, for many locations."""
        return MetricRequirements(
            [r for r in self.rules if r.threshold.select.matches_case(case) and r.is_for(metric)],
            [
                entry
                for entry in self.informative
                if entry.select.matches_case(case) and fits(entry.metric, metric)
            ],
        )

    def reframe_reference(
        self, case: Case, metric: str, location: str | None = None
    ) -> tuple[float, float | None, float | None, str] | None:
        """``(value, lower, upper, unit)`` for ReFrame, which has one reference per metric.

        Of the absolute bounds the most specific contract or else entry; None if there is none.
        ReFrame's verdict is preliminary: Seatrial applies all rules.
        """
        rules = [
            rule
            for rule in self.applying(case, metric, location)
            if rule.threshold.form in ("reference", "plain")
        ]
        if not rules:
            return None
        rank = {"contract": 1}
        best = max(
            reversed(rules), key=lambda rule: (rank.get(rule.threshold.basis, 0), rule.weight)
        )
        return _reframe(best.threshold)


class MetricRequirements:
    """The rules and the informative entries that select one metric of one case.

    Few of them name locations, so most answers are the same for all locations. A baseline may have
    a rule for each of thousands of locations.
    """

    def __init__(self, rules: Sequence[Rule], informative: Sequence[Informative]):
        self._informative = informative
        self._rules: dict[str, list[tuple[int, Rule]]] = {}  # by one location; "": all others
        for number, rule in enumerate(rules):
            self._rules.setdefault(rule.one_location, []).append((number, rule))
        self._has_locations = any(
            select.location is not None
            for select in [*(r.threshold.select for r in rules), *(i.select for i in informative)]
        )
        self._known: dict[bool, tuple[list[Rule], bool]] = {}  # by whether there is a location

    def applying(self, location: str | None) -> list[Rule]:
        """The rules that apply: all clauses, then the most specific of the others."""
        return self._at(location)[0]

    def matching(self, location: str | None) -> list[Rule]:
        """All rules whose selection matches, in the order of the file."""
        possible = self._rules.get("", [])
        if location:
            possible = sorted([*possible, *self._rules.get(location, [])])
        return [rule for _, rule in possible if rule.is_at(location)]

    def is_informative(self, location: str | None) -> bool:
        return self._at(location)[1]

    def _at(self, location: str | None) -> tuple[list[Rule], bool]:
        if self._has_locations:
            return self._find(location)
        known = self._known.get(bool(location))
        if known is None:
            known = self._known[bool(location)] = self._find(location)
        return known

    def _find(self, location: str | None) -> tuple[list[Rule], bool]:
        matching = self.matching(location)
        clauses = [rule for rule in matching if rule.threshold.basis == "contract"]
        others = [rule for rule in matching if rule.threshold.basis != "contract"]
        # max() returns the first of equals; reversed, that is the last in the file.
        winner = max(reversed(others), key=lambda rule: rule.weight, default=None)
        informative = any(fits(i.select.location, location or "") for i in self._informative)
        return clauses + ([winner] if winner else []), informative


def load_requirements(path: Path | str, content: bytes | None = None) -> Requirements:
    """Read ``requirements.yaml``. Raises InputError with all errors of the file.

    ``content`` is what is in it, if the caller has read it.
    """
    document, lines = yamlfile.load(path, Document, content)
    return build(document, lines, Path(path))


def build(document: Document, lines: Lines, file: Path) -> Requirements:
    default = document.defaults.statistic
    entries = Counter[int]()
    rules = []
    for i, t in enumerate(document.requirements):
        line = lines.of(("requirements", i)) or 0
        entries[line] += 1
        rules.append(Rule(t, file.name, line, t.statistic or default, entries[line]))
    waivers = {
        rule.key: WaiverRecord(
            id=f"{file.name}:{lines.of(('waivers', i)) or 0}",
            by=waiver.by,
            reason=waiver.reason,
            expires=waiver.expires,
        )
        for i, waiver in enumerate(document.waivers)
        for rule in rules
        if waiver.names(rule.threshold)
    }
    return Requirements(
        tuple(rules), tuple(document.informative), default, file, lines, waivers,
        tuple(document.accepted),
    )  # fmt: skip


def fits(patterns: Patterns | None, text: str) -> bool:
    """Whether a text matches a glob pattern or one of several; None matches any text."""
    if patterns is None:
        return True
    several = [patterns] if isinstance(patterns, str) else patterns
    return globs.any_matches(several, text)


def is_glob(patterns: Patterns) -> bool:
    several = [patterns] if isinstance(patterns, str) else patterns
    return any(mark in pattern for pattern in several for mark in "*?[")


def _weight(patterns: Patterns | None) -> int:
    if patterns is None or patterns == "*":
        return 0
    if is_glob(patterns):
        return 1
    return 3 if isinstance(patterns, str) or len(patterns) == 1 else 2


def _of(other: Other) -> str:
    if other.same_run:
        return " of the same run"
    route = "@".join(filter(None, (other.transport or "", other.network)))
    words = [other.check, other.variant, route, other.profile]
    name = ".".join(word for word in words if word)
    if other.nodes:
        name += f".{other.nodes}n" if name else f"{other.nodes} nodes"
    name += f" at {other.location}" if other.location else ""
    return f" of {name}" if name else ""


def _reframe(t: Threshold) -> tuple[float, float | None, float | None, str]:
    unit = t.unit or ""
    if t.reference is not None:
        return t.reference, t.lower, t.upper, unit
    least, most = t.at_least, t.at_most
    if most is None:
        return (least or 0.0, 0.0, None, unit)
    if least is None:
        return (most, None, 0.0, unit)
    if most == 0:
        return (0.0, least, 0.0, unit)
    # ReFrame inverts fractions of a negative reference, and rejects fractions below -1.
    lower = least / most - 1 if most > 0 else 1 - least / most
    return (most, max(-1.0, lower) if most > 0 else lower, 0.0, unit)
