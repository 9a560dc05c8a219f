"""Answers of methods: checked in the method's process, sent as JSON, and checked again on arrival.

Replies come from untrusted code, so they are plain data: a JSON header, and a fitted model as bytes that only the same
method unpickles. Anything else in a reply is an error of the method.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import from_json

from faultset.baselines.contract import Detection, Diagnosis, Evidence, Ranking, first_alarm
from faultset.core.documents import STRICT, validation_sentence
from faultset.core.printable import printable
from faultset.evaluators.execution.runners.messages import Action, CheckedAnswer, RunnerOutcome
from faultset.evaluators.results.rows import ResultRow, StoredAnswer, answer_text
from faultset.evaluators.results.truth import Truth

MAX_EVIDENCE = 10
MAX_METRICS = 100
MAX_LEFT_OUT = 20


class InvalidAnswer(Exception):
    """The returned answer cannot be scored; the message says why."""


class CannotAnswer(Exception):
    """The episode lacks the telemetry that the baseline needs; the message says which."""


def check_detection(answer: object, view_start_ns: int, view_end_ns: int) -> CheckedAnswer:
    """Check a detector's answer and turn it into plain data.

    `consecutive` is the number of consecutive flags after which this detector raises an alarm. Later alarms of the
    episode are derived with the same rule. It is null if no run of flags explains the alarm.
    """
    if not isinstance(answer, Detection):
        raise InvalidAnswer(f"a detector must return a Detection, got {type(answer).__name__}")
    times = np.asarray(answer.times_ns)
    scores = np.asarray(answer.scores, dtype=float)
    flags = np.asarray(answer.flags, dtype=bool)
    if times.ndim != 1 or not len(times) == len(scores) == len(flags):
        raise InvalidAnswer("times, scores and flags must be one-dimensional and of equal length")
    if len(times) and not np.issubdtype(times.dtype, np.integer):
        raise InvalidAnswer(f"times must be integer nanoseconds, got {times.dtype}")
    if len(times) > 1 and not (np.diff(times) > 0).all():
        raise InvalidAnswer("times must increase")
    if np.isnan(scores).any():
        raise InvalidAnswer(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN")
    if len(times) and not (view_start_ns <= times[0] and times[-1] <= view_end_ns):
        raise InvalidAnswer("times must be within the episode's view")
    alarm = answer.alarm_ns
    if alarm is not None:
        if isinstance(alarm, bool) or not isinstance(alarm, int | np.integer):
            raise InvalidAnswer(f"the alarm must be integer nanoseconds or None, got {type(alarm).__name__}")
        if not view_start_ns <= alarm <= view_end_ns:
            raise InvalidAnswer("the alarm must be within the episode's view")
    threshold = float(answer.threshold)
    content: dict[str, object] = {
        "times_ns": times.tolist(),
        "scores": [_round_value(s) for s in scores.tolist()],
        "flags": "".join("1" if flag else "0" for flag in flags.tolist()),
        "threshold": _round_value(threshold),
        "consecutive": _choose_consecutive(answer, times, flags),
        "evidence": _plain_evidence(answer.evidence),
    }
    return CheckedAnswer(alarm_ns=None if alarm is None else int(alarm), text=answer_text(content))


def check_ranking(answer: object, candidates: Sequence[str]) -> CheckedAnswer:
    """Check a localizer's answer and turn it into plain data.

    Names that are not candidates are listed under `unknown`. Metrics and pods are stored if the method names any.
    """
    if not isinstance(answer, Ranking):
        raise InvalidAnswer(f"a localizer must return a Ranking, got {type(answer).__name__}")
    if not isinstance(answer.scores, Mapping):
        raise InvalidAnswer(f"scores must map services to numbers, got {type(answer.scores).__name__}")
    scores: dict[str, float] = {}
    unknown: list[str] = []
    for name, value in answer.scores.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidAnswer(f"the score of {name!r} is not a number: {value!r}") from None
        if math.isnan(number):
            raise InvalidAnswer(f"the score of {name!r} is NaN")
        if name in candidates:
            scores[str(name)] = max(-1e300, min(1e300, number))
        else:
            unknown.append(_truncate(name, 200))
    if answer.scores and not scores:
        raise InvalidAnswer(f"none of the named services exists: {', '.join(sorted(unknown)[:3])}")
    ordered = dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
    content = {
        "unknown": sorted(unknown),
        "confidence": _round_value(float(answer.confidence)),
        "evidence": _plain_evidence(answer.evidence),
    }
    metrics = _plain_metrics(answer.metrics)
    if metrics:
        content |= {"metrics": metrics[:MAX_METRICS], "metrics_named": len(metrics)}
    pods = _plain_pods(answer.pods)
    if pods:
        content["pods"] = pods
    return CheckedAnswer(ranking=ordered, text=answer_text(content))


def check_diagnosis(answer: object) -> CheckedAnswer:
    """Check a diagnoser's answer and turn it into plain data."""
    if not isinstance(answer, Diagnosis):
        raise InvalidAnswer(f"a diagnoser must return a Diagnosis, got {type(answer).__name__}")
    for label in (answer.system_level, answer.fault_type):
        if label is not None and not isinstance(label, str):
            raise InvalidAnswer(f"system level and fault type must be text or None, got {label!r}")
    content = {
        "system_level": answer.system_level,
        "fault_type": answer.fault_type,
        "confidence": _round_value(float(answer.confidence)),
        "evidence": _plain_evidence(answer.evidence),
    }
    return CheckedAnswer(text=answer_text(content))


def add_skipped_series(answer: CheckedAnswer, series: Collection[tuple[str, str]]) -> CheckedAnswer:
    """Add to an answer the number of series that the method skipped, and the names of the first ones."""
    if not series:
        return answer
    names = [(_truncate(service, 200), _truncate(metric, 200)) for service, metric in sorted(series)[:MAX_LEFT_OUT]]
    return replace(
        answer, text=answer_text({**json.loads(answer.text), "left_out": names, "left_out_count": len(series)})
    )


def _plain_metrics(metrics: Mapping[tuple[str, str], float]) -> list[tuple[str, str, float]]:
    """Return [service, metric, score], best first."""
    try:
        rows = [
            (_truncate(s, 200), _truncate(m, 200), _to_number(f"metric {m!r} of {s!r}", value))
            for (s, m), value in metrics.items()
        ]
    except (TypeError, ValueError, AttributeError):
        raise InvalidAnswer("metrics must map (service, metric) to numbers") from None
    return sorted(rows, key=lambda item: (-item[2], item[0], item[1]))


def _plain_pods(pods: Mapping[str, float]) -> dict[str, float]:
    """Return scores of pods, best first."""
    try:
        scores = [(_truncate(pod, 200), _to_number(f"pod {pod!r}", value)) for pod, value in pods.items()]
    except (TypeError, ValueError, AttributeError):
        raise InvalidAnswer("pods must map names to numbers") from None
    return dict(sorted(scores, key=lambda item: (-item[1], item[0])))


def _to_number(subject: str, value: Any) -> float:
    number = float(value)
    if math.isnan(number):
        raise InvalidAnswer(f"the score of {subject} is NaN")
    return _round_value(number)


def _choose_consecutive(answer: Detection, times: np.ndarray, flags: np.ndarray) -> int | None:
    """Return the value that the detector declares if it explains the alarm; otherwise infer it."""
    if first_alarm(times, flags, answer.consecutive) == answer.alarm_ns:
        return int(answer.consecutive)
    return infer_consecutive(times.tolist(), flags.tolist(), answer.alarm_ns)


def infer_consecutive(times_ns: Sequence[int], flags: Sequence[bool], alarm_ns: int | None) -> int | None:
    """Return the number of consecutive flags that raised the alarm; None if no run of flags explains it.

    Without an alarm, return the longest run plus one, the smallest value that fits.
    """
    run, longest = 0, 0
    reached_ns: dict[int, int] = {}
    for time_ns, flag in zip(times_ns, flags, strict=True):
        run = run + 1 if flag else 0
        if run > longest:
            longest = run
            reached_ns[run] = time_ns
    if alarm_ns is None:
        return longest + 1
    return next((length for length, time_ns in reached_ns.items() if time_ns == alarm_ns), None)


def _plain_evidence(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [
        {
            "service": _truncate(item.service, 200),
            "subject": _truncate(item.subject, 200),
            "score": _round_value(float(item.score)),
            "detail": _truncate(item.detail, 300),
        }
        for item in list(evidence)[:MAX_EVIDENCE]
    ]


def _truncate(value: object, limit: int) -> str:
    """Truncate a text, and replace characters that UTF-8 cannot encode."""
    return str(value)[:limit].encode("utf-8", "replace").decode()


def _round_value(value: float) -> float:
    """Round to six significant digits; NaN becomes 0 and infinities become the largest value allowed."""
    if math.isnan(value):
        return 0.0
    return float(f"{max(-1e300, min(1e300, float(value))):.6g}")


HEADER_BYTES = 64 << 20
MODEL_BYTES = 1 << 30
_Time = Annotated[int, Field(ge=0, lt=2**63)]
_Text = Annotated[str, StringConstraints(max_length=1 << 16)]


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    __pydantic_config__ = STRICT

    service: _Text
    subject: _Text
    score: float
    detail: _Text


@dataclass(frozen=True, kw_only=True)
class _AnswerText:
    __pydantic_config__ = STRICT

    left_out: list[tuple[_Text, _Text]] = field(default_factory=list)
    """(service, metric) of the first series that the method ignored; see `add_skipped_series`."""
    left_out_count: int = 0


@dataclass(frozen=True, kw_only=True)
class _DetectionText(_AnswerText):
    """Schema of the text of a detector's answer; see `check_detection`."""

    times_ns: list[_Time] | None = None
    times_even: tuple[_Time, Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]] | None = None
    scores: list[float]
    flags: Annotated[str, StringConstraints(pattern="^[01]*$")]
    threshold: float
    consecutive: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None
    evidence: list[_Evidence]

    def __post_init__(self) -> None:
        times = self.times_even[2] if self.times_even else len(self.times_ns or ())
        if not times == len(self.scores) == len(self.flags):
            raise ValueError("should have as many times as scores and flags")
        if self.times_even and self.times_even[0] + self.times_even[1] * self.times_even[2] >= 2**63:
            raise ValueError("should have times below 2^63 nanoseconds")


@dataclass(frozen=True, kw_only=True)
class _RankingText(_AnswerText):
    """Schema of the text of a localizer's answer; see `check_ranking`."""

    unknown: list[_Text]
    confidence: float
    evidence: list[_Evidence]
    metrics: list[tuple[_Text, _Text, float]] = field(default_factory=list)
    metrics_named: int = 0
    pods: dict[_Text, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _DiagnosisText(_AnswerText):
    """Schema of the text of a diagnoser's answer; see `check_diagnosis`."""

    system_level: _Text | None
    fault_type: _Text | None
    confidence: float
    evidence: list[_Evidence]


_TEXTS: dict[Action, TypeAdapter[Any]] = {
    "detect": TypeAdapter(_DetectionText),
    "localize": TypeAdapter(_RankingText),
    "diagnose": TypeAdapter(_DiagnosisText),
}

_RANKING = TypeAdapter(dict[_Text, Annotated[float, Field(allow_inf_nan=False, strict=True)]])


class UnreadableReply(Exception):
    """The bytes are not a valid reply; the message says why."""


def reply_header(number: int, reply: RunnerOutcome, modules: Iterable[str] = ()) -> bytes:
    """Return everything except the model as JSON.

    `modules`: modules that were imported while the request was served.
    """
    answer = reply.answer
    content = {
        "number": number,
        "status": reply.status,
        "reason": printable(reply.reason),
        "seconds": reply.seconds,
        "cpu_seconds": reply.cpu_seconds,
        "peak_bytes": reply.peak_bytes,
        "answer": answer and {"text": answer.text, "alarm_ns": answer.alarm_ns, "ranking": dict(answer.ranking)},
        "modules": list(modules),
    }
    return json.dumps(content).encode()


def imported_modules(header: bytes) -> list[str]:
    """Return the module names in the header of a reply; call this only for replies from faultset's own code."""
    return [str(name) for name in json.loads(header)["modules"]]


def read_reply(header: bytes, model: bytes, number: int, action: Action | None) -> RunnerOutcome:
    """Parse and validate a reply.

    `number`: number of the request.
    `action`: the requested action; None for a fit.
    """
    try:
        content = from_json(header, allow_inf_nan=False)
        if content["number"] != number:
            raise ValueError(f"it is numbered {content['number']!r}")
        status, answer = content["status"], content["answer"]
        if status not in ("ok", "invalid", "error", "cannot"):
            raise ValueError("its status is unknown")
        if (answer is not None) != (status == "ok" and action is not None):
            raise ValueError("its answer does not fit the request")
        return RunnerOutcome(
            status=status,
            answer=None if answer is None or action is None else _read_answer(answer, action),
            model=model,
            reason=printable(str(content["reason"])[:1000]),
            seconds=_read_amount(content["seconds"]),
            cpu_seconds=_read_amount(content["cpu_seconds"]),
            peak_bytes=round(_read_amount(content["peak_bytes"])),
        )
    except ValidationError as error:
        raise UnreadableReply(validation_sentence(error)[:100]) from None
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError) as error:
        raise UnreadableReply(printable(str(error))[:100] or type(error).__name__) from None


def _read_answer(content: Any, action: Action) -> CheckedAnswer:
    text, alarm_ns = content["text"], content["alarm_ns"]
    _TEXTS[action].validate_json(text)
    if alarm_ns is not None and (type(alarm_ns) is not int or not 0 <= alarm_ns < 2**63):
        raise ValueError("its alarm is not a time")
    return CheckedAnswer(text=text, alarm_ns=alarm_ns, ranking=_RANKING.validate_python(content["ranking"]))


def _read_amount(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 2**53:
        raise ValueError("an amount is out of range")
    return number


def fill_row(row: ResultRow, outcome: RunnerOutcome) -> ResultRow:
    """Return the row with the outcome of its request."""
    answer, status, reason = outcome.answer, outcome.status, outcome.reason
    if answer is not None and (problem := _explain_impossible(answer, row.truth)):
        answer, status, reason = None, "error", f"its process sent an invalid reply ({problem})"
    return replace(
        row,
        status=status,
        reason=reason,
        seconds=round(outcome.seconds, 6),
        cpu_seconds=None if outcome.cpu_seconds is None else round(outcome.cpu_seconds, 6),
        peak_bytes=outcome.peak_bytes,
        alarm_ns=None if answer is None else answer.alarm_ns,
        ranking={} if answer is None else answer.ranking,
        answer=StoredAnswer("{}" if answer is None else answer.text),
    )


def _explain_impossible(answer: CheckedAnswer, truth: Truth) -> str:
    """Return why an answer cannot belong to the episode; empty if it can.

    The method's process has checked this before, but a hostile method could have bypassed the check.
    """
    if not answer.ranking.keys() <= {*truth.candidates}:
        return "it ranks services that are not candidates"
    if answer.alarm_ns is not None and not truth.view_start_ns <= answer.alarm_ns <= truth.view_end_ns:
        return "its alarm is outside the view"
    return ""
