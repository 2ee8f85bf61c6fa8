"""The findings of a trial: the sentences to read first, one for each cause.

Clauses of the contract that were not tested come first. Figures that break the same requirement
are one finding with their number and range; the sentence on each is in its judgement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date

from seatrial.base.errors import unexpected
from seatrial.results import profile_notes, wire
from seatrial.results.contract import is_in_force, margin, without_waiver
from seatrial.results.figures import collect, slow_alone, valid_runs
from seatrial.results.judge import out_of_bounds
from seatrial.results.locations import ARROW, End, Locations, direction, natural
from seatrial.results.record import Case, Clause, Judgement, Run, Trial
from seatrial.results.requirements import Requirements, Rule
from seatrial.results.wording import number, plural, some

_BASES = ("contract", "baseline", "relative")
Group = list[Judgement]


def findings(
    trial: Trial,
    runs: Sequence[Run],
    judgements: Sequence[Judgement],
    errors: Mapping[Case, str],
    contract: Sequence[Clause],
    today: date,
) -> list[str]:
    """Findings on clauses, then on common nodes, failures, errors, doubts, and notes."""
    waived = {(clause.id, clause.required) for clause in contract if clause.status == "waived"}
    holes = {(clause.id, clause.required) for clause in contract if clause.hole}
    by_verdict: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        applied = judgement.requirement
        clause = (applied.id, applied.text) if applied else None
        if clause in waived and judgement.verdict in ("fail", "inconclusive"):
            continue  # the finding on the waiver has it
        if clause in holes and judgement.verdict == "error":
            continue  # the finding on the clause has it
        by_verdict[judgement.verdict].append(judgement)
    of_cases = set(errors.values())
    doubts = [
        j
        for verdict in ("error", "inconclusive")
        for j in by_verdict[verdict]
        if j.explanation not in of_cases and (j.metric or not j.location)
    ]
    parts: list[Callable[[], Iterable[str]]] = [
        lambda: _not_tested(contract),
        lambda: _expired(contract, today),
        lambda: _slow_links(by_verdict["fail"], judgements, runs),
        lambda: _many_slow_nodes(by_verdict["inconclusive"], runs),
        lambda: map(_one_or_many, _ordered(_groups(by_verdict["fail"]))),
        lambda: _case_errors(errors),
        lambda: _parts(runs),
        lambda: _unmeasured(by_verdict["error"]),
        lambda: wire.findings(runs),
        lambda: map(_one_or_many, _groups(doubts)),
        lambda: _no_baselines(trial),
        lambda: _missing(by_verdict["missing"]),
        lambda: [] if judgements else [f"{trial.trial}: nothing was judged"],
        lambda: _waived(contract),
        lambda: _not_selected(trial, contract),
        lambda: _not_in_stack(contract),
        lambda: [f"note: {sentence}" for sentence in trial.unmeasured],
        lambda: _unconfirmed(trial, runs, by_verdict["pass"]),
        lambda: _load(runs),
        lambda: profile_notes.notes(trial, runs),
    ]
    sentences: list[str] = []
    for part in parts:
        try:
            sentences += part()
        except Exception as error:  # of a hostile record: it must not hide the other findings
            sentences.append(f"some findings are missing: {unexpected(error)}")
    return list(dict.fromkeys(sentences))


# --- the contract ---------------------------------------------------------------------------


def _name(clause: Clause) -> str:
    return f"{clause.source} ({clause.id})"


def _not_tested(contract: Iterable[Clause]) -> list[str]:
    """One for each reason. All the clauses are named."""
    by_reason: dict[str, list[Clause]] = defaultdict(list)
    for clause in contract:
        if clause.hole:
            by_reason[clause.reason].append(clause)
    sentences = []
    for reason, members in by_reason.items():
        if len(members) == 1:
            (clause,) = members
            sentences.append(
                f"a clause of the contract was not tested: {_name(clause)}, {clause.metric} "
                f"{clause.required}, {clause.selects}: {reason}"
            )
        else:
            names = ", ".join(map(_name, members))
            sentences.append(
                f"{len(members)} clauses of the contract were not tested: {reason}: {names}"
            )
    return sentences


def _expired(contract: Iterable[Clause], today: date) -> list[str]:
    return [
        f"the waiver ({waiver.id}) of {_name(clause)} by {waiver.by} expired on {waiver.expires}: "
        f"the clause counts as {clause.status}"
        for clause in contract
        if (waiver := clause.waiver)
        if clause.status in ("not met", "inconclusive") and not is_in_force(waiver, today)
    ]


def _waived(contract: Iterable[Clause]) -> list[str]:
    return [
        f"{_name(clause)} is waived by {clause.waiver.by} until {clause.waiver.expires} "
        f"({clause.waiver.reason}); without the waiver it is {without_waiver(clause)}: "
        f"{clause.reason}"
        for clause in contract
        if clause.status == "waived" and clause.waiver
    ]


def _not_selected(trial: Trial, contract: Iterable[Clause]) -> list[str]:
    left = [clause for clause in contract if clause.outside]
    left = [clause for clause in left if not clause.hole]
    if not left:
        return []
    clauses = "clause was" if len(left) == 1 else "clauses were"
    why = f"because of the trial's selection ({selection_text(trial)})"
    names = ", ".join(map(_name, left))
    return [f"note: {len(left)} {clauses} not tested, or not in all cases, {why}: {names}"]


def _not_in_stack(contract: Iterable[Clause]) -> list[str]:
    return [
        f"note: {_name(clause)} is met in part: {clause.reason}"
        for clause in contract
        if clause.lacking and clause.status == "met in part"
    ]


def selection_text(trial: Trial) -> str:
    """``--check netpipe --profile default``, as the user gave it."""
    return " ".join(
        f"{option} {pattern}" for option, values in trial.selection.items() for pattern in values
    )


def unmatched(
    requirements: Requirements, cases: Sequence[Case], lacking: Sequence[Case]
) -> list[str]:
    """Notes on the requirements, other than contracts, that select none of the cases.

    ``cases`` are those of the trial and those that its selection leaves out; ``lacking`` those of
    the site for which the stack has no program.
    """
    left: dict[str, list[Rule]] = {}  # by why they were not judged
    for rule in requirements.rules:
        select = rule.threshold.select
        if rule.threshold.basis != "contract" and not any(map(select.matches_case, cases)):
            in_stack = not any(map(select.matches_case, lacking))
            why = (
                "no case of this trial matches"
                if in_stack
                else "the stack has no program for its cases"
            )
            left.setdefault(why, []).append(rule)
    notes = []
    for why, rules in left.items():
        what = f"{len(rules)} requirements ({some([rule.id for rule in rules])}) were"
        if len(rules) == 1:
            (rule,) = rules
            what = f"the {rule.kind} {rule.id} ({rule.threshold.metric}: {rule.text()}) was"
        notes.append(f"note: {what} not judged: {why}")
    return notes


# --- judgements of one cause ----------------------------------------------------------------


def _groups(judgements: Iterable[Judgement]) -> list[Group]:
    """By verdict, requirement and metric, in the order in which they first occur."""
    groups: dict[Hashable, Group] = {}
    for j in judgements:
        applied = (j.requirement.id, j.requirement.text) if j.requirement else None
        key = (j.verdict, applied, j.metric if applied else j.explanation)
        groups.setdefault(key, []).append(j)
    return list(groups.values())


def _ordered(groups: list[Group]) -> list[Group]:
    """Contracts before baselines before relative requirements, then the worst violation first."""
    return sorted(groups, key=lambda group: (_basis(group[0]), min(map(_distance, group))))


def _basis(j: Judgement) -> int:
    return _BASES.index(j.requirement.basis if j.requirement else "relative")


def _distance(j: Judgement) -> float:
    distance = margin(j)
    return 0.0 if distance is None else distance


def _one_or_many(group: Group) -> str:
    first = min(group, key=_distance)
    if len(group) == 1:
        return first.explanation
    verb = {"fail": "break", "error": "cannot be judged by"}.get(
        first.verdict, "are inconclusive by"
    )
    values = [j.value for j in group if j.value is not None]
    span = f" from {number(min(values))} to {number(max(values))} {first.unit}" if values else ""
    return (
        f"{len(group)} figures {verb} {_source(first)}: {first.metric}{span.rstrip()} "
        f"{_where(group)}; the worst: {first.explanation}"
    )


def _source(j: Judgement) -> str:
    if j.requirement is None:
        return "no requirement"
    kind = "relative requirement" if j.requirement.basis == "relative" else j.requirement.basis
    return f"the {kind} ({j.requirement.id}: {j.requirement.text})"


def _where(group: Group) -> str:
    """``of links.tcp.default.4n on n1-n3, n2-n3``, or ``in 4 cases (...)``."""
    cases = list(dict.fromkeys(j.case.id for j in group))
    if len(cases) > 1:
        return f"in {len(cases)} cases ({some(cases)})"
    locations = list(dict.fromkeys(j.location for j in group if j.location))
    return f"of {cases[0]}" + (f" on {some(locations)}" if locations else "")


def _case_errors(errors: Mapping[Case, str]) -> list[str]:
    """One for each reason: the sentences differ in the name of the case only."""
    by_reason: dict[str, list[Case]] = defaultdict(list)
    for case, sentence in errors.items():
        by_reason[sentence.removeprefix(case.id)].append(case)
    return [
        errors[cases[0]]
        if len(cases) == 1
        else f"{len(cases)} cases ({some([case.id for case in cases])}), each{reason}"
        for reason, cases in by_reason.items()
    ]


def _no_baselines(trial: Trial) -> list[str]:
    why = trial.no_baselines
    text = "the site's baselines and relations between cases do not apply to this trial"
    return [f"{text}: {why}"] if why else []


def _missing(judgements: Iterable[Judgement]) -> list[str]:
    metrics: dict[Case, dict[str, None]] = defaultdict(dict)
    for j in judgements:
        metrics[j.case][j.metric] = None
    cases: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for case, names in metrics.items():
        cases[tuple(names)].append(case.id)
    return [
        f"{ids[0] if len(ids) == 1 else f'{len(ids)} cases ({some(ids)})'}: "
        f"no requirement applies to {', '.join(names)}"
        for names, ids in cases.items()
    ]


def _unconfirmed(trial: Trial, runs: Sequence[Run], passed: Iterable[Judgement]) -> list[str]:
    """Notes on figures that broke a bound at first, and passed with the reruns of their case."""
    rerun = {run.case for run in runs if trial.is_rerun(run)}
    broken_once = [(j, set(out_of_bounds(j))) for j in passed if j.case in rerun]
    broken_once = [(j, beyond) for j, beyond in broken_once if beyond]
    # The judgement has the samples, but not the run of each.
    of_cases = [run for run in runs if run.case in {j.case for j, _ in broken_once}]
    figures, valid = collect(trial, of_cases), valid_runs(of_cases)
    notes: dict[Hashable, list[str]] = defaultdict(list)
    for j, beyond in broken_once:
        numbers = [n for n, _ in figures[j.case][j.metric][j.location].samples]
        reruns = {n for n in numbers if trial.is_rerun(valid[n])}
        broken = [(n, x) for n, x in zip(numbers, j.samples, strict=True) if x in beyond]
        first = [x for n, x in broken if n not in reruns]
        if not first or not reruns:
            continue
        within = reruns - {n for n, _ in broken}
        values = ", ".join(f"{number(x)} {j.unit}".strip() for x in first)
        notes[j.requirement.id if j.requirement else "", j.metric].append(
            f"({values} at first, within it in {len(within)} of {plural(len(reruns), 'rerun')}): "
            f"{j.explanation}"
        )
    return [
        f"note: a figure was outside a bound at first and not in most reruns {texts[0]}"
        if len(texts) == 1
        else f"note: {len(texts)} figures were outside a bound at first and not in most reruns; "
        f"one of them {texts[0]}"
        for texts in notes.values()
    ]


def _unmeasured(errors: Iterable[Judgement]) -> list[str]:
    """Nodes and links without figures: one sentence for each node, one for all links of a case."""
    nodes: list[str] = []
    links: dict[Case, list[Judgement]] = defaultdict(list)
    for j in errors:
        if j.location and not j.metric:
            if "-" in j.location:
                links[j.case].append(j)
            else:
                nodes.append(f"{j.explanation}: none of its links counts as tested")
    return nodes + [
        of_case[0].explanation
        if len(of_case) == 1
        else f"{len(of_case)} links of {case.id} were not measured "
        f"({some([j.location or '' for j in of_case])}); the first: {of_case[0].explanation}"
        for case, of_case in links.items()
    ]


# --- links: which node, or which link in which direction ---------------------------------------

_SIDES = {"": "", "sends": " in what it sends", "receives": " in what it receives"}


def _slow_links(
    fails: Sequence[Judgement], judgements: Sequence[Judgement], runs: Sequence[Run]
) -> list[str]:
    """For each metric with failing links: the nodes that explain them, else one-way links.

    A node explains its failing links if most of its links fail, if all failing links have it in
    common, or if the fit over all links blames it and it is slow alone, too.
    """
    locations, by_fit = Locations(runs), slow_alone(runs)
    links: dict[tuple[Case, str], dict[str, None]] = defaultdict(dict)
    for j in fails:
        if j.location and locations.ends(j.location):
            links[j.case, j.metric][j.location] = None
    judged: dict[tuple[Case, str], dict[str, None]] = defaultdict(dict)
    for j in judgements if links else ():
        if j.location and (j.case, j.metric) in links and locations.ends(j.location):
            judged[j.case, j.metric][j.location] = None
    sentences = []
    for key, failing in links.items():
        nodes, left = _blamed(list(failing), list(judged[key]), set(by_fit.get(key, ())), locations)
        sentences += [_slow_node(end, of_node, list(failing), judged[key], key, locations)
                      for end, of_node in nodes]  # fmt: skip
        sentences += _one_way(left, judged[key], key, locations)
    return sentences


def _many_slow_nodes(doubts: Iterable[Judgement], runs: Sequence[Run]) -> list[str]:
    """Where links are as slow as most of their peers: all nodes that are slow alone, too.

    Of such nodes the links between two of them may break a bound, and not the other links.
    """
    locations, by_fit = Locations(runs), slow_alone(runs)
    nodes: dict[Case, dict[str, None]] = defaultdict(dict)
    for j in doubts:
        for end in locations.sides(j.location or ""):
            if end in by_fit.get((j.case, j.metric), ()):
                nodes[j.case][end[1]] = None
    return [
        f"{len(names)} nodes of {case.id} are slow in their rounds and alone, and some of their "
        f"links are no worse than most others: {', '.join(sorted(names, key=natural))}: check "
        "each of them, its cable and its switch port"
        for case, names in nodes.items()
        if len(names) > 1
    ]


def _parts(runs: Sequence[Run]) -> list[str]:
    """Fabrics in parts: every link within a part was measured, and none between two parts.

    Nodes without a measured link are no part.
    """
    locations, sentences = Locations(runs), []
    for run in valid_runs(runs):
        if not run.unmeasured:
            continue
        links = {
            frozenset(ends)
            for at in {m.location for m in run.metrics if m.location}
            if (ends := locations.ends(at))
        }
        parts: list[set[str]] = []
        for link in links:
            joined = [part for part in parts if part & link]
            parts = [part for part in parts if not part & link]
            parts.append(set(link).union(*joined))
        whole = sum(len(part) * (len(part) - 1) // 2 for part in parts)
        if len(parts) > 1 and len(links) == whole:
            names = sorted((sorted(part, key=natural) for part in parts), key=len)
            sentences.append(
                f"the network under {run.case.id} is in {len(parts)} parts: no link between them "
                f"works, and all within each do: {'; '.join(map(some, names))}: check what joins "
                "their switches"
            )
    return sentences


def _blamed(
    failing: list[str], judged: list[str], by_fit: set[End], locations: Locations
) -> tuple[list[tuple[End, list[str]]], list[str]]:
    """The nodes that explain failing links, each with its links, and the links that are left.

    The node with most unexplained links comes first.
    """
    of_end: dict[End, set[str]] = defaultdict(set)
    for location in judged:
        for end in locations.sides(location):
            of_end[end].add(location)
    left, nodes = list(failing), []
    while len(left) > 1:
        counts = Counter(end for location in left for end in locations.sides(location))
        (end, count), *others = counts.most_common(2)
        common = count == len(left) and (not others or others[0][1] < count)
        most = 2 * sum(at in of_end[end] for at in failing) > len(of_end[end])
        if count < 2 or not (common or most or end in by_fit):
            break
        nodes.append((end, [at for at in failing if at in of_end[end]]))
        left = [at for at in left if at not in of_end[end]]
    return nodes, left


def _slow_node(
    end: End,
    of_node: list[str],
    failing: list[str],
    judged: Iterable[str],
    key: tuple[Case, str],
    locations: Locations,
) -> str:
    (side, node), (case, metric) = end, key
    all_own = sum(end in locations.sides(at) for at in judged)
    count = (
        f"all {len(of_node)}"
        if len(of_node) == len(failing)
        else f"{len(of_node)} of {len(failing)}"
    )
    return (
        f"node {node} is common to {count} failing links{_SIDES[side]} of {case.id}: "
        f"{metric} ({some(of_node)}; {len(of_node)} of the {all_own} links of {node}): check this "
        "node, "
        f"its cable and its switch port first"
    )


def _one_way(
    left: list[str], judged: Iterable[str], key: tuple[Case, str], locations: Locations
) -> list[str]:
    """Links that fail in one direction and not in the other."""
    known, slow = set(judged), []
    for location in left:
        if ARROW in location:
            sender, receiver = locations.ends(location)  # type: ignore[misc]
            back = direction(receiver, sender)
            if back in known and back not in left:
                slow.append(f"from {sender} to {receiver}")
    if not slow:
        return []
    what = "a link" if len(slow) == 1 else f"{len(slow)} links"
    verb = "is" if len(slow) == 1 else "are"
    return [f"{what} of {key[0].id} {verb} slow in one direction only ({key[1]}): {some(slow)}"]


def _load(runs: Sequence[Run]) -> list[str]:
    """Notes on links that were slow in their round and as good as others alone."""
    names: dict[tuple[Case, str], dict[str, None]] = defaultdict(dict)
    for run in runs:
        for suspect in run.suspects:
            if suspect.conclusion == "load":
                names[run.case, suspect.metric][suspect.location] = None
    return [
        f"note: {metric} of {case.id}: {plural(len(locations), 'location')} "
        f"({some(list(locations))}) slow in "
        "a round and as fast as others alone: load of the rounds, no fault"
        for (case, metric), locations in names.items()
    ]
