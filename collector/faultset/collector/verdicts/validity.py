"""Whether an episode says anything about its fault: what client requests did that no fault can have caused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from faultset.collector.verdicts.client_impact import ClientImpact
from faultset.collector.verdicts.steadiness import unsteady_reason


def void_reason(impact: ClientImpact, *, faulty: Sequence[str], services_reached: Mapping[str, frozenset[str]]) -> str:
    """Say why the tests after the injection mean nothing; empty when they do.

    Parameters
    ----------
    faulty
        Services that a fault was applied to; none without one.
    services_reached
        For each endpoint the services that its requests can reach; one that is missing may reach all.
    """
    reason = unsteady_reason(impact.earlier_changes)
    if reason or not faulty:
        return reason
    if impact.is_doubtful:
        return f"client requests had moved before the injection, and hardly more after it: {impact.earlier_changes[0]}"
    moved = [test for test in impact.tests if test.fires]
    if not moved or any(not services_reached.get(test.endpoint, {*faulty}).isdisjoint(faulty) for test in moved):
        return ""
    return f"client requests moved that cannot reach {' or '.join(faulty)}: {moved[0]}"
