"""Decide from client requests whether clients noticed a fault.

For each endpoint, three tests compare the healthy reference with the time after the onset:

- error rate: Fisher's exact test, and a rise of at least one percentage point;
- latency: a rank test, a p95 that grows by at least half and by 25 ms, and slower blocks (see below);
- completed requests: less than 70 % of the schedule.

Holm's method limits the family-wise error rate of all tests to 0.01. Neighbouring requests are slow together, so
p-values are small even without a fault; therefore the limits of the effects decide.

A shared host occasionally slows all requests for some seconds. Therefore latencies are also compared by blocks of five
seconds: in the median block after the onset, the upper quartile of latencies must be three times as high as in the
slower healthy blocks. `benchmarks/client_test_errors.py` measures how often this fires without a fault.

Where the request rate changes, latencies are compared within strata of the load. The load is taken at the time of each
request, and the quartiles of the healthy load bound four strata. Each stratum has the same weight among healthy as
among suspect requests. Suspect requests at a higher load than any healthy request are left out.

Latencies that had grown before the injection must grow twice as much after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from faultset.collector.verdicts.exact_tests import compute_binomial_cdf, compute_fisher_p_value, compute_normal_sf
from faultset.core.times import SECOND_NS

LOAD = "load"
"""Column with the load at the time of each request."""
UNTIMED = "untimed"
"""Column that is true for requests whose latency is not tested; without it, all latencies are tested."""
LATENCY_QUANTILE = 0.95
LEVEL = 0.01
MIN_ERROR_EFFECT = 0.01
MIN_LATENCY_RATIO = 1.5
MIN_LATENCY_RISE_NS = 25e6
MIN_BLOCK_RATIO = 3.0
"""Minimum ratio of the median block after the onset to the upper quartile of healthy blocks."""
MIN_COMPLETION = 0.7
MAX_EARLIER_RISE_NS = 100e6
"""Largest rise of the p95 before the injection that leaves the episode valid."""
SPLITS = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""Points, as shares of the time before the injection, at which its end is compared with its beginning."""
MARGIN = 2.0
"""Minimum ratio of the growth of latencies after the injection to their growth before it."""
UNFINISHED_AFTER_NS = 2 * SECOND_NS
REFERENCE_SHARE = 0.9
"""Length of an incident's reference in a recording, as a share of the healthy time before the onset."""
MIN_HEALTHY_SHARE = 0.5
"""Minimum healthy time before an incident that is judged, as a share of the planned healthy time."""
_BLOCK_NS = 5 * SECOND_NS
_BLOCK_QUANTILE = 0.75
_MEMORY_S = 2.0
_STEP_S = 0.1
_STRATUM_COUNT = 4
_MIN_REQUESTS = 5


@dataclass(frozen=True, kw_only=True)
class ComparisonWindows:
    """The two windows whose requests are compared; both are half-open."""

    start_ns: int
    reference_end_ns: int
    """End of the healthy reference, which begins at `start_ns`."""
    onset_ns: int
    end_ns: int
    """End of the time after the onset."""

    @classmethod
    def around(cls, onset_ns: int, *, start_ns: int, end_ns: int) -> ComparisonWindows:
        """Return the windows of an incident of a recording with the healthy time before it."""
        reference_ns = round(REFERENCE_SHARE * (onset_ns - start_ns))
        return cls(start_ns=start_ns, reference_end_ns=start_ns + reference_ns, onset_ns=onset_ns, end_ns=end_ns)


@dataclass(frozen=True, kw_only=True)
class SliTest:
    """Outcome of one test on one endpoint."""

    endpoint: str
    test: str
    effect: float
    """Error rate: difference of shares. Latency: ratio of the p95. Completion: completed share of the schedule."""
    p_value: float
    """Before Holm's correction."""
    fires: bool
    """Whether the effect exceeds its limit and is significant after Holm's correction."""
    detail: str
    rise_ns: float = 0.0
    """Growth of the p95 latency; 0 for other tests."""

    def __str__(self) -> str:
        return f"{self.test} of {self.endpoint}, {self.detail}"


class LatencyShift(NamedTuple):
    """How latencies after the onset differ from healthy ones."""

    p95_before_ns: float
    p95_after_ns: float
    block_ratio: float
    """Median block after the onset over the upper quartile of healthy blocks."""
    p_value: float
    """One-sided, of a rank test within strata of the load."""

    @property
    def ratio(self) -> float:
        return self.p95_after_ns / max(self.p95_before_ns, 1.0)

    @property
    def rise_ns(self) -> float:
        return self.p95_after_ns - self.p95_before_ns


@dataclass(frozen=True)
class TimedRequests:
    """Requests of one endpoint in one window."""

    times_ns: np.ndarray
    """Due time of each request."""
    latencies_ns: np.ndarray
    """Latency of each request."""
    loads: np.ndarray
    """Load at the due time of each request."""

    @classmethod
    def select(cls, requests: pd.DataFrame, end_ns: int) -> TimedRequests:
        """Return the requests with a latency; for hanging requests, it is the waiting time until `end_ns`."""
        times = requests["scheduled"].astype("int64").to_numpy()
        latencies = requests["latency_ns"].to_numpy(dtype="float64", na_value=np.nan)
        waiting_ns = (end_ns - times).astype("float64")
        latencies = np.where(np.isnan(latencies) & (waiting_ns > UNFINISHED_AFTER_NS), waiting_ns, latencies)
        loads = requests[LOAD].to_numpy() if LOAD in requests else np.zeros(len(requests))
        has_latency = ~np.isnan(latencies)
        return cls(times[has_latency], latencies[has_latency], loads[has_latency])

    def __getitem__(self, index: np.ndarray) -> TimedRequests:
        return TimedRequests(self.times_ns[index], self.latencies_ns[index], self.loads[index])

    def __len__(self) -> int:
        return len(self.times_ns)


def with_load(requests: pd.DataFrame) -> pd.DataFrame:
    """Add a column `load`: the recent arrival rate at the time of each request."""
    times_s = requests["scheduled"].astype("int64").to_numpy() / 1e9
    if len(times_s) == 0:
        return requests.assign(**{LOAD: np.zeros(0)})
    step = ((times_s - times_s.min()) / _STEP_S).astype("int64")
    counts = np.bincount(step).astype("float64")
    rates = pd.Series(counts).ewm(alpha=1 - np.exp(-_STEP_S / _MEMORY_S), adjust=False).mean().to_numpy()
    return requests.assign(**{LOAD: rates[step] / _STEP_S})


def compare_latencies(before: TimedRequests, after: TimedRequests, windows: ComparisonWindows) -> LatencyShift | None:
    """Compare latencies of healthy and suspect requests within strata of the load.

    The p-value comes from van Elteren's stratified rank test. Return None if too few suspect requests can be compared
    with healthy ones at the same load.
    """
    if min(len(before), len(after)) < _MIN_REQUESTS:
        return None
    bounds = np.quantile(before.loads, np.linspace(0, 1, _STRATUM_COUNT + 1)[1:-1])
    stratum_before = np.searchsorted(bounds, before.loads, side="right")
    stratum_after = np.searchsorted(bounds, after.loads, side="right")
    healthy_counts = np.bincount(stratum_before, minlength=_STRATUM_COUNT)
    comparable = (after.loads <= before.loads.max()) & (healthy_counts[stratum_after] >= _MIN_REQUESTS)
    after, stratum_after = after[comparable], stratum_after[comparable]
    if len(after) < _MIN_REQUESTS:
        return None
    suspect_counts = np.bincount(stratum_after, minlength=_STRATUM_COUNT)
    weights = np.where(healthy_counts > 0, suspect_counts / np.maximum(healthy_counts, 1), 0.0)
    # relative to the usual latency at that load, so that blocks of higher load do not count as slower
    usual_latencies = np.array(
        [
            np.quantile(before.latencies_ns[stratum_before == s], _BLOCK_QUANTILE) if n else 1.0
            for s, n in enumerate(healthy_counts)
        ]
    )
    blocks_before = _block_levels(
        before, before.latencies_ns / usual_latencies[stratum_before], windows.start_ns, windows.reference_end_ns
    )
    blocks_after = _block_levels(
        after, after.latencies_ns / usual_latencies[stratum_after], windows.onset_ns, windows.end_ns
    )
    return LatencyShift(
        p95_before_ns=_weighted_quantile(before.latencies_ns, weights[stratum_before], LATENCY_QUANTILE),
        p95_after_ns=float(np.quantile(after.latencies_ns, LATENCY_QUANTILE)),
        block_ratio=float(np.median(blocks_after) / np.quantile(blocks_before, _BLOCK_QUANTILE)),
        p_value=_stratified_rank_test(before.latencies_ns, stratum_before, after.latencies_ns, stratum_after),
    )


def _block_levels(requests: TimedRequests, latencies: np.ndarray, start_ns: int, end_ns: int) -> np.ndarray:
    """Return the upper quartile of latencies in each block of a window that has requests."""
    count = max(2, round((end_ns - start_ns) / _BLOCK_NS))
    block = np.minimum((requests.times_ns - start_ns) * count // (end_ns - start_ns), count - 1)
    return np.array([np.quantile(latencies[block == number], _BLOCK_QUANTILE) for number in np.unique(block)])


def _stratified_rank_test(
    before: np.ndarray, stratum_before: np.ndarray, after: np.ndarray, stratum_after: np.ndarray
) -> float:
    """Return the one-sided p-value of van Elteren's test that the later values are larger."""
    statistic = variance = 0.0
    for stratum in np.unique(stratum_after):
        healthy, suspect = before[stratum_before == stratum], after[stratum_after == stratum]
        size = len(healthy) + len(suspect)
        ranks = pd.Series(np.concatenate([healthy, suspect])).rank().to_numpy()
        statistic += (float(ranks[len(healthy) :].sum()) - len(suspect) * (size + 1) / 2) / (size + 1)
        spread = float(((ranks - (size + 1) / 2) ** 2).sum()) / (size - 1)
        variance += len(healthy) * len(suspect) / size * spread / (size + 1) ** 2
    return compute_normal_sf(statistic / variance**0.5) if variance > 0 else 1.0


def _weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    cumulative_weights = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulative_weights, share * cumulative_weights[-1])])


def sli_tests(
    requests: pd.DataFrame, windows: ComparisonWindows, *, min_rise_ns: float = MIN_LATENCY_RISE_NS
) -> list[SliTest]:
    """Compare the requests of each endpoint after the onset with the healthy reference.

    `requests` is the table at the end of the windows, where unanswered requests are `unfinished`; its column `load` is
    optional. `min_rise_ns` is the smallest growth of the p95 latency that clients notice.
    """
    scheduled = requests["scheduled"].astype("int64")
    healthy = requests[(scheduled >= windows.start_ns) & (scheduled < windows.reference_end_ns)]
    suspect = requests[(scheduled >= windows.onset_ns) & (scheduled < windows.end_ns)]
    tests: list[SliTest] = []
    for endpoint in sorted(healthy["endpoint"].astype(str).unique()):
        before, after = healthy[healthy["endpoint"] == endpoint], suspect[suspect["endpoint"] == endpoint]
        if len(after):
            tests += _endpoint_tests(endpoint, before, after, windows, min_rise_ns)
    significant = _apply_holm([test.p_value for test in tests])
    return [replace(test, fires=test.fires and holds) for test, holds in zip(tests, significant, strict=True)]


def _endpoint_tests(
    endpoint: str, before: pd.DataFrame, after: pd.DataFrame, windows: ComparisonWindows, min_rise_ns: float
) -> Iterator[SliTest]:
    """Yield the tests of one endpoint; here, `fires` depends on effects alone."""
    yield _error_test(endpoint, _is_error(before, windows.reference_end_ns), _is_error(after, windows.end_ns))
    is_timed = UNTIMED not in before.columns or not before[UNTIMED].eq(True).any()
    shift = is_timed and compare_latencies(
        TimedRequests.select(before, windows.reference_end_ns), TimedRequests.select(after, windows.end_ns), windows
    )
    if shift:
        yield SliTest(
            endpoint=endpoint,
            test="latency",
            effect=shift.ratio,
            p_value=shift.p_value,
            fires=shift.ratio >= MIN_LATENCY_RATIO
            and shift.rise_ns >= min_rise_ns
            and shift.block_ratio >= MIN_BLOCK_RATIO,
            detail=f"p95 {shift.p95_before_ns / 1e6:.1f} ms before, {shift.p95_after_ns / 1e6:.1f} ms after, "
            f"blocks {shift.block_ratio:.1f} times as slow",
            rise_ns=shift.rise_ns,
        )
    due_requests = after[windows.end_ns - after["scheduled"].astype("int64") > UNFINISHED_AFTER_NS]
    if len(due_requests) >= _MIN_REQUESTS:
        share = float(np.isin(due_requests["outcome"].astype(str), ("ok", "http_error")).mean())
        p = compute_binomial_cdf(round(share * len(due_requests)), len(due_requests), 0.9)
        yield SliTest(
            endpoint=endpoint,
            test="completion",
            effect=share,
            p_value=p,
            fires=share < MIN_COMPLETION,
            detail=f"{share:.0%} of {len(due_requests)} scheduled requests were answered",
        )


def _error_test(endpoint: str, before: np.ndarray, after: np.ndarray) -> SliTest:
    table = [[int(errors.sum()), int((~errors).sum())] for errors in (before, after)]
    effect = float(after.mean() - before.mean())
    return SliTest(
        endpoint=endpoint,
        test="error-rate",
        effect=effect,
        p_value=compute_fisher_p_value(table),
        fires=effect >= MIN_ERROR_EFFECT,
        detail=f"{table[0][0]}/{len(before)} errors before, {table[1][0]}/{len(after)} after",
    )


def _is_error(requests: pd.DataFrame, end_ns: int) -> np.ndarray:
    outcome = requests["outcome"].astype(str).to_numpy()
    scheduled = requests["scheduled"].astype("int64").to_numpy()
    is_stale = (outcome == "unfinished") & (end_ns - scheduled > UNFINISHED_AFTER_NS)
    return np.isin(outcome, ("http_error", "refused", "timeout")) | is_stale


def _apply_holm(p_values: list[float]) -> list[bool]:
    order = np.argsort(p_values)
    reject = [False] * len(p_values)
    for step, index in enumerate(order):
        if not p_values[index] <= LEVEL / (len(p_values) - step):
            break
        reject[index] = True
    return reject


def as_seen_at(requests: pd.DataFrame, end_ns: int) -> pd.DataFrame:
    """Return the requests scheduled before `end_ns`; requests with a later response count as unfinished."""
    visible = requests[requests["scheduled"].astype("int64") < end_ns].copy()
    response_ns = visible["scheduled"].astype("int64") + visible["latency_ns"].fillna(np.iinfo("int64").max // 4)
    is_late = (response_ns >= end_ns).to_numpy()
    visible["outcome"] = visible["outcome"].astype(str).where(~is_late, "unfinished")
    visible["latency_ns"] = visible["latency_ns"].astype("Int64").mask(is_late)
    visible["status"] = visible["status"].astype("Int32").mask(is_late)
    return visible


def first_manifest_ns(
    requests: pd.DataFrame, windows: ComparisonWindows, *, min_rise_ns: float = MIN_LATENCY_RISE_NS
) -> int | None:
    """Return the end of the first whole second after the onset at which a test fires; None if none does."""
    for now_ns in range(windows.onset_ns + SECOND_NS, windows.end_ns + SECOND_NS, SECOND_NS):
        now_ns = min(now_ns, windows.end_ns)
        visible = as_seen_at(requests, now_ns)
        tests = sli_tests(visible, replace(windows, end_ns=now_ns), min_rise_ns=min_rise_ns)
        if any(test.fires for test in tests):
            return now_ns
    return None


def earlier_changes(requests: pd.DataFrame, *, start_ns: int, onset_ns: int) -> list[SliTest]:
    """Compare the end of the time before the injection with its beginning; return the tests that fire."""
    visible = as_seen_at(requests, onset_ns)
    changes = []
    for share in SPLITS:
        split_ns = start_ns + int(share * (onset_ns - start_ns))
        windows = ComparisonWindows(start_ns=start_ns, reference_end_ns=split_ns, onset_ns=split_ns, end_ns=onset_ns)
        changes += [test for test in sli_tests(visible, windows) if test.fires]
    return changes


def unsteady_reason(before: Sequence[SliTest]) -> str:
    """Return why `earlier_changes` make the episode void; empty if it is valid.

    Latencies may grow by at most 100 ms before the injection; other changes are not allowed.
    """
    for test in before:
        if test.test != "latency" or test.rise_ns > MAX_EARLIER_RISE_NS:
            return f"client requests had changed before the injection: {test}"
    return ""


def compute_min_rise_ns(before: Sequence[SliTest]) -> float:
    """Return how much the p95 latency must grow after the injection for clients to notice, given `earlier_changes`."""
    return max([MIN_LATENCY_RISE_NS, *(MARGIN * test.rise_ns for test in before)])


class ClientImpact(NamedTuple):
    """Outcome of the tests on client requests and on messages of queues."""

    tests: Sequence[SliTest]
    is_manifest: bool
    """Whether a test fires."""
    first_manifest_ns: int | None
    earlier_changes: Sequence[SliTest]
    """Tests that fire on the time before the injection."""
    is_doubtful: bool
    """Whether requests changed before and after the injection, but too little after it for the stricter test."""

    @property
    def is_latency_alone(self) -> bool:
        """Whether only latencies changed; a busy host has the same effect."""
        return self.is_manifest and all(test.test == "latency" for test in self.tests if test.fires)


def client_impact(
    requests: pd.DataFrame, messages: pd.DataFrame | None, windows: ComparisonWindows, *, load_varies: bool = False
) -> ClientImpact:
    """Test requests and messages of queues after the onset against the healthy reference.

    `messages` is the result of `find_deliveries`; None without a queue. If `load_varies`, latencies are compared within
    strata of the load.
    """
    requests = with_load(requests) if load_varies else requests
    has_messages = messages is not None and not messages.empty
    all_requests = pd.concat([requests, messages], ignore_index=True) if has_messages else requests
    before = earlier_changes(requests, start_ns=windows.start_ns, onset_ns=windows.onset_ns)
    rise_ns = compute_min_rise_ns(before)
    visible = as_seen_at(all_requests, windows.end_ns)
    tests = sli_tests(visible, windows, min_rise_ns=rise_ns)
    is_manifest = any(test.fires for test in tests)
    manifest_ns = first_manifest_ns(all_requests, windows, min_rise_ns=rise_ns) if is_manifest else None
    is_doubtful = bool(before) and not is_manifest and any(test.fires for test in sli_tests(visible, windows))
    return ClientImpact(tests, is_manifest, manifest_ns, before, is_doubtful)


def sli_evidence(impact: ClientImpact) -> list[dict[str, Any]]:
    """Return a row of evidence for each test after the injection, and for each that fires before it."""
    rows = [("sli", test) for test in impact.tests] + [("sli-before", test) for test in impact.earlier_changes]
    return [
        {
            "check": check,
            "subject": f"{test.endpoint} {test.test}",
            "time": None,
            "passed": test.fires,
            "statistic": test.effect,
            "p_value": test.p_value,
            "detail": test.detail,
        }
        for check, test in rows
    ]
