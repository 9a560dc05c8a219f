from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from faultset.datasets.examples import write_example_dataset
from faultset.evaluators.execution import scheduling
from faultset.evaluators.execution.runners import runner_process
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND
SERVICES = ("a", "b", "c", "d", "e")


_UNREAD = ("PYTEST_CURRENT_TEST", "TEST_MODEL_KEY", "FAULTSET_FITS", "FAULTSET_FITS_BYTES", "FAULTSET_LABELS_BYTES")
"""Variables that runners do not read."""


def _surroundings() -> tuple[dict[str, str], list[str]]:
    return {name: value for name, value in os.environ.items() if name not in _UNREAD}, list(sys.path)


@pytest.fixture(scope="session", autouse=True)
def _kept_runners() -> Iterator[None]:
    """Runner processes of one evaluation serve the next: starting them takes longer than most evaluations of tests.

    They are ended after all where they are at work, or where a test has changed what they inherit.
    """
    usual = _surroundings()
    close, machine_pool = runner_process.close_machine_pool, runner_process.machine_pool

    def close_unless_idle() -> None:
        pool = runner_process._pool
        if pool is not None and (len(pool._free) < len(pool._all) or _surroundings() != usual):
            close()

    def pool_for_surroundings() -> runner_process.RunnerPool:
        if _surroundings() != usual:
            close()
        return machine_pool()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scheduling, "close_machine_pool", close_unless_idle)
        patched.setattr(scheduling, "machine_pool", pool_for_surroundings)
        yield
    close()


@pytest.fixture(scope="module")
def module_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pickle classes and functions of the test's module by value, because runners cannot import it."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="module")
def runner() -> Iterator[runner_process.RunnerProcess]:
    """A runner process for the tests of a module."""
    made = runner_process.RunnerProcess()
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="session")
def example_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four synthetic episodes of forty seconds, two of them with a fault."""
    root = tmp_path_factory.mktemp("data") / "example"
    write_example_dataset(root, episodes=4, seed=1, baseline_s=20, fault_s=20)
    return root


def make_truth(episode: str = "e1", **changes: Any) -> Truth:
    """An episode of 100 s whose reference ends at 40 s and whose fault begins at 60 s."""
    values: dict[str, Any] = {
        "episode": episode,
        "app": "shop",
        "fault": "crash",
        "no_fault_kind": None,
        "targets": ("b",),
        "causes": (("b",),),
        "candidates": SERVICES,
        "system_level": "Application",
        "fault_type": "Code Defect",
        "verdict": "manifest",
        "profile": "standard",
        "view_start_ns": START,
        "view_end_ns": START + 100 * SECOND,
        "reference_end_ns": START + 40 * SECOND,
        "onset_ns": START + 60 * SECOND,
        "manifest_ns": START + 62 * SECOND,
    }
    return Truth(**(values | changes))


def make_healthy(episode: str = "h1", **changes: Any) -> Truth:
    """The same episode without a fault."""
    none: dict[str, Any] = {
        "fault": None,
        "no_fault_kind": "plain",
        "targets": (),
        "causes": (),
        "system_level": None,
        "fault_type": None,
        "verdict": "none",
        "onset_ns": None,
        "manifest_ns": None,
    }
    return make_truth(episode, **(none | changes))


def make_row(truth: Truth, baseline: str = "method", **changes: Any) -> ResultRow:
    """An answered row."""
    values: dict[str, Any] = {
        "baseline": baseline,
        "kind": "method",
        "needs": (),
        "settings": "0",
        "dataset": "shop-data",
        "version": "1.0.0",
        "split": "cross",
        "fold": 0,
        "task": "localization",
        "protocol": "detected",
        "seed": 0,
        "status": "ok",
        "seconds": 0.1,
        "truth": truth,
    }
    return ResultRow(**(values | changes))


def detection_row(truth: Truth, flagged: range | list[int], baseline: str = "method", **changes: Any) -> ResultRow:
    """A detector's row: one sample for each second after the reference, flagged in the seconds given."""
    seconds = range(41, 101)
    flags = [second in flagged for second in seconds]
    times = [START + second * SECOND for second in seconds]
    first = next((t for t, a, b in zip(times[1:], flags, flags[1:], strict=False) if a and b), None)
    answer = {
        "times_ns": times,
        "scores": [float(flag) for flag in flags],
        "flags": "".join("01"[flag] for flag in flags),
        "threshold": 0.5,
        "consecutive": 2,
        "evidence": [],
    }
    return make_row(truth, baseline, task="detection", alarm_ns=first, answer=answer, **changes)


@pytest.fixture
def make() -> type:
    """Builders of truths and rows."""

    class Make:
        truth: Callable[..., Truth] = staticmethod(make_truth)
        healthy: Callable[..., Truth] = staticmethod(make_healthy)
        row: Callable[..., ResultRow] = staticmethod(make_row)
        detection: Callable[..., ResultRow] = staticmethod(detection_row)

    return Make
