"""A fault tried once, on a platform in memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.collector.apps import load_app
from faultset.collector.episodes.fault_steps import try_on_platform
from faultset.collector.faults.registry import FaultSpec, get_fault
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal
from faultset.core.errors import PlatformError


def trial_of(spec: FaultSpec, folder: Path, confirm_s: float = 10.0):
    platform = FakePlatform(load_app("hotel"), Journal(folder / "journal.jsonl"))
    return platform, try_on_platform(spec, "geo", platform, seed=1, warm_s=0, confirm_s=confirm_s, poll_s=0.01)


def test_a_fault_is_injected_confirmed_and_undone(tmp_path: Path) -> None:
    platform, trial = trial_of(get_fault("target-port"), tmp_path)
    assert trial.evidence == f"Service geo points to port {trial.parameters['target_port']}"
    assert trial.recovered_s is not None
    assert platform.get("Service", "geo")["spec"]["ports"][0]["targetPort"] == 8083


def test_a_fault_that_nothing_shows_is_undone_without_evidence(tmp_path: Path) -> None:
    spec = replace(get_fault("target-port"), check=lambda platform, target, parameters, before: None)
    platform, trial = trial_of(spec, tmp_path, confirm_s=0.05)
    assert trial.evidence is None
    assert trial.confirmed_s is None
    assert platform.get("Service", "geo")["spec"]["ports"][0]["targetPort"] == 8083


def test_a_check_that_still_sees_the_fault_after_the_undo_is_an_error(tmp_path: Path) -> None:
    spec = replace(get_fault("target-port"), check=lambda platform, target, parameters, before: "always")
    with pytest.raises(PlatformError, match="must be gone after the undo, but its check still detects it: always"):
        trial_of(spec, tmp_path)


HEAVY = {
    "faultset.collector.episodes.messages": ("aiohttp", "click", "jsonpatch", "redis", "yaml"),
    "faultset.collector.campaigns.executors": ("aiohttp", "click", "jsonpatch", "redis", "yaml"),
    "faultset.collector.episodes.process": ("click", "jsonpatch", "faultset.collector.mitigation.commands"),
}


@pytest.mark.parametrize("module", HEAVY)
def test_a_module_brings_nothing_of_what_few_episodes_need(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY[module]!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.strip() == "[]"
