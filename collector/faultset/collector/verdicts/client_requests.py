"""Decide from client requests whether clients noticed a fault.

Per endpoint three tests compare the healthy reference with the time after the onset:

- error rate: Fisher's exact test, and a rise of at least one percentage point;
- latency: Mann-Whitney, a p95 ratio of at least 1.5 and a p95 rise of at least 25 ms. Smaller rises occur by chance on
  a busy machine. A p95 rise below 100 ms must also last: in each quarter after the onset at least twice as many
  requests as before exceed the former p95, and in three quarters five times as many;
- completed requests: below 70 % of the schedule.

Holm's method holds the family of all tests at 0.01. With these sample sizes almost every p-value is small, so the
effect limits decide.

Where the request rate changes, latencies are compared within strata of the load: each request gets the load at its
time, quartiles of the healthy load make four strata, and each stratum has the same weight among healthy and suspect
requests. Suspect requests at a higher load than any healthy one are left out.

A shared host slows requests now and then. Latencies count as moved by a fault only if they grow twice as much as they
did before the injection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from faultset.core.times import SECOND_NS

LOAD = "load"
LATENCY_QUANTILE = 0.95
"""Quantile of latencies that is compared."""
_MEMORY_S = 2.0
_STEP_S = 0.1
_STRATA = 4
_LEAST = 5


def with_load(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the requests with a column `load`: arrivals of the last seconds before each, older ones counting less."""
    times_s = requests["scheduled"].astype("int64").to_numpy() / 1e9
    if len(times_s) == 0:
        return requests.assign(**{LOAD: np.zeros(0)})
    place = ((times_s - times_s.min()) / _STEP_S).astype("int64")
    counts = np.bincount(place).astype("float64")
    memory = pd.Series(counts).ewm(alpha=1 - np.exp(-_STEP_S / _MEMORY_S), adjust=False).mean().to_numpy()
    return requests.assign(**{LOAD: memory[place] / _STEP_S})


def compare_stratified(
    before: np.ndarray, after: np.ndarray, load_before: np.ndarray, load_after: np.ndarray
) -> tuple[float, float, float] | None:
    """Compare latencies of healthy requests with those of suspect ones, within strata of the load at their times.

    Returns
    -------
    tuple or None
        The 95 % quantiles before and after, and the one-sided p-value of van Elteren's stratified rank test that the
        later ones are longer; None when too few requests have others at the same load to be compared with.
    """
    bounds = np.quantile(load_before, np.linspace(0, 1, _STRATA + 1)[1:-1])
    stratum_before = np.searchsorted(bounds, load_before, side="right")
    comparable = load_after <= load_before.max()
    after, stratum_after = after[comparable], np.searchsorted(bounds, load_after[comparable], side="right")
    healthy_counts = np.bincount(stratum_before, minlength=_STRATA)
    suspect_counts = np.bincount(stratum_after, minlength=_STRATA)
    usable = np.flatnonzero((healthy_counts >= _LEAST) & (suspect_counts > 0))
    kept = np.isin(stratum_after, usable)
    if kept.sum() < _LEAST:
        return None
    statistic = variance = 0.0
    for stratum in usable:
        healthy, suspect = int(healthy_counts[stratum]), int(suspect_counts[stratum])
        ranks = stats.rankdata(np.concatenate([before[stratum_before == stratum], after[stratum_after == stratum]]))
        size = healthy + suspect
        statistic += (float(ranks[healthy:].sum()) - suspect * (size + 1) / 2) / (size + 1)
        spread = float(((ranks - (size + 1) / 2) ** 2).sum()) / (size - 1) if size > 1 else 0.0
        variance += healthy * suspect / size * spread / (size + 1) ** 2
    p = float(stats.norm.sf(statistic / variance**0.5)) if variance > 0 else 1.0
    weight_of = np.zeros(_STRATA)
    weight_of[usable] = suspect_counts[usable] / healthy_counts[usable]
    return (
        _weighted_quantile(before, weight_of[stratum_before], LATENCY_QUANTILE),
        float(np.quantile(after[kept], LATENCY_QUANTILE)),
        p,
    )


def _weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    summed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(summed, share * summed[-1])])


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


SPLITS = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""Shares of the time before the injection at which it is parted to compare its end with its begin."""
MARGIN = 2.0
"""How many times as much they must grow after it then."""


def earlier_changes(requests: pd.DataFrame, *, start_ns: int, onset_ns: int) -> list[SliTest]:
    """Return the tests that fire on the healthy time before the injection, its later part against its earlier one.

    Parameters
    ----------
    requests
        The `requests` table; what came after the injection is left out.
    """
    seen = as_seen_at(requests, onset_ns)
    fired = []
    for share in SPLITS:
        split_ns = start_ns + int(share * (onset_ns - start_ns))
        windows = ComparisonWindows(start_ns=start_ns, reference_end_ns=split_ns, onset_ns=split_ns, end_ns=onset_ns)
        fired += [test for test in sli_tests(seen, windows) if test.fires]
    return fired


def unsteady_reason(before: Sequence[SliTest]) -> str:
    """Say which client requests moved so much before the injection that nothing after it means anything.

    Parameters
    ----------
    before
        What `earlier_changes` returns.

    Returns
    -------
    str
        Empty where nothing but latencies moved, and none by more than 100 ms.
    """
    for test in before:
        if test.test != "latency" or test.rise_ns > MOST_HOST_RISE_NS:
            return f"client requests had moved before the injection: {test}"
    return ""


def least_rise_ns(before: Sequence[SliTest]) -> float:
    """Return by how much the p95 of latencies must grow after the injection for clients to feel it.

    Parameters
    ----------
    before
        What `earlier_changes` returns.

    Examples
    --------
    >>> least_rise_ns([]) / 1e6
    25.0
    """
    return max([LEAST_LATENCY_RISE_NS, *(MARGIN * test.rise_ns for test in before)])


class ClientImpact(NamedTuple):
    """What the tests say of all that somebody waits for: the requests of clients, and the messages of queues."""

    tests: Sequence[SliTest]
    is_manifest: bool
    """Whether a test fires."""
    first_manifest_ns: int | None
    earlier_changes: Sequence[SliTest]
    """Tests that fire on the time before the injection."""
    is_doubtful: bool
    """Whether latencies grew, but not by twice as much as they had before the injection, and nothing else moved."""


def client_impact(
    requests: pd.DataFrame, messages: pd.DataFrame | None, windows: ComparisonWindows, *, load_varies: bool = False
) -> ClientImpact:
    """Test requests, and what `deliveries` returns, after the onset against the healthy reference.

    Parameters
    ----------
    load_varies
        Whether the rate of requests changes by itself, so that latencies are compared within strata of the load.
    """
    requests = with_load(requests) if load_varies else requests
    has_messages = messages is not None and not messages.empty
    awaited = pd.concat([requests, messages], ignore_index=True) if has_messages else requests
    before = earlier_changes(requests, start_ns=windows.start_ns, onset_ns=windows.onset_ns)
    least = least_rise_ns(before)
    seen = as_seen_at(awaited, windows.end_ns)
    tests = sli_tests(seen, windows, least_rise_ns=least)
    is_manifest = any(test.fires for test in tests)
    since_ns = first_manifest_ns(awaited, windows, least_rise_ns=least) if is_manifest else None
    is_doubtful = bool(before) and not is_manifest and any(t.fires for t in sli_tests(seen, windows))
    return ClientImpact(tests, is_manifest, since_ns, before, is_doubtful)


def sli_evidence(impact: ClientImpact) -> list[dict[str, Any]]:
    """Return a row of evidence for each test on client requests and messages, and for what had moved before."""
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
