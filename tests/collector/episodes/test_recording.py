"""Which episodes are void because the host disturbed them."""

from __future__ import annotations

import pytest

from faultset.collector.episodes.recording import reason_to_discard
from faultset.collector.verdicts.client_requests import ClientImpact, SliTest
from faultset.collector.verdicts.verdict import Judgement


def judgement(*firing: str, reason: str = "") -> Judgement:
    tests = [
        SliTest(endpoint="GET /", test=test, effect=9.0, p_value=0.0, fires=test in firing, detail="")
        for test in ("error-rate", "latency", "completion")
    ]
    impact = ClientImpact(tests, bool(firing), 1 if firing else None, earlier_changes=(), is_doubtful=False)
    return Judgement(
        verdict="manifest" if firing else "silent",
        first_manifest_ns=None,
        evidence=(),
        impact=impact,
        void_reason=reason,
    )


@pytest.mark.parametrize(
    ("firing", "is_busy", "is_void"),
    [
        ((), True, False),
        (("latency",), False, False),
        (("latency",), True, True),
        (("latency", "error-rate"), True, False),
        (("completion",), True, False),
    ],
)
def test_latencies_that_move_alone_on_a_busy_host_make_an_episode_void_with_or_without_a_fault(
    firing: tuple[str, ...], is_busy: bool, is_void: bool
) -> None:
    assert bool(reason_to_discard(judgement(*firing), is_busy=is_busy)) is is_void


def test_what_the_judgement_objects_to_is_void_on_any_host() -> None:
    assert reason_to_discard(judgement("error-rate", reason="unsteady"), is_busy=False) == "unsteady"
