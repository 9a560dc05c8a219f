"""Validate what a baseline returned and turn it into plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from faultset.baselines.api.contract import Detection, Diagnosis, Evidence, Ranking, first_alarm
from faultset.evaluators.execution.runners.messages import CheckedAnswer
from faultset.evaluators.results.stored_answers import answer_text

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
