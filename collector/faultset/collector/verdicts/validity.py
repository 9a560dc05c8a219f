"""Whether an episode says anything about its fault: what client requests did that no fault can have caused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from faultset.collector.verdicts.sli import SliTest, as_seen_at, sli_tests

SPLITS = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""Shares of the time before the injection at which it is parted to compare its end with its begin."""


def moved_before(requests: pd.DataFrame, *, start_ns: int, onset_ns: int) -> list[SliTest]:
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
        tests = sli_tests(seen, start_ns=start_ns, reference_end_ns=split_ns, onset_ns=split_ns, end_ns=onset_ns)
        fired += [test for test in tests if test.fires]
    return fired


def moved_reason(requests: pd.DataFrame, *, start_ns: int, onset_ns: int) -> str:
    """Say which client requests had moved before the injection, see `moved_before`; empty when none had."""
    before = moved_before(requests, start_ns=start_ns, onset_ns=onset_ns)
    return f"client requests had moved before the injection: {_named(before[0])}" if before else ""


def void_reason(
    requests: pd.DataFrame,
    tests: Sequence[SliTest],
    *,
    faulty: Sequence[str],
    services_reached: Mapping[str, frozenset[str]],
    start_ns: int,
    onset_ns: int,
) -> str:
    """Say why the tests after the injection mean nothing; empty when they do.

    Parameters
    ----------
    tests
        Those of the time after the injection.
    faulty
        Services that a fault was applied to; none without one.
    services_reached
        For each endpoint the services that its requests can reach; one that is missing may reach all.
    """
    before = moved_reason(requests, start_ns=start_ns, onset_ns=onset_ns)
    if before:
        return before
    moved = [test for test in tests if test.fires]
    if not faulty or not moved:
        return ""
    if any(not services_reached.get(test.endpoint, {*faulty}).isdisjoint(faulty) for test in moved):
        return ""
    return f"client requests moved that cannot reach {' or '.join(faulty)}: {_named(moved[0])}"


def _named(test: SliTest) -> str:
    return f"{test.test} of {test.endpoint}, {test.detail}"
