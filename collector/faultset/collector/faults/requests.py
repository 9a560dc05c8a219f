"""Faults that affect individual requests to a service."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from numpy.random import Generator

from faultset.collector.faults.network import impair_pod, is_impaired
from faultset.collector.faults.registry import Parameters, draw_log_uniform, fault, percent_between
from faultset.collector.faults.targets import list_called_services, list_callers
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.impairments import Abort, Course, Hold, Reset
from faultset.core.times import SECOND_NS

_SHARES = (0.15, 0.8)
_AFFECTED_REQUESTS = f"{percent_between(_SHARES)} of the requests of one caller, to all operations or to one"
_OVER_TIME = "constant, rising, or on and off for a few seconds at a time"
_WINDOW_S = 30.0
_MIN_REQUESTS = 10


def draw_requests(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> dict[str, Any]:
    """Draw the share of requests, their caller, sometimes an operation, and without `course` the intensity over time.

    If the platform cannot distinguish callers, the fault affects all requests to the target or the operation.
    """
    app = platform.app
    caller = str(rng.choice(list_callers(app, target)))
    operations = _find_common_operations(platform, caller, target)
    path = str(rng.choice(operations)) if operations and rng.random() < 0.5 else ""
    drawn: dict[str, Any] = {"share": draw_log_uniform(rng, *_SHARES), "caller": caller, "path": path}
    if not platform.selects_requests:
        return {**drawn, "share": 1.0, "caller": ""}
    if course is not None:
        return drawn | course.as_parameters()
    kind = str(rng.choice(["sudden", "gradual", "intermittent"], p=[0.5, 0.25, 0.25]))
    if kind == "gradual":
        drawn["rise_s"] = round(float(rng.uniform(10, 40)), 1)
    elif kind == "intermittent":
        drawn |= {"on_s": round(float(rng.uniform(3, 8)), 1), "off_s": round(float(rng.uniform(2, 6)), 1)}
    return drawn


def _find_common_operations(platform: Platform, caller: str, callee: str) -> list[str]:
    """Return the operations of a callee that a caller has often used recently.

    A fault in an operation that is used only after errors, or about once a minute, would have no effect. If no recent
    span has the name of an operation, all operations that the caller can use are returned.
    """
    operations = {
        call.operation for call in platform.app.services[caller].operations_called() if call.service == callee
    }
    names = sorted(name for name in operations if "{" not in name)
    counts = _count_recent_spans(platform, caller)
    if not counts.keys() & set(names):
        return names
    return [name for name in names if counts[name] >= _MIN_REQUESTS]


def _count_recent_spans(platform: Platform, service: str) -> Counter[str]:
    end_ns = time.time_ns()
    counts: Counter[str] = Counter()
    for batch in platform.sources["spans"].snapshot(end_ns - int(_WINDOW_S * SECOND_NS), end_ns):
        for row in batch.select(["service", "kind", "operation"]).to_pylist():
            if row["service"] == service and row["kind"] == "client":
                counts[row["operation"]] += 1
    return counts


_COMMON_FIELDS = {
    "fault_type": "Network/Storage Issue",
    "category": "symptomatic",
    "targets": list_called_services,
    "check": is_impaired,
    "root_cause_kind": "Pod",
    "schedules": ("gradual", "intermittent", "delayed"),
    "gray": True,
}


@fault(
    "http-abort",
    **_COMMON_FIELDS,
    system_level="Application",
    intensity=f"{_AFFECTED_REQUESTS}; {_OVER_TIME}",
    needs=("abort",),
)
def http_abort(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Refuse a share of the requests that one caller sends to a service."""
    return impair_pod(platform, target, Abort, draw_requests(platform, target, rng, course))


@fault(
    "connection-reset",
    **_COMMON_FIELDS,
    system_level="Operating System",
    intensity=f"{_AFFECTED_REQUESTS}; {_OVER_TIME}",
    needs=("reset",),
)
def connection_reset(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Cut a share of the connections of one caller to a service when a request begins."""
    return impair_pod(platform, target, Reset, draw_requests(platform, target, rng, course))


@fault(
    "slow-answers",
    **_COMMON_FIELDS,
    system_level="Application",
    intensity=f"{_AFFECTED_REQUESTS}, delayed by 0.2 to 0.9 s; {_OVER_TIME}",
    needs=("hold",),
)
def slow_answers(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Delay a share of the requests that one caller sends to a service."""
    drawn = draw_requests(platform, target, rng, course)
    return impair_pod(platform, target, Hold, {**drawn, "latency_s": draw_log_uniform(rng, 0.2, 0.9)})
