"""Check the contracts of the host and of the platform."""

from __future__ import annotations

from pathlib import Path

from quick_machine.host import QuickMachineHost

from faultset.collector.apps import load_app
from faultset.collector.testing import check_host, check_platform


def test_the_host_meets_the_contract() -> None:
    check_host(QuickMachineHost(episodes=2))


def test_the_platform_meets_the_contract(tmp_path: Path) -> None:
    host = QuickMachineHost()
    check_platform(
        lambda folder, journal: host.create_platform(
            load_app("hotel"), folder, journal, episode="check", seed=1, step_s=1.0
        ),
        tmp_path,
    )
