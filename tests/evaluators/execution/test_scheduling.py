"""Episodes of one task: which of them methods that come with faultset look at in one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from faultset.baselines.api.contract import Untrained
from faultset.core.errors import DataError
from faultset.core.landlock import landlock_version
from faultset.evaluators.execution.batches import method_process
from faultset.evaluators.execution.dataset_source import EpisodeLocation
from faultset.evaluators.execution.runners.messages import RunLimits
from faultset.evaluators.execution.runners.runner_process import RunnerProcess
from faultset.evaluators.execution.scheduling import _run_all

from ..conftest import make_truth
from .detection_requests import detection_request


class FakeBatch:
    def __init__(self, episode: str, *, remote: bool = False, damaged: bool = False) -> None:
        self.truth = make_truth(episode)
        self.location = EpisodeLocation(folder=f"/data/{episode}", files={"a": "b"} if remote else {})
        self.damaged = damaged
        self.neighbours: tuple[str, ...] | None = None

    def __call__(self, context: object, *, neighbours: tuple[str, ...]) -> list[str]:
        self.neighbours = neighbours
        if self.damaged:
            raise DataError("torn")
        return [self.truth.episode]


def test_batches_of_a_task_know_the_folders_of_all_its_episodes() -> None:
    batches = [FakeBatch("one"), FakeBatch("far", remote=True), FakeBatch("two")]
    rows, damage = _run_all(batches, None)  # type: ignore[arg-type]
    assert (rows, damage) == (["one", "far", "two"], {})
    assert {batch.neighbours for batch in batches} == {("/data/one", "/data/two")}


def test_a_damaged_episode_costs_only_its_own_rows() -> None:
    rows, damage = _run_all([FakeBatch("one", damaged=True), FakeBatch("two")], None)  # type: ignore[arg-type]
    assert rows == ["two"]  # type: ignore[comparison-overlap]
    assert {episode: str(error) for episode, error in damage.items()} == {"one": "torn"}


class ProcessReporter(Untrained):
    """Says in which process it is asked, and which other episode it can read."""

    def __init__(self, others: list[str]) -> None:
        self.others = others

    def detect(self, episode: Any) -> Any:
        read = sum(_readable(other) for other in self.others)
        raise RuntimeError(f"{os.getpid()} {read} {len(episode.metrics())}")


def _readable(folder: str) -> bool:
    try:
        Path(folder, "context.json").read_bytes()
    except OSError:
        return False
    return True


class FakeRun:
    name, seed, tables, places = "process-reporter", 0, ("metrics",), (__file__,)

    def __init__(self, *, built_in: bool) -> None:
        self.built_in = built_in


class FakeContext:
    hidden = ()


@pytest.fixture
def runner():
    made = RunnerProcess()
    made.start()
    yield made
    made.close()


def process_reports(runner: RunnerProcess, folders: list[str], *, built_in: bool) -> list[tuple[str, str]]:
    found = []
    for folder in folders:
        process = method_process(FakeRun(built_in=built_in), [folder], folders, FakeContext())  # type: ignore[arg-type]
        reporter = ProcessReporter([one for one in folders if one != folder])
        request = detection_request("process-reporter", reporter, process, folder)
        outcome = runner.run(request, RunLimits(timeout_s=20.0))
        assert outcome.status == "error", outcome
        kind, pid, others, rows, *_ = outcome.reason.split()
        assert (kind, int(rows) > 0) == ("RuntimeError:", True)
        found.append((pid, others))
    return found


@pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")
@pytest.mark.parametrize(("built_in", "processes", "others"), [(True, 1, "2"), (False, 3, "0")])
def test_only_methods_that_come_with_faultset_go_on_in_one_process_and_see_its_episodes(
    runner: RunnerProcess, example_dataset: Path, built_in: bool, processes: int, others: str
) -> None:
    folders = [str(path) for path in sorted((example_dataset / "episodes").iterdir())[:3]]
    found = process_reports(runner, folders, built_in=built_in)
    assert len({pid for pid, _ in found}) == processes
    assert {seen for _, seen in found} == {others}
