"""A baseline that misbehaves costs one row, never the evaluation."""

from __future__ import annotations

import os
import re
import signal
import struct
import time
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, Literal

import cloudpickle
import pytest

from faultset.baselines.contract import Detection, Ranking
from faultset.baselines.registry import BaselineSpec
from faultset.evaluators.execution.runners import process_trees, runner_process
from faultset.evaluators.execution.runners.messages import (
    Action,
    AnswerRequest,
    Blob,
    FitRequest,
    MethodProcess,
    RunLimits,
    RunnerOutcome,
)
from faultset.evaluators.execution.runners.runner_process import RunnerPool, RunnerProcess, limit_transfers, next_number

pytestmark = pytest.mark.usefixtures("module_by_value")


class Calm:
    """Answers as it should."""

    name, needs, tables = "calm", frozenset(), ()

    def fit(self, healthy) -> Any:
        return self

    def detect(self, episode) -> Any:
        return Detection.silent()

    def localize(self, episode, alarm_ns) -> Any:
        return Ranking.of(dict.fromkeys(episode.services, 1.0), episode.services)


class Hangs(Calm):
    def detect(self, episode):
        while True:
            time.sleep(60)


class Raises(Calm):
    def detect(self, episode):
        raise ZeroDivisionError("no samples")


class RaisesSystemExit(Calm):
    def detect(self, episode):
        raise SystemExit(3)


class Exits(Calm):
    def detect(self, episode):
        print("about to leave", flush=True)
        os._exit(7)


class Forks(Calm):
    """Comes back twice, and leaves a process behind in a session of its own."""

    def detect(self, episode):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
        return Detection.silent()


class EatsMemory(Calm):
    def detect(self, episode):
        kept = []
        while True:
            kept.append(bytearray(20 << 20))
            time.sleep(0.001)


class NeverStopsPrinting(Calm):
    def detect(self, episode):
        while True:
            print("x" * 10_000)


class AnswersNonsense(Calm):
    def detect(self, episode):
        return 42


class AnswersNotANumber(Calm):
    def localize(self, episode, alarm_ns):
        return Ranking(scores={episode.services[0]: float("nan")})


class NamesStrangers(Calm):
    def localize(self, episode, alarm_ns):
        return Ranking(scores={"nobody": 1.0})


class ReadsRequests(Calm):
    def detect(self, episode):
        return Detection.silent(float(len(episode.requests())))


class FitsToNothing(Calm):
    def fit(self, healthy):
        return None


def spec_of(cls: type, *needs: str) -> BaselineSpec:
    return BaselineSpec(name=cls.__name__.lower(), task="detection", tables=(), needs=frozenset(needs), factory=cls)


def ask(
    runner: RunnerProcess, dataset: Path, cls: type, kind: Action | Literal["fit"] = "detect", *needs: str, **limits
) -> RunnerOutcome:
    folder = next(iter(sorted((dataset / "episodes").iterdir())))
    spec = Blob.of(cloudpickle.dumps(spec_of(cls, *needs)))
    tables = ("metrics", *(["requests"] if "sli" in needs else []))
    places = (__file__,)
    process = MethodProcess(key=cls.__name__, built_in=False, episodes=(str(folder),), tables=tables, code=places)
    request: FitRequest | AnswerRequest
    if kind == "fit":
        request = FitRequest(number=next_number(), process=process, spec=spec, seed=0, episodes=(str(folder),))
    else:
        model = Blob.of(cloudpickle.dumps(cls()))
        request = AnswerRequest(
            number=next_number(),
            process=process,
            action=kind,
            spec=spec,
            model=model,
            seed=0,
            episode=str(folder),
            alarm_ns=1,
        )
    return runner.run(request, RunLimits(**{"timeout_s": 30.0, **limits}))


def test_an_answer_is_plain_data(runner: RunnerProcess, example_dataset: Path):
    outcome = ask(runner, example_dataset, Calm)
    assert outcome.status == "ok"
    assert outcome.answer is not None
    assert outcome.answer.alarm_ns is None
    assert outcome.peak_bytes > 0


def test_a_baseline_that_raises_is_an_error_with_its_place(runner: RunnerProcess, example_dataset: Path):
    outcome = ask(runner, example_dataset, Raises)
    assert outcome.status == "error"
    assert outcome.reason.startswith("ZeroDivisionError: no samples in Raises.detect (")
    assert re.search(r"\((test_runner_process\.py:|line )\d+\)$", outcome.reason)
    assert ask(runner, example_dataset, RaisesSystemExit).status == "error"


def test_nonsense_is_an_invalid_answer(runner: RunnerProcess, example_dataset: Path):
    assert ask(runner, example_dataset, AnswersNonsense).reason == "a detector must return a Detection, got int"
    nan = ask(runner, example_dataset, AnswersNotANumber, "localize")
    assert (nan.status, "is NaN" in nan.reason) == ("invalid", True)
    strangers = ask(runner, example_dataset, NamesStrangers, "localize")
    assert strangers.reason == "none of the named services exists: nobody"
    assert ask(runner, example_dataset, FitsToNothing, "fit").status == "invalid"


def test_client_requests_are_closed_to_methods_that_did_not_declare_them(runner: RunnerProcess, example_dataset: Path):
    outcome = ask(runner, example_dataset, ReadsRequests)
    assert outcome.status == "error"
    assert "does not declare" in outcome.reason
    assert ask(runner, example_dataset, ReadsRequests, "detect", "sli").status == "ok"


def test_a_baseline_that_ends_its_process_is_a_row_and_the_next_one_runs(runner: RunnerProcess, example_dataset: Path):
    outcome = ask(runner, example_dataset, Exits)
    assert outcome.status == "exit"
    assert outcome.reason == "its process ended with code 7; last output: about to leave"
    assert ask(runner, example_dataset, Calm).status == "ok"


def test_a_baseline_that_hangs_is_ended(runner: RunnerProcess, example_dataset: Path):
    outcome = ask(runner, example_dataset, Hangs, timeout_s=0.3)
    assert (outcome.status, outcome.reason) == ("timeout", "no answer after 0.3 s")


@pytest.mark.slow
def test_a_baseline_that_never_stops_printing_is_ended(runner: RunnerProcess, example_dataset: Path):
    assert ask(runner, example_dataset, NeverStopsPrinting).status == "output"


@pytest.mark.slow
def test_a_baseline_that_eats_memory_is_ended(runner: RunnerProcess, example_dataset: Path):
    outcome = ask(runner, example_dataset, EatsMemory, memory_bytes=500 << 20)
    assert outcome.status == "memory"
    assert 500 << 20 < outcome.peak_bytes < 2 << 30


@pytest.mark.slow
def test_what_a_baseline_leaves_running_is_ended(example_dataset: Path):
    runner = RunnerProcess()
    try:
        assert ask(runner, example_dataset, Forks).status == "ok"
        process = runner._process
        assert process is not None

        def living() -> list[int]:
            return [pid for pid in process_trees.descendants(process.pid) if not process_trees.is_zombie(pid)]

        # the answer is passed on first, what was left is ended after it
        deadline = time.monotonic() + 5
        while len(living()) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(living()) <= 1
    finally:
        runner.close()
    assert process.poll() is not None


def test_a_runner_that_was_closed_leaves_no_temporary_folder(
    example_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    runner = RunnerProcess()
    try:
        assert ask(runner, example_dataset, Calm).status == "ok"
        assert list(tmp_path.glob("faultset-methods-*"))
    finally:
        runner.close()
    assert not list(tmp_path.glob("faultset-methods-*"))


def test_a_server_that_stops_in_the_middle_of_a_message_counts_as_gone():
    ours, theirs = Pipe()
    with ours, theirs:
        limit_transfers(ours, 1)
        os.write(theirs.fileno(), struct.pack("!i", 100) + b"half")
        with pytest.raises(BlockingIOError):
            ours.recv_bytes()


def test_nothing_is_left_of_a_runner_whose_evaluation_is_killed(example_dataset: Path):
    runner = RunnerProcess()
    assert ask(runner, example_dataset, Calm).status == "ok"
    process = runner._process
    assert process is not None
    assert process.stdin is not None
    below = process_trees.descendants(process.pid)
    assert below
    os.kill(below[0], signal.SIGSTOP)
    # the kernel closes what the evaluation had open, and nothing else happens
    process.stdin.close()
    assert process.wait(10) == 0
    assert all(process_trees.is_zombie(pid) for pid in below)
    runner.close()


class _Runner:
    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    close = stop


def test_runners_that_were_started_ahead_are_not_started_again(monkeypatch: pytest.MonkeyPatch):
    made: list[_Runner] = []

    def start() -> _Runner:
        made.append(_Runner())
        return made[-1]

    monkeypatch.setattr(runner_process, "RunnerProcess", start)
    pool = RunnerPool()
    pool.prestart(2)
    pool.prestart(2)
    with pool.lend("one"), pool.lend("two"):
        assert len(made) == 2
    pool.close()
