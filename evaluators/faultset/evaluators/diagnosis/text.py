"""Times of incidents, and analyses as text and as lanes of the explorer."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from faultset.core.errors import UsageError
from faultset.core.printable import brief, count_text, printable, quoted
from faultset.core.times import SECOND_NS, utc_text
from faultset.evaluators.diagnosis.records import (
    GIVEN,
    WITHOUT_ALARM,
    DetectorAlarm,
    HitRate,
    IncidentAnalysis,
    PanelAnswer,
    Suspect,
)

if TYPE_CHECKING:
    from faultset.datasets.format.context import EpisodeContext


_DAY_NS = 86_400 * SECOND_NS


def clock_text(time_ns: int, window_ns: tuple[int, int]) -> str:
    """Return a UTC time to the second, with its date if the window is longer than a day."""
    form = "%Y-%m-%d %H:%M:%S" if window_ns[1] - window_ns[0] > _DAY_NS else "%H:%M:%S"
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime(form)


def read_moment(text: str, start_ns: int) -> int:
    """Return a time in UTC nanoseconds.

    `text`: a time in ISO 8601 (UTC if it has no offset), or a time of day such as "14:03" or "14:03:20".
    `start_ns`: start of the telemetry; a time of day means its first occurrence after the start.
    """
    try:
        return _to_nanoseconds(datetime.fromisoformat(text.strip()))
    except ValueError:
        pass
    start = datetime.fromtimestamp(start_ns // SECOND_NS, UTC)
    try:
        moment_ns = _to_nanoseconds(datetime.fromisoformat(f"{start:%Y-%m-%d}T{text.strip()}"))
    except ValueError:
        raise UsageError(
            f"a time must be written like 14:03:20 or {start:%Y-%m-%dT%H:%M:%SZ}, got {quoted(text)}; use UTC"
        ) from None
    return moment_ns if moment_ns >= start_ns else moment_ns + _DAY_NS


def _to_nanoseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    elapsed = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return elapsed // timedelta(microseconds=1) * 1000


def check_moment(moment_ns: int, context: EpisodeContext) -> int:
    """Return a moment; raise UsageError unless telemetry exists before and after it."""
    if context.view_start_ns < moment_ns < context.view_end_ns:
        return moment_ns
    raise UsageError(
        f"the time of the incident must be inside the telemetry, from {utc_text(context.view_start_ns)} to "
        f"{utc_text(context.view_end_ns)} UTC, but is {utc_text(moment_ns)}; choose another time"
    )


WIDTH = 110
_TWO_LINE_LENGTH = 2 * WIDTH - 20
"""Characters that fit two indented lines."""
_MAX_OBSERVATIONS = (4, 3, 3)
"""Maximum number of observations shown for the first, second and third suspect."""
_MAX_NAMES = 3


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
    for observation in suspect.observations[: _MAX_OBSERVATIONS[number - 1]]:
        yield f"   - {brief(observation.text, _TWO_LINE_LENGTH)}"
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
    return ", ".join(list(answer.scores)[:_MAX_NAMES]) or "no suspect"


def _describe_source(analysis: IncidentAnalysis) -> str:
    sources = {GIVEN: "given", WITHOUT_ALARM: "end of the reference, without an alarm"}
    return sources.get(analysis.moment_from, f"alarm of {analysis.moment_from}")


def _wrap(paragraph: str) -> list[str]:
    indent = "     " if paragraph.startswith("   - ") else "  "
    return textwrap.wrap(paragraph, WIDTH, subsequent_indent=indent, break_long_words=False) or [""]


_MAX_SERVICES = 3


def answer_lanes(analysis: IncidentAnalysis) -> list[dict[str, Any]]:
    """Return the answers of all methods of an analysis in the format of `faultset.datasets.explorer.content`."""
    protocol = "given" if analysis.moment_from == GIVEN else "detected"
    lanes = [
        _build_lane("detection", alarm.detector, "detector", "detected", alarm.status) | {"alarm_ns": alarm.time_ns}
        for alarm in analysis.alarms
    ]
    for answer in (*analysis.answers, analysis.control):
        lane = _build_lane("localization", answer.method, answer.kind, protocol, answer.status)
        lanes.append(lane | {"services": list(answer.scores)[:_MAX_SERVICES]})
    return lanes


def _build_lane(task: str, method: str, kind: str, protocol: str, status: str) -> dict[str, Any]:
    return {
        "task": task,
        "method": method,
        "kind": kind,
        "protocol": protocol,
        "status": status,
        "alarm_ns": None,
        "services": [],
        "level": None,
        "type": None,
    }
