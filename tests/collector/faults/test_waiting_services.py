"""Faults of services that wait for their database, and log that, in place of exiting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.pods import get_pod_name
from faultset.collector.faults.registry import faults
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal


@pytest.fixture
def platform(tmp_path: Path) -> FakePlatform:
    """SocialNetwork in memory."""
    made = FakePlatform(load_app("social"), Journal(tmp_path / "journal.jsonl"))
    made.deploy()
    return made


def log(platform: FakePlatform, pod: str, level: str, message: str, age_s: float = 1.0) -> None:
    """Write a line of a pod."""
    row = {"time": time.time_ns() - int(age_s * 1e9), "service": "s", "pod": pod, "container": "c", "level": level}
    platform.rows["logs"].append({**row, "message": message, "trace_id": None, "span_id": None})


@pytest.mark.parametrize(
    ("fault", "target", "parameters"),
    [
        ("auth-missing", "url-shorten-mongodb", {"restarted": ("url-shorten-service",)}),
        ("buggy-image", "url-shorten-service", {"image": "app:1.0.0"}),
    ],
)
def test_an_error_line_of_the_new_pod_confirms_the_fault(
    platform: FakePlatform, fault: str, target: str, parameters: dict[str, object]
) -> None:
    pod, check = get_pod_name(platform, "url-shorten-service"), faults()[fault].check
    platform.objects["Pod", pod]["status"]["containerStatuses"][0]["image"] = "faultset/app:1.0.0"
    log(platform, get_pod_name(platform, "text-service"), "error", "of another service")
    log(platform, pod, "info", "Starting")
    log(platform, pod, "error", "long ago", age_s=300.0)
    observe = faults()[fault].observe
    before = observe(platform, target) if observe else None
    log(platform, pod, "error", "of before the injection", age_s=2.0 if observe else 120.0)
    assert check(platform, target, parameters, before) is None
    log(platform, pod, "error", "Failed to create mongodb index, try again", age_s=0.0)
    found = check(platform, target, parameters, before)
    assert found is not None
    assert found.endswith("logs: Failed to create mongodb index, try again")
