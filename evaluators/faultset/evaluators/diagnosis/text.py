"""Show an analysis on a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from faultset.core.printable import brief, count_text, printable
from faultset.core.times import utc_text
from faultset.evaluators.diagnosis.records import (
    GIVEN,
    WITHOUT_ALARM,
    DetectorAlarm,
    HitRate,
    IncidentAnalysis,
    PanelAnswer,
    Suspect,
)
from faultset.evaluators.diagnosis.times import clock_text

WIDTH = 110
_TWO_LINES = 2 * WIDTH - 20
"""Characters that fit two indented lines."""
_OBSERVATIONS = (4, 3, 3)
"""Largest number of observations shown for the first, second and third suspect."""
_MAX_SHOWN = 3


def analysis_text(analysis: IncidentAnalysis) -> str:
    """Return an analysis as text, at most 40 lines for the default panel."""
    lines = [line for paragraph in _list_paragraphs(analysis) for line in _wrap(printable(paragraph))]
    return "\n".join(lines)


def _list_paragraphs(analysis: IncidentAnalysis) -> Iterator[str]:
    window = analysis.window_ns
    moment = clock_text(analysis.moment_ns, window)
    yield (
        f"{analysis.app}, {utc_text(window[0])} to {clock_text(window[1], window)} UTC; healthy reference until "
        f"{clock_text(analysis.reference_ns[1], window)}"
    )
    yield f"Alarms: {', '.join(_alarm_text(alarm, window) for alarm in analysis.alarms)}"
    yield f"Compared with the reference: everything since {moment} ({_describe_source(analysis)})"
    yield ""
    if not analysis.suspects:
        yield (
            f"No evidence: its strength {analysis.strength:g} (in powers of ten) must exceed {analysis.limit:g} "
            "to name suspects."
        )
    for number, suspect in enumerate(analysis.suspects, start=1):
        yield from _describe_suspect(number, suspect, analysis)
    yield ""
    for answer in analysis.answers:
        yield f"{answer.method}: {_answer_text(answer)}"
    yield f"control {analysis.control.method}: {_answer_text(analysis.control)}"
    if analysis.suspects:
        yield ""
        yield agreement_text(analysis)


def _describe_suspect(number: int, suspect: Suspect, analysis: IncidentAnalysis) -> Iterator[str]:
    count, total = len(suspect.named_first_by), _count_answered(analysis)
    yield f"{number}. {suspect.service}" + (f", first for {count} of {count_text(total, 'method')}" if count else "")
    for observation in suspect.observations[: _OBSERVATIONS[number - 1]]:
        yield f"   - {brief(observation.text, _TWO_LINES)}"
    if not suspect.observations:
        yield "   - nothing unusual in its own telemetry; it is suspected because of its callers"


def agreement_text(analysis: IncidentAnalysis) -> str:
    """Return how many methods agree on the first suspect, and how often that was right on labelled data."""
    if not analysis.suspects:
        return "No evidence against a service."
    rate = analysis.hit_rate
    count, total = analysis.agreeing, _count_answered(analysis)
    agreement = f"Of {count_text(total, 'method')}, {count} put {analysis.suspects[0].service} first."
    return f"{agreement} {'No hit rate was measured for these methods.' if rate is None else _rate_text(rate)}"


def _rate_text(rate: HitRate) -> str:
    if not rate.incidents:
        return "No labelled incident had this agreement."
    return (
        f"On labelled data, the first suspect was right in {rate.right} of "
        f"{count_text(rate.incidents, 'incident')} with this "
        f"agreement ({100 * rate.share:.0f} %), one of the first three in {rate.right_in_three}."
    )


def _count_answered(analysis: IncidentAnalysis) -> int:
    return sum(answer.status == "ok" for answer in analysis.answers)


def _alarm_text(alarm: DetectorAlarm, window: tuple[int, int]) -> str:
    if alarm.status != "ok":
        return f"{alarm.detector} no answer"
    return f"{alarm.detector} {'none' if alarm.time_ns is None else clock_text(alarm.time_ns, window)}"


def _answer_text(answer: PanelAnswer) -> str:
    if answer.status != "ok":
        return f"no answer ({brief(answer.reason)})"
    return ", ".join(list(answer.scores)[:_MAX_SHOWN]) or "no suspect"


def _describe_source(analysis: IncidentAnalysis) -> str:
    sources = {GIVEN: "given", WITHOUT_ALARM: "end of the reference, without an alarm"}
    return sources.get(analysis.moment_from, f"alarm of {analysis.moment_from}")


def _wrap(paragraph: str) -> list[str]:
    indent = "     " if paragraph.startswith("   - ") else "  "
    return textwrap.wrap(paragraph, WIDTH, subsequent_indent=indent, break_long_words=False) or [""]
