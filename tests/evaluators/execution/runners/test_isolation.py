"""A method reaches its view and nothing else: not the truth, not the data's files, not the next method."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pandas as pd
import pytest

from faultset.baselines.contract import Detection
from faultset.baselines.registry import BaselineSpec
from faultset.core.landlock import landlock_version
from faultset.evaluators.execution.runners import baseline_worker, process_trees
from faultset.evaluators.execution.runners.messages import Blob, FitRequest, MethodProcess, RunLimits, RunnerOutcome
from faultset.evaluators.execution.runners.runner_process import MARK, RunnerProcess, next_number

from ..detection_requests import detection_request

confined = pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")
signals_confined = pytest.mark.skipif(landlock_version() < 6, reason="the kernel cannot confine signals")


class Method:
    """Does what its parameter says, and answers."""

    name: str = "method"
    needs: frozenset[str] = frozenset()
    tables: tuple[str, ...] = ("metrics",)

    def __init__(self, action: Any) -> None:
        self.action = action

    def fit(self, healthy: Any) -> Any:
        return self

    def detect(self, episode: Any) -> Detection:
        found = self.action(episode)
        return Detection.silent(float(found) if isinstance(found, int | float) else 0.0)


@pytest.fixture(scope="module", autouse=True)
def _classes_travel_by_value() -> Iterator[None]:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture(scope="module")
def runner() -> Iterator[RunnerProcess]:
    made = RunnerProcess()
    made.start()
    yield made
    made.close()


@pytest.fixture
def episode(example_dataset: Path) -> Path:
    return next(iter(sorted((example_dataset / "episodes").iterdir())))


def answer(runner: RunnerProcess, episode: Path, action: Any, name: str = "m", *hidden: Path) -> RunnerOutcome:
    process = MethodProcess(
        key=f"{name} {episode}",
        built_in=False,
        episodes=(str(episode),),
        tables=("metrics",),
        code=(__file__,),
        hidden=tuple(map(str, hidden)),
    )
    request = detection_request(name, Method(action), process, str(episode))
    return runner.run(request, RunLimits(timeout_s=20.0))


def content(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def looks(episode: Any) -> int:
    return len(episode.metrics().to_numpy())


def test_a_patched_library_does_not_reach_the_next_method(runner: RunnerProcess, episode: Path):
    def patch(view: Any) -> None:
        def broken(self: Any) -> None:
            raise RuntimeError("patched")

        pd.DataFrame.to_numpy = broken  # type: ignore[method-assign]

    assert answer(runner, episode, patch, "patches").status == "ok"
    assert answer(runner, episode, looks, "looks").status == "ok"


def test_a_thread_that_was_left_does_not_reach_the_next_method(runner: RunnerProcess, episode: Path):
    def leave(view: Any) -> None:
        threading.Timer(0.3, lambda: os._exit(3)).start()

    assert answer(runner, episode, leave, "leaves").status == "ok"
    assert answer(runner, episode, lambda view: time.sleep(0.6), "sleeps").status == "ok"


def test_memory_that_was_kept_is_not_charged_to_the_next_method(runner: RunnerProcess, episode: Path):
    def keep(view: Any) -> None:
        sys.modules["builtins"].kept = bytearray(260 << 20)  # type: ignore[attr-defined]

    before = answer(runner, episode, looks, "before").peak_bytes
    assert answer(runner, episode, keep, "keeps").peak_bytes > before + (200 << 20)
    assert answer(runner, episode, looks, "after").peak_bytes < before + (30 << 20)


@confined
def test_locks_between_processes_are_refused_in_a_sentence(runner: RunnerProcess, episode: Path):
    def share(view: Any) -> None:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(1) as pool:
            pool.submit(int).result()

    outcome = answer(runner, episode, share, "shares")
    assert outcome.status == "error"
    assert outcome.reason.startswith("a method cannot share locks between processes (ProcessPoolExecutor, multi")


def test_what_a_method_leaves_running_is_ended(runner: RunnerProcess, episode: Path):
    def fork(view: Any) -> int:
        child = os.fork()
        if child == 0:
            os.setsid()
            time.sleep(600)
        return child

    found = answer(runner, episode, fork, "forks")
    assert found.status == "ok"
    assert answer(runner, episode, looks, "looks").status == "ok"
    assert runner._process is not None
    running = [p for p in process_trees.descendants(runner._process.pid) if not process_trees.is_zombie(p)]
    assert len(running) == 1, "the last method"


@confined
@pytest.mark.parametrize(
    "path", ["truth/label.parquet", "telemetry/logs.parquet", "../../versions/1.0.0.json", "../../README.md"]
)
def test_the_truth_and_what_was_not_declared_cannot_be_read(runner: RunnerProcess, episode: Path, path: str):
    wanted = str(episode / path)
    assert os.path.exists(wanted)
    outcome = answer(runner, episode, lambda view: len(Path(wanted).read_bytes()), "reads")
    assert (outcome.status, outcome.reason.partition(":")[0]) == ("error", "PermissionError")


@confined
def test_other_episodes_and_earlier_results_cannot_be_read(runner: RunnerProcess, episode: Path, tmp_path: Path):
    other = next(path for path in episode.parent.iterdir() if path != episode) / "telemetry" / "metrics.parquet"
    results = tmp_path / "results.parquet"
    results.write_text("truth")
    for place in (other, results):
        outcome = answer(runner, episode, lambda view, place=place: len(place.read_bytes()), "reads", results)
        assert outcome.reason.startswith("PermissionError")


@confined
def test_a_folder_of_code_around_the_dataset_does_not_open_it(
    runner: RunnerProcess, example_dataset: Path, episode: Path
):
    hidden = [str(path) for path in (example_dataset / "episodes", example_dataset / "versions")]
    allowed, listed = baseline_worker._list_readable(os.path.realpath(example_dataset.parent), hidden)
    assert not any(str(example_dataset / "episodes").startswith(path) for path in allowed)
    assert os.path.realpath(example_dataset) in listed
    assert baseline_worker._list_readable("/usr", hidden) == (["/usr"], [])


@confined
def test_telemetry_cannot_be_changed(runner: RunnerProcess, example_dataset: Path, episode: Path):
    def flip(view: Any) -> None:
        with (episode / "telemetry" / "metrics.parquet").open("r+b") as file:
            file.write(b"x")

    def remove(view: Any) -> None:
        (episode / "telemetry" / "metrics.parquet").unlink()

    before = content(example_dataset)
    for action in (flip, remove, lambda view: (episode / "new").mkdir()):
        assert answer(runner, episode, action, "writes").reason.startswith("PermissionError")
    assert content(example_dataset) == before


def test_an_undeclared_table_is_not_served(runner: RunnerProcess, episode: Path):
    outcome = answer(runner, episode, lambda view: len(view.logs()), "reads")
    assert outcome.status == "error"
    assert outcome.reason.startswith('UndeclaredTable: reads the table "logs" but does not declare it in tables')


@pytest.mark.parametrize("garbage", [b"\x80\x04garbage", b"\0\0\0\4junk\0\0\0\0", b"\0\0\0\2{}\0\0\0\0", b"\xff" * 64])
def test_bytes_in_the_pipe_cost_the_method_its_answer_and_nobody_else(
    runner: RunnerProcess, episode: Path, garbage: bytes
):
    def write(view: Any) -> None:
        for name in os.listdir("/proc/self/fd"):
            try:
                if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                    os.write(int(name), garbage)
            except OSError:
                continue
        os._exit(0)

    outcome = answer(runner, episode, write, "writes")
    assert outcome.status in ("error", "exit")
    assert answer(runner, episode, looks, "looks").status == "ok"


def test_an_answer_is_never_unpickled_outside_of_the_method(runner: RunnerProcess, episode: Path, tmp_path: Path):
    mark = tmp_path / "mark"

    class Model:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {mark}",)

    class Fits(Method):
        def fit(self, healthy: Any) -> Any:
            return Model()

    spec = BaselineSpec(name="fits", task="detection", tables=(), factory=lambda: Fits(None))
    process = MethodProcess(key="fits", built_in=False, episodes=(), tables=(), code=())
    request = FitRequest(
        number=next_number(), process=process, spec=Blob.of(cloudpickle.dumps(spec)), seed=0, episodes=()
    )
    outcome = runner.run(request, RunLimits(timeout_s=20.0))
    assert outcome.status == "ok"
    assert outcome.model
    assert not mark.exists()


@signals_confined
def test_the_fork_server_cannot_be_killed(runner: RunnerProcess, episode: Path):
    assert runner._process is not None
    server = runner._process.pid
    outcome = answer(runner, episode, lambda view: os.kill(server, signal.SIGKILL), "kills")
    assert outcome.reason.startswith("PermissionError")


def test_what_lives_on_after_its_fork_server_was_killed_is_found_and_ended(episode: Path):
    runner = RunnerProcess()
    try:
        assert answer(runner, episode, looks).status == "ok"
        assert runner._process is not None

        def detach(view: Any) -> None:
            if os.fork() == 0:
                os.setsid()
            time.sleep(60)

        killer = threading.Timer(0.5, os.kill, (runner._process.pid, signal.SIGKILL))
        killer.start()
        outcome = answer(runner, episode, detach, "detaches")
        killer.join()
        assert outcome.status == "exit"
        assert answer(runner, episode, looks).status == "ok"
        assert runner._process is not None
        own = {runner._process.pid, *process_trees.descendants(runner._process.pid)}
        assert set(_marked(f"{MARK}={runner._mark}")) <= own
    finally:
        runner.close()


def _marked(variable: str) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and variable.encode() in (folder / "environ").read_bytes():
                yield int(folder.name)
        except OSError:
            continue


def test_a_kernel_that_cannot_confine_is_said_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(baseline_worker, "landlock_version", lambda: 0)
    assert baseline_worker.describe_confinement().startswith("not isolated")
