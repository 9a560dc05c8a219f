"""Batches are grouped for dask, which runs in this process or elsewhere, and its page is linked where there is one."""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
import tempfile
import tomllib
import urllib.request
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from faultset.baselines.contract import TrainingFreeBaseline
from faultset.core.errors import DataError, PlatformError
from faultset.core.landlock import landlock_version
from faultset.evaluators.execution.batches import method_process
from faultset.evaluators.execution.dataset_source import EpisodeLocation
from faultset.evaluators.execution.runners.baseline_worker import NOT_ISOLATED
from faultset.evaluators.execution.runners.messages import RunLimits
from faultset.evaluators.execution.runners.runner_process import RunnerProcess
from faultset.evaluators.execution.scheduling import (
    _run_all,
    check_address_space,
    describe_isolation,
    find_dashboard,
    local_client,
)
from tests.evaluators.conftest import make_truth
from tests.evaluators.execution.detection_requests import detection_request


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


class ProcessReporter(TrainingFreeBaseline):
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
    name, seed, tables, code_paths = "process-reporter", 0, ("metrics",), (__file__,)

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


ISOLATED = "isolated"
ELSEWHERE = f"{NOT_ISOLATED}: this kernel has no Landlock"


def test_a_local_client_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    with local_client(1) as client:
        [folder] = tmp_path.iterdir()
        assert folder.name.startswith("faultset-dask-")
        assert client.submit(lambda: 5).result() == 5
    assert not list(tmp_path.iterdir())


def test_a_limit_on_address_space_that_is_too_low_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2_000_000_000, resource.RLIM_INFINITY))
    with pytest.raises(PlatformError, match=r"the limit \(ulimit -v\) is 2.0 GB; raise it, or give fewer workers"):
        check_address_space(2)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    check_address_space(64)


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ({"tcp://a:1": ISOLATED, "tcp://b:1": ISOLATED}, ISOLATED),
        (
            {"tcp://a:1": ISOLATED, "tcp://c:1": ELSEWHERE, "tcp://b:1": ELSEWHERE},
            f"{ELSEWHERE} (2 of 3 workers, first: tcp://b:1)",
        ),
        ({"tcp://a:1": ELSEWHERE}, f"{ELSEWHERE} (1 of 1 worker, first: tcp://a:1)"),
    ],
)
def test_one_worker_that_cannot_isolate_methods_is_said(workers: dict[str, str], said: str) -> None:
    client: Any = SimpleNamespace(cluster=None, run=lambda function: workers)
    assert describe_isolation(client) == said


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def client():
    with local_client(1) as found:
        yield found


def with_bokeh(monkeypatch, spec: ModuleSpec | None) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: spec if name == "bokeh" else real(name, *rest))


def test_without_bokeh_no_link_is_given(client, monkeypatch) -> None:
    with_bokeh(monkeypatch, None)
    assert find_dashboard(client) is None


def test_with_bokeh_the_link_is_where_the_scheduler_listens(client, monkeypatch) -> None:
    with_bokeh(monkeypatch, ModuleSpec("bokeh", None))
    link = find_dashboard(client)
    assert link is not None
    assert link.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(link.removesuffix("/status") + "/health") as reply:
        assert reply.read() == b"ok"


def test_the_extra_brings_what_dask_asks_for() -> None:
    versions = pytest.importorskip("distributed.versions")
    if not hasattr(versions, "BOKEH_REQUIREMENT"):
        pytest.skip("this release of dask does not tell")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (named,) = project["optional-dependencies"]["dashboard"]
    ours, asked = Requirement(named), versions.BOKEH_REQUIREMENT
    assert (ours.name, asked.name) == ("bokeh", "bokeh")
    assert all(asked.specifier.contains(spec.version) for spec in ours.specifier)
