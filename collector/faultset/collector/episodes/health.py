"""Health of an application and of the platform's processes, from object states and client requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pandas as pd
import pyarrow as pa

from faultset.collector.episodes.records import SYSTEM_CLOCK, EpisodeClock
from faultset.collector.platforms.base import EpisodePlatform, Platform
from faultset.collector.platforms.objects import WORKLOADS, is_applied, is_rolled_out
from faultset.core.errors import PlatformError
from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS

LARGEST_ERROR_RATE = 0.05
"""Largest share of failed requests in a healthy application; background errors remain below it."""
MIN_COMPLETION = 0.9
LARGEST_P95_NS = 1_000_000_000
SETTLE_NS = 1_500_000_000


class HostTooBusy(PlatformError):
    """The host disturbed the episode; the same plan may succeed at another time."""

    void_cause = "host too busy"


class UnexplainedRequestChange(HostTooBusy):
    """Client requests changed in a way that the fault cannot explain."""

    void_cause = "requests changed without the fault"

    def __init__(self, title: str, reason: str):
        super().__init__(f"the episode does not show {title}: {reason}. End other programs, or lower --jobs")


def requests_between(platform: Platform, start_ns: int, end_ns: int) -> pd.DataFrame:
    batches = list(platform.sources["requests"].snapshot(start_ns, end_ns))
    if not batches:
        return pd.DataFrame({"scheduled": [], "outcome": [], "endpoint": [], "status": [], "latency_ns": []})
    return pa.Table.from_batches(batches).to_pandas()


def unready_workloads(platform: Platform, rolling_out: Collection[str] = ()) -> str:
    """Describe workloads that lack replicas; empty when there are none.

    A custom resource is unready until its operator reports that it is. Services in `rolling_out` are ignored.
    """
    names = [
        workload["metadata"]["name"]
        for kind in WORKLOADS
        for workload in platform.list(kind)
        if workload["metadata"]["name"] not in rolling_out and not is_rolled_out(workload)
    ]
    if platform.app.operator is not None and {*platform.app.components}.isdisjoint(rolling_out):
        resource = platform.app.operator.resource
        names += [resource.name for state in platform.list(resource.kind) if not is_applied(state)]
    return f"{', '.join(sorted(names))} not ready" if names else ""


def health_problem(
    platform: Platform, start_ns: int, end_ns: int, rate_rps: float, *, now_ns: int, rolling_out: Collection[str] = ()
) -> str:
    """Describe the application's problem in `[start_ns, end_ns)`; empty when it is healthy.

    Requests from the last 1.5 s before `now_ns` may not have a response yet and are not counted. If the rate
    of requests is far below `rate_rps`, the lowest mean rate of the load, then the load has failed. Services in
    `rolling_out` may be unready.
    """
    return unready_workloads(platform, rolling_out) or unhealthy_requests(
        platform, start_ns, end_ns, rate_rps, now_ns=now_ns
    )


def unhealthy_requests(platform: Platform, start_ns: int, end_ns: int, rate_rps: float, *, now_ns: int) -> str:
    """Describe the problem with client requests in `[start_ns, end_ns)`; see `health_problem`."""
    end_ns = min(end_ns, now_ns - SETTLE_NS)
    if end_ns <= start_ns:
        return "no requests are due yet"
    requests = requests_between(platform, start_ns, end_ns)
    planned_count = rate_rps * (end_ns - start_ns) / 1e9
    if len(requests) < min(0.5 * planned_count, planned_count - 4 * planned_count**0.5):
        return f"only {len(requests)} of about {planned_count:.0f} planned requests were sent"
    outcome = requests["outcome"].astype(str)
    failures = requests[outcome.isin(["http_error", "refused", "timeout"])]
    if len(failures) > LARGEST_ERROR_RATE * len(requests):
        return f"{len(failures)} of {count_text(len(requests), 'request')} failed: {_most_frequent(failures)}"
    response_count = int(outcome.isin(["ok", "http_error"]).sum())
    if response_count < MIN_COMPLETION * len(requests):
        return f"only {response_count} of {count_text(len(requests), 'request')} got a response"
    p95_ns = requests["latency_ns"].dropna().astype("float64").quantile(0.95)
    if p95_ns > LARGEST_P95_NS:
        return f"one request in twenty took more than {p95_ns / 1e9:.1f} s; the host may be too busy"
    return ""


def _most_frequent(failures: pd.DataFrame) -> str:
    """Return the endpoint, the status or outcome, and the number of the most frequent failures."""
    kinds = Counter(
        (str(endpoint), str(outcome) if pd.isna(status) else f"status {status:.0f}")
        for endpoint, status, outcome in zip(failures["endpoint"], failures["status"], failures["outcome"], strict=True)
    )
    return ", ".join(f"{endpoint} with {end} {count} times" for (endpoint, end), count in kinds.most_common(3))


LARGEST_CLOCK_STEP_S = 1.0
_PAUSE_S = 1.0


class EpisodeWatchdog:
    """Checks whether an episode can still succeed; checks processes at most once a second."""

    def __init__(self, platform: EpisodePlatform, clock: EpisodeClock = SYSTEM_CLOCK):
        self._platform, self._clock = platform, clock
        self._clock_offset_ns = self._offset_ns()
        self._next_check_ns = 0

    def check(self) -> None:
        """Raise PlatformError if the clock was adjusted, or a process has ended or was suspended."""
        step_s = (self._offset_ns() - self._clock_offset_ns) / SECOND_NS
        if abs(step_s) > LARGEST_CLOCK_STEP_S:
            raise PlatformError(
                f"the machine's clock must not jump, but jumped by {step_s:+.1f} s: it was set, or the host slept"
            )
        if self._clock.monotonic_ns() < self._next_check_ns:
            return
        self._next_check_ns = self._clock.monotonic_ns() + round(_PAUSE_S * SECOND_NS)
        self._platform.check_processes()

    def _offset_ns(self) -> int:
        # distance of the adjustable clock from the monotonic one
        return self._clock.time_ns() - self._clock.monotonic_ns()
