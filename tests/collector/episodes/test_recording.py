"""Which episodes without a fault count although client requests moved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faultset.collector.episodes.health import HostTooBusy
from faultset.collector.episodes.recording import _must_be_valid
from faultset.collector.plans.options import NoFaultKind
from faultset.collector.plans.plan import Plan
from faultset.collector.verdicts.client_requests import ClientImpact
from faultset.collector.verdicts.verdict import Judgement
from tests.collector.plan_samples import PLAN

IMPACT = ClientImpact((), is_manifest=True, first_manifest_ns=1, earlier_changes=(), is_doubtful=False)
MOVED = Judgement(verdict="manifest", first_manifest_ns=1, evidence=(), impact=IMPACT, latent_fires=False)


def plan(kind: NoFaultKind) -> Plan:
    return replace(PLAN, fault=None, target=None, no_fault_kind=kind)


@pytest.mark.parametrize(
    ("kind", "made", "is_void"),
    [
        ("plain", {}, True),
        ("sham", {"sham": "service-rewritten"}, True),
        ("sham", {"sham": "restart"}, False),
        ("sham", {"sham": "account-rewritten"}, False),
        ("disturbed", {"harmless_change": "load-step"}, False),
    ],
)
def test_requests_that_move_without_a_fault_on_a_busy_host_are_the_hosts_unless_pods_were_restarted(
    kind: NoFaultKind, made: dict[str, Any], is_void: bool
) -> None:
    _must_be_valid(plan(kind), MOVED, is_busy=False, made=made)
    if is_void:
        with pytest.raises(HostTooBusy, match="while the host was short of CPU"):
            _must_be_valid(plan(kind), MOVED, is_busy=True, made=made)
    else:
        _must_be_valid(plan(kind), MOVED, is_busy=True, made=made)
