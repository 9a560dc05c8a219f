from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

# networks of tests are tiny: compiling them costs more than running them
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# tests make many objects of few cycles: looking for those after every 700 objects took a tenth of the whole time
gc.set_threshold(50_000, 20, 50)

# what one test fits or reads must not reach another, nor the user's own folder
os.environ["FAULTSET_FITS_BYTES"] = os.environ["FAULTSET_LABELS_BYTES"] = "0"

# a shell that starts the tests in the background lets them, and every command they start, ignore Ctrl-C
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "baselines/test_contract.py",
    "collector/faults/test_fault_contract.py",
    "test_broken_plugins.py",
    "examples/test_examples.py",
    "notebooks/test_notebooks.py",
    "collector/platforms/local/test_platform.py",
    "evaluators/execution/runners/test_isolation.py",
)
"""Files that take long come first, so that processes which share the tests by files end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    folder = Path(__file__).parent
    place = {folder / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(scope="session", autouse=True)
def _no_syncs() -> Iterator[None]:
    """Do not wait for the disk, 5 ms for each file: what tests write need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test registries of its own: baselines and faults that it announces are forgotten when it ends."""
    from faultset.baselines import registry as baselines
    from faultset.collector.faults import registry as faults

    monkeypatch.setattr(baselines, "_announced", {**baselines.list_baselines()})
    monkeypatch.setattr(faults, "_faults", {**faults.faults()})
