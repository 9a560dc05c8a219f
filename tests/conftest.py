from __future__ import annotations

import pytest


@pytest.fixture
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test registries of its own: baselines and faults that it announces are forgotten when it ends."""
    from faultset.baselines.api import registry as baselines
    from faultset.collector.faults import registry as faults

    monkeypatch.setattr(baselines, "_announced", {**baselines.list_baselines()})
    monkeypatch.setattr(faults, "_faults", {**faults.faults()})
