"""Rollouts beside a fault: of healthy builds, away from the fault, and such that clients notice nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from faultset.collector.apps import load_apps
from faultset.collector.episodes.harmless_changes import (
    LEAST_READINESS_DELAY_S,
    MOST_READINESS_DELAY_S,
    disturb,
    roll_out,
)
from faultset.collector.episodes.health import unready_workloads
from faultset.collector.faults.deployments import container_of
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.runtime.builds import GOOD

APPS = {name: app for name, app in load_apps().items() if app.deployed is None}


def deployed_platform(name: str, folder: Path) -> FakePlatform:
    platform = FakePlatform(APPS[name], Journal(folder / "journal.jsonl"))
    platform.deploy()
    return platform


@pytest.mark.parametrize("name", APPS)
def test_no_target_and_no_service_that_calls_one_is_rolled_out(name: str, tmp_path: Path) -> None:
    platform, rng = deployed_platform(name, tmp_path), np.random.default_rng(0)
    for target in platform.app.services:
        for _ in range(20):
            service = roll_out(platform, rng, [target]).get("service")
            assert service != target
            assert service not in platform.app.consumers(target)


@pytest.mark.parametrize("name", [name for name, app in APPS.items() if not app.components])
def test_what_is_rolled_out_is_another_good_build_that_is_asked_later_whether_it_is_ready(
    name: str, tmp_path: Path
) -> None:
    platform, rng = deployed_platform(name, tmp_path), np.random.default_rng(0)
    before = {service: container_of(platform, service) for service in platform.app.services}
    seen = set()
    for _ in range(60):
        made = roll_out(platform, rng, [])
        container = container_of(platform, made["service"])
        assert container["image"] == made["image"] != before[made["service"]]["image"]
        assert made["image"].rpartition(":")[2] in GOOD
        for port in before[made["service"]].get("ports", [])[:1]:
            probe = container["readinessProbe"]
            assert LEAST_READINESS_DELAY_S <= probe["initialDelaySeconds"] <= MOST_READINESS_DELAY_S
            assert "httpGet" in probe or probe["tcpSocket"]["port"] == port["containerPort"]
        before[made["service"]] = container
        seen.add(made["service"])
    assert len(seen) > 4


def test_a_rollout_in_place_of_a_fault_is_asked_for_its_readiness_too(tmp_path: Path) -> None:
    platform, rng = deployed_platform("hotel", tmp_path), np.random.default_rng(0)
    seen = 0
    for _ in range(20):
        made = disturb(platform, rng)
        if made["harmless_change"] == "rollout":
            container = container_of(platform, made["service"])
            assert container["image"] == made["image"]
            assert container["readinessProbe"]["initialDelaySeconds"] >= LEAST_READINESS_DELAY_S
            seen += 1
    assert 0 < seen < 20


def test_where_every_service_is_spared_nothing_is_rolled_out(tmp_path: Path) -> None:
    platform = deployed_platform("hotel", tmp_path)
    assert roll_out(platform, np.random.default_rng(0), list(platform.app.services)) == {}
    assert not [call for call in platform.calls if call[0] == "patch"]


def test_a_service_that_is_rolled_out_does_not_count_as_unready(tmp_path: Path) -> None:
    platform = deployed_platform("hotel", tmp_path)
    platform.objects["Deployment", "geo"]["status"] = {}
    assert unready_workloads(platform) == "geo not ready"
    assert unready_workloads(platform, {"geo"}) == ""
    assert unready_workloads(platform, {"rate"}) == "geo not ready"
