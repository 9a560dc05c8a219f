"""What begins often imports little."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
