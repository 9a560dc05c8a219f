"""The page on writing a fault shows one that works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from faultset.collector.apps import load_app
from faultset.collector.faults import registry
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal.journal import Journal

PAGE = (Path(__file__).parents[3] / "docs" / "write-a-fault.md").read_text()


def test_the_example_breaks_is_confirmed_and_is_undone(tmp_path: Path, monkeypatch) -> None:
    registry.faults()
    monkeypatch.setattr(registry, "_faults", dict(registry._faults))
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code
    exec(code[1], {"__name__": "my_package.stray_selector"})
    spec = registry.get_fault("stray-selector")
    platform = FakePlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    platform.deploy()
    before = platform.get("Service", "geo")
    parameters = spec.inject(platform, "geo", np.random.default_rng(0))
    assert spec.check(platform, "geo", parameters, None)
    platform.undo()
    assert platform.get("Service", "geo") == before
    assert spec.check(platform, "geo", parameters, None) is None


def test_the_example_takes_about_twenty_lines() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code
    assert len([line for line in code[1].splitlines() if line.strip()]) <= 25
