"""How steady client requests were before the injection, when nothing but the host can have moved them.

A host that others use too makes requests slower from time to time. What it does before the injection it may do after it
as well, so latencies count as moved by a fault only when they grow by twice as much as they did before.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from faultset.collector.verdicts.sli import (
    LEAST_LATENCY_RISE_NS,
    MOST_HOST_RISE_NS,
    ComparisonWindows,
    SliTest,
    as_seen_at,
    sli_tests,
)

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
