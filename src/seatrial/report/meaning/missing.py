"""The part of the chapter "What it means" on what is not known, and what it takes."""

from __future__ import annotations

from seatrial.analysis.trials import Analysis
from seatrial.report.chapter import Section, Sentence
from seatrial.results.wording import some

#: kinds of conclusions that are missing
_WORDS = {
    "response": "comparison of profiles for",
    "response to the network": "comparison of networks for",
    "response to the transport": "comparison of transports for",
    "response to the setting": "comparison of settings for",
    "runs": "complete set of runs of",
    "undisturbed runs": "complete set of undisturbed runs of",
    "usable runs": "complete set of usable runs of",
    "model of message times": "model of the message times of",
    "scaling": "scaling of",
    "groups": "groups of",
    "share of the peak": "share of the peak for",
    "price per GFLOPS": "price or power per GFLOPS for",
}
RESPONSE = ("response", "runs", "undisturbed runs")


def section(analysis: Analysis) -> Section:
    """All that lacks but for responses, which their own section has."""
    sentences = missing(analysis, of_responses=False)
    return Section("What is not known, and what it takes", sentences)


def missing(analysis: Analysis, *, of_responses: bool) -> list[Sentence]:
    """One sentence for each kind and reason, with the subjects that it holds for.

    ``of_responses``: those that lack for a response, or all others.
    """
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for gap in analysis.missing:
        if (gap.what in RESPONSE) == of_responses:
            grouped.setdefault((gap.what, gap.reason, gap.takes), []).append(gap.subject)
    return [
        Sentence(
            f"No {_WORDS[what]} {some(list(dict.fromkeys(subjects)), '; ')}: {reason}.",
            change=takes,
            key="inconclusive",
            word="not known",
        )
        for (what, reason, takes), subjects in grouped.items()
    ]
