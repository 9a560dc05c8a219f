"""Checks of what a baseline returned, which make plain data of it or say why it cannot be scored."""

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

EVIDENCE_KEPT = 10
METRICS_KEPT = 100
LEFT_OUT_KEPT = 20


class InvalidAnswer(Exception):
    """What a baseline returned cannot be scored; the text says why."""


class CannotAnswer(Exception):
    """A baseline had nothing to look at or to compare with, and gave no answer; the text says what is missing."""


def check_detection(answer: object, view_start_ns: int, view_end_ns: int) -> CheckedAnswer:
    """Check a detector's answer and make it plain data.

    `consecutive` is the length of a run of flags at which this detector raises an alarm, so that later alarms of
    the same episode can be found by the same rule; it is null for an alarm that no run of flags explains.
    """
    if not isinstance(answer, Detection):
        raise InvalidAnswer(f"a detector must return a Detection, got {type(answer).__name__}")
    times = np.asarray(answer.times_ns)
    scores = np.asarray(answer.scores, dtype=float)
    flags = np.asarray(answer.flags, dtype=bool)
    if times.ndim != 1 or not len(times) == len(scores) == len(flags):
        raise InvalidAnswer("times, scores and flags must be one-dimensional and of one length")
    if len(times) and not np.issubdtype(times.dtype, np.integer):
        raise InvalidAnswer(f"times must be integer nanoseconds, got {times.dtype}")
    if len(times) > 1 and not (np.diff(times) > 0).all():
        raise InvalidAnswer("times must increase")
    if np.isnan(scores).any():
        raise InvalidAnswer(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN")
    if len(times) and not (view_start_ns <= times[0] and times[-1] <= view_end_ns):
        raise InvalidAnswer("times must lie in the episode's view")
    alarm = answer.alarm_ns
    if alarm is not None:
        if isinstance(alarm, bool) or not isinstance(alarm, int | np.integer):
            raise InvalidAnswer(f"the alarm must be integer nanoseconds or None, got {type(alarm).__name__}")
        if not view_start_ns <= alarm <= view_end_ns:
            raise InvalidAnswer("the alarm must lie in the episode's view")
    threshold = float(answer.threshold)
    content: dict[str, object] = {
        "times_ns": times.tolist(),
        "scores": [_short(s) for s in scores.tolist()],
        "flags": "".join("1" if flag else "0" for flag in flags.tolist()),
        "threshold": _short(threshold),
        "consecutive": _consecutive(answer, times, flags),
        "evidence": _plain_evidence(answer.evidence),
    }
    return CheckedAnswer(alarm_ns=None if alarm is None else int(alarm), text=answer_text(content))


def check_ranking(answer: object, candidates: Sequence[str]) -> CheckedAnswer:
    """Check a localizer's answer and make it plain data.

    Names outside the candidates are set aside. Metrics and pods are kept where the method names any.
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
            unknown.append(_text(name, 200))
    if answer.scores and not scores:
        raise InvalidAnswer(f"none of the named services exists: {', '.join(sorted(unknown)[:3])}")
    ordered = dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
    content = {
        "unknown": sorted(unknown),
        "confidence": _short(float(answer.confidence)),
        "evidence": _plain_evidence(answer.evidence),
    }
    metrics = _plain_metrics(answer.metrics)
    if metrics:
        content |= {"metrics": metrics[:METRICS_KEPT], "metrics_named": len(metrics)}
    pods = _plain_pods(answer.pods)
    if pods:
        content["pods"] = pods
    return CheckedAnswer(ranking=ordered, text=answer_text(content))


def check_diagnosis(answer: object) -> CheckedAnswer:
    """Check a diagnoser's answer and make it plain data."""
    if not isinstance(answer, Diagnosis):
        raise InvalidAnswer(f"a diagnoser must return a Diagnosis, got {type(answer).__name__}")
    for part in (answer.system_level, answer.fault_type):
        if part is not None and not isinstance(part, str):
            raise InvalidAnswer(f"system level and fault type must be text or None, got {part!r}")
    content = {
        "system_level": answer.system_level,
        "fault_type": answer.fault_type,
        "confidence": _short(float(answer.confidence)),
        "evidence": _plain_evidence(answer.evidence),
    }
    return CheckedAnswer(text=answer_text(content))


def with_left_out(answer: CheckedAnswer, series: Collection[tuple[str, str]]) -> CheckedAnswer:
    """Add to an answer which series the method did not look at: their number, and the names of the first."""
    if not series:
        return answer
    names = [(_text(service, 200), _text(metric, 200)) for service, metric in sorted(series)[:LEFT_OUT_KEPT]]
    return replace(
        answer, text=answer_text({**json.loads(answer.text), "left_out": names, "left_out_count": len(series)})
    )


def _plain_metrics(metrics: Mapping[tuple[str, str], float]) -> list[tuple[str, str, float]]:
    """Return [service, metric, score], best first."""
    try:
        named = [
            (_text(s, 200), _text(m, 200), _number(f"metric {m!r} of {s!r}", value))
            for (s, m), value in metrics.items()
        ]
    except (TypeError, ValueError, AttributeError):
        raise InvalidAnswer("metrics must map (service, metric) to numbers") from None
    return sorted(named, key=lambda item: (-item[2], item[0], item[1]))


def _plain_pods(pods: Mapping[str, float]) -> dict[str, float]:
    """Return scores of pods, best first."""
    try:
        named = [(_text(pod, 200), _number(f"pod {pod!r}", value)) for pod, value in pods.items()]
    except (TypeError, ValueError, AttributeError):
        raise InvalidAnswer("pods must map names to numbers") from None
    return dict(sorted(named, key=lambda item: (-item[1], item[0])))


def _number(what: str, value: Any) -> float:
    number = float(value)
    if math.isnan(number):
        raise InvalidAnswer(f"the score of {what} is NaN")
    return _short(number)


def _consecutive(answer: Detection, times: np.ndarray, flags: np.ndarray) -> int | None:
    """Take the detector at its word where its alarm follows from it."""
    if first_alarm(times, flags, answer.consecutive) == answer.alarm_ns:
        return int(answer.consecutive)
    return infer_consecutive(times.tolist(), flags.tolist(), answer.alarm_ns)


def infer_consecutive(times_ns: Sequence[int], flags: Sequence[bool], alarm_ns: int | None) -> int | None:
    """Number of flags in a row after which a detector raised its alarm; None if flags do not explain it.

    Without an alarm it is one more than the longest run, which is as much as can be known.
    """
    run, longest = 0, 0
    seen: dict[int, int] = {}
    for time_ns, flag in zip(times_ns, flags, strict=True):
        run = run + 1 if flag else 0
        if run > longest:
            longest = run
            seen[run] = time_ns
    if alarm_ns is None:
        return longest + 1
    return next((length for length, time_ns in seen.items() if time_ns == alarm_ns), None)


def _plain_evidence(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [
        {
            "service": _text(item.service, 200),
            "subject": _text(item.subject, 200),
            "score": _short(float(item.score)),
            "detail": _text(item.detail, 300),
        }
        for item in list(evidence)[:EVIDENCE_KEPT]
    ]


def _text(value: object, most: int) -> str:
    """Return the beginning of a text, fit for UTF-8."""
    return str(value)[:most].encode("utf-8", "replace").decode()


def _short(value: float) -> float:
    """Six digits are more than any score means; infinities become the largest that JSON can hold."""
    if math.isnan(value):
        return 0.0
    return float(f"{max(-1e300, min(1e300, float(value))):.6g}")
