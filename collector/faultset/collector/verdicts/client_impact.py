"""What client requests and messages show of a fault, beside what they did without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from faultset.collector.verdicts.sli import ComparisonWindows, SliTest, as_seen_at, first_manifest_ns, sli_tests
from faultset.collector.verdicts.steadiness import earlier_changes, least_rise_ns
from faultset.collector.verdicts.stratified_latencies import with_load


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
