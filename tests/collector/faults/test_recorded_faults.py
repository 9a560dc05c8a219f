"""Every fault run for real with short phases: it is proved, undone, and shows; each has a test of what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.collector.faults.registry import faults
from faultset.collector.verdicts.verdict import UNCALIBRATED
from tests.collector.faults.conftest import Recorded

UNFELT = ("invalid-toleration", "invalid-security-context", "unknown-update-strategy", "wrong-operator-image")
"""Faults that leave what runs as it is."""

MIN_CALLS = 40
"""Calls of an operation in the phase of the fault, below which a share of them that fails may say nothing."""


def test_what_every_fault_shows_has_a_test() -> None:
    texts = [path.read_text("utf-8") for path in Path(__file__).parent.glob("recorded/test_*.py")]
    assert [name for name in faults() if not any(f'recorded("{name}")' in text for text in texts)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", faults())
def test_injection_and_recovery_are_proved(name: str, recorded: Recorded) -> None:
    for episode in recorded(name):
        rows = episode.evidence.set_index("check")
        assert rows.loc[["injection"], "passed"].all()
        assert rows.loc[["recovery"], "passed"].all()
        assert episode.label.healthy_again_ns is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, spec in faults().items() if spec.gray])
def test_a_gray_fault_restarts_no_container_of_the_application(name: str, recorded: Recorded) -> None:
    for episode in recorded(name):
        services = set(episode.view.objects()["service"].dropna().astype(str)) - episode.rolled_out_services
        # whoever waits two seconds for its cache panics
        services -= {user for user in episode.consumers if "timeout" in episode.messages(user)}
        assert {service: count for service in services if (count := episode.most_restarts(service))} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in faults() if name not in UNFELT])
def test_the_fault_shows_at_the_client_or_at_its_target(name: str, recorded: Recorded) -> None:
    shown = []
    for episode in recorded(name):
        verdict, details = episode.label.verdict, episode.evidence["detail"].astype(str)
        is_open = verdict == "unknown" and details.str.contains(UNCALIBRATED, regex=False).any()
        # one operation that is seldom called, with a share of its calls disturbed: too few requests to tell
        is_rare = "path" in episode.parameters and episode.calls_of_path() < MIN_CALLS
        shown.append(is_open or is_rare or verdict in ("manifest", "latent"))
    # of several episodes one may have a fault that was drawn weak
    assert any(shown)
