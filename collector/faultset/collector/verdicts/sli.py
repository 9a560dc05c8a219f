"""Did users notice? The SLI-impact test on client requests.

Per endpoint three tests compare the healthy reference with the time after the onset: error rate (Fisher exact and
at least one percentage point), latency (Mann-Whitney, a p95 ratio of at least 1.5 and a rise of the p95 by at least
25 ms: less is noticed by nobody, and moves by itself on a busy machine), completed requests (below 70 % of the
schedule). A rise of the p95 by less than 100 ms must also last: in each quarter of the time after the onset at least
twice as many requests as before take longer than the p95 before, and in three quarters five times as many. What else
runs on a host slows requests down for some seconds, and moves the p95 of the whole time.

The family of all tests is held at 0.01 by Holm's method. Sample sizes make almost any p-value small, so the effect
limits decide. Where the rate of requests changes by itself, latencies are compared within strata of the load; see
`stratified_latencies`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from faultset.collector.verdicts.stratified_latencies import LATENCY_QUANTILE, LOAD, compare_stratified
from faultset.core.times import SECOND_NS

LEVEL = 0.01
LEAST_ERROR_EFFECT = 0.01
LEAST_LATENCY_RATIO = 1.5
LEAST_LATENCY_RISE_NS = 25e6
MOST_HOST_RISE_NS = 100e6
"""By how much a host that others use may make the p95 grow."""
QUARTERS = 4
LEAST_SLOW_SHARE_IN_EACH, LEAST_SLOW_SHARE_IN_THREE = 0.1, 0.25
"""Shares of requests above the p95 before: in every quarter of the time after the onset, and in three of them."""
LEAST_COMPLETION = 0.7
UNFINISHED_AFTER_NS = 2_000_000_000
UNTIMED = "untimed"
"""Column that says of which requests the latency is not tested; without it, of none."""


@dataclass(frozen=True, kw_only=True)
class ComparisonWindows:
    """Windows whose requests are compared: that after the onset with the healthy reference.

    Attributes
    ----------
    start_ns, reference_end_ns
        The reference, without its end.
    onset_ns, end_ns
        The time after the onset, without its end.
    """

    start_ns: int
    reference_end_ns: int
    onset_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class SliTest:
    """Outcome of one test on one endpoint.

    Attributes
    ----------
    effect
        Error rate: difference of shares. Latency: ratio of the p95. Completion: completed share of the schedule.
    p_value
        Unadjusted; NaN where the test has none or there were too few requests.
    fires
        Effect beyond its limit and significant after Holm's correction.
    rise_ns
        By how much the p95 of the latencies grew; 0 for other tests.
    """

    endpoint: str
    test: str
    effect: float
    p_value: float
    fires: bool
    detail: str
    rise_ns: float = 0.0

    def __str__(self) -> str:
        return f"{self.test} of {self.endpoint}, {self.detail}"


def _is_error(requests: pd.DataFrame, end_ns: int) -> np.ndarray:
    outcome = requests["outcome"].astype(str).to_numpy()
    scheduled = requests["scheduled"].astype("int64").to_numpy()
    stale = (outcome == "unfinished") & (end_ns - scheduled > UNFINISHED_AFTER_NS)
    return np.isin(outcome, ("http_error", "refused", "timeout")) | stale


def _latency(requests: pd.DataFrame, end_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Latencies in ns, and of which requests; one that hangs counts with the time it has waited so far."""
    latency = requests["latency_ns"].to_numpy(dtype="float64", na_value=np.nan)
    waited = end_ns - requests["scheduled"].astype("int64").to_numpy().astype("float64")
    latency = np.where(np.isnan(latency), np.where(waited > UNFINISHED_AFTER_NS, waited, np.nan), latency)
    return latency[~np.isnan(latency)], ~np.isnan(latency)


def fisher_worse(table: list[list[int]]) -> float:
    """Return the one-sided p-value of Fisher's exact test that the second row has more errors than the first.

    Rows are (errors, others).
    """
    (a, b), (c, d) = table
    return float(stats.hypergeom.sf(c - 1, a + b + c + d, a + c, c + d))


def _raw_tests(
    healthy: pd.DataFrame, suspect: pd.DataFrame, windows: ComparisonWindows, least_rise_ns: float
) -> Iterator[SliTest]:
    """Yield the tests of each endpoint; they fire here by their effects alone."""
    for endpoint in sorted(healthy["endpoint"].astype(str).unique()):
        before = healthy[healthy["endpoint"] == endpoint]
        after = suspect[suspect["endpoint"] == endpoint]
        if len(after) == 0:
            continue
        wrong_before = _is_error(before, windows.reference_end_ns)
        wrong_after = _is_error(after, windows.end_ns)
        table = [
            [int(wrong_before.sum()), int((~wrong_before).sum())],
            [int(wrong_after.sum()), int((~wrong_after).sum())],
        ]
        effect = wrong_after.mean() - wrong_before.mean()
        p = fisher_worse(table)
        counts = f"{table[0][0]}/{len(before)} errors before, {table[1][0]}/{len(after)} after"
        is_felt = bool(effect >= LEAST_ERROR_EFFECT)
        yield SliTest(
            endpoint=endpoint, test="error-rate", effect=float(effect), p_value=p, fires=is_felt, detail=counts
        )
        is_timed = UNTIMED not in before.columns or not before[UNTIMED].eq(True).any()
        slow_before, kept_before = _latency(before, windows.reference_end_ns)
        slow_after, kept_after = _latency(after, windows.end_ns)
        compared = None
        if is_timed and len(slow_before) >= 5 and len(slow_after) >= 5:
            if LOAD in healthy.columns:
                loads = before[LOAD].to_numpy()[kept_before], after[LOAD].to_numpy()[kept_after]
                compared = compare_stratified(slow_before, slow_after, *loads)
            else:
                p = float(stats.mannwhitneyu(slow_after, slow_before, alternative="greater").pvalue)
                quantiles = [float(np.quantile(one, LATENCY_QUANTILE)) for one in (slow_before, slow_after)]
                compared = *quantiles, p
        if compared:
            *p95, p = compared
            ratio, rise_ns = p95[1] / max(p95[0], 1.0), p95[1] - p95[0]
            is_slower = ratio >= LEAST_LATENCY_RATIO and rise_ns >= least_rise_ns
            yield SliTest(
                endpoint=endpoint,
                test="latency",
                effect=ratio,
                p_value=p,
                fires=is_slower
                and (rise_ns >= MOST_HOST_RISE_NS or _lasts(after[kept_after], slow_after > p95[0], windows)),
                detail=f"p95 {p95[0] / 1e6:.1f} ms before, {p95[1] / 1e6:.1f} ms after",
                rise_ns=rise_ns,
            )
        settled = after[windows.end_ns - after["scheduled"].astype("int64") > UNFINISHED_AFTER_NS]
        if len(settled) >= 5:
            share = float(np.isin(settled["outcome"].astype(str), ("ok", "http_error")).mean())
            p = float(stats.binomtest(round(share * len(settled)), len(settled), 0.9, alternative="less").pvalue)
            words = f"{share:.0%} of {len(settled)} scheduled requests were answered"
            is_felt = share < LEAST_COMPLETION
            yield SliTest(endpoint=endpoint, test="completion", effect=share, p_value=p, fires=is_felt, detail=words)


def _lasts(after: pd.DataFrame, is_slow: np.ndarray, windows: ComparisonWindows) -> bool:
    """Say whether requests were slow in all parts of the time after the onset."""
    since_ns = after["scheduled"].astype("int64").to_numpy() - windows.onset_ns
    length_ns = windows.end_ns - windows.onset_ns
    quarter = np.minimum(QUARTERS * since_ns // length_ns, QUARTERS - 1)
    counts = np.bincount(quarter, minlength=QUARTERS)
    shares = np.sort(np.bincount(quarter, weights=is_slow, minlength=QUARTERS) / np.maximum(counts, 1))
    return bool(shares[0] >= LEAST_SLOW_SHARE_IN_EACH and shares[1] >= LEAST_SLOW_SHARE_IN_THREE)


def sli_tests(
    requests: pd.DataFrame, windows: ComparisonWindows, *, least_rise_ns: float = LEAST_LATENCY_RISE_NS
) -> list[SliTest]:
    """Compare the requests of each endpoint after the onset with those of the healthy reference.

    Parameters
    ----------
    requests
        The `requests` table as seen at the end of the windows: what was unanswered then is `unfinished`.
        A column `load` says at what load each was sent; without it all count as sent at the same.
    least_rise_ns
        By how much the p95 of latencies must grow at least to be felt.
    """
    scheduled = requests["scheduled"].astype("int64")
    healthy = requests[(scheduled >= windows.start_ns) & (scheduled < windows.reference_end_ns)]
    suspect = requests[(scheduled >= windows.onset_ns) & (scheduled < windows.end_ns)]
    felt = list(_raw_tests(healthy, suspect, windows, least_rise_ns))
    significant = _holm([test.p_value for test in felt])
    return [replace(test, fires=test.fires and holds) for test, holds in zip(felt, significant, strict=True)]


def _holm(p_values: list[float]) -> list[bool]:
    order = np.argsort(p_values)
    reject = [False] * len(p_values)
    for step, index in enumerate(order):
        if not p_values[index] <= LEVEL / (len(p_values) - step):
            break
        reject[index] = True
    return reject


def as_seen_at(requests: pd.DataFrame, end_ns: int) -> pd.DataFrame:
    """Return the requests scheduled before `end_ns` as a client knew them then: later answers are not in yet."""
    seen = requests[requests["scheduled"].astype("int64") < end_ns].copy()
    answered = seen["scheduled"].astype("int64") + seen["latency_ns"].fillna(np.iinfo("int64").max // 4)
    late = (answered >= end_ns).to_numpy()
    seen["outcome"] = seen["outcome"].astype(str).where(~late, "unfinished")
    seen["latency_ns"] = seen["latency_ns"].astype("Int64").mask(late)
    seen["status"] = seen["status"].astype("Int32").mask(late)
    return seen


def first_manifest_ns(
    requests: pd.DataFrame, windows: ComparisonWindows, *, least_rise_ns: float = LEAST_LATENCY_RISE_NS
) -> int | None:
    """Return the end of the first whole second after the onset at which the test fires; None if it never does."""
    for now_ns in range(windows.onset_ns + SECOND_NS, windows.end_ns + SECOND_NS, SECOND_NS):
        now_ns = min(now_ns, windows.end_ns)
        seen = as_seen_at(requests, now_ns)
        tests = sli_tests(seen, replace(windows, end_ns=now_ns), least_rise_ns=least_rise_ns)
        if any(test.fires for test in tests):
            return now_ns
    return None
