"""The answers of an analysis in the format of the explorer's lanes."""

from __future__ import annotations

from typing import Any

from faultset.evaluators.diagnosis.records import GIVEN, IncidentAnalysis

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
