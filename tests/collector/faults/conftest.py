"""One real campaign of all faults, for the slow tests of what each shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.datasets.dataset import open_dataset
from tests.collector.faults.recorded_episodes import RecordedEpisode

Recorded = Callable[[str], list[RecordedEpisode]]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every fault of hotel with short phases; FAULTSET_SIGNATURES names a dataset to look at instead."""
    given = os.environ.get("FAULTSET_SIGNATURES")
    if given:
        return Path(given)
    root = tmp_path_factory.mktemp("signatures") / "data"
    command = "from faultset.collector.cli.collect import collect; collect()"
    options = ["--faults", "all", "--apps", "hotel", "--profile", "quick", "--normal", "2", "--seed", "11"]
    run = subprocess.run(
        [sys.executable, "-c", command, *options, "--out", str(root)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return root


@pytest.fixture(scope="session")
def recorded(dataset: Path) -> Recorded:
    """Return the episodes of a fault; the test is skipped where the platform cannot inject it."""
    found: dict[str, list[RecordedEpisode]] = {name: [] for name in faults()}
    opened = open_dataset(dataset)
    for episode in opened.episodes:
        label = opened.label(episode)
        if label.fault is not None:
            found[label.fault].append(RecordedEpisode(opened.path(episode)))

    def episodes_of(name: str) -> list[RecordedEpisode]:
        for campaign in (dataset / "campaigns").glob("*.json"):
            reason = json.loads(campaign.read_text()).get("refused", {}).get(name)
            if reason:
                pytest.skip(f"left out of the campaign: {reason}")
        apps = {opened[episode].context.app for episode in opened.episodes}
        if not any(faults()[name].targets(load_app(app)) for app in apps):
            pytest.skip(f"{name} has no target in {', '.join(sorted(apps))}; name a dataset of its application")
        assert found[name], f"no episode of {name} came to an end"
        return found[name]

    return episodes_of
