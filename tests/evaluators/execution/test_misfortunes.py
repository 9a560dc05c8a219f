"""Workers, schedulers, methods and evaluations that end before their time: what is lost, and what comes of the rest."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from faultset.baselines.contract import Detection, TrainingFreeBaseline
from faultset.baselines.registry import BaselineSpec, get_baseline
from faultset.core.errors import PlatformError
from faultset.core.landlock import landlock_version
from faultset.datasets.dataset import open_dataset
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.method_runs import Checkpoint
from faultset.evaluators.execution.plan import EvaluationPlan, make_plan
from faultset.evaluators.execution.runners.messages import RunLimits
from faultset.evaluators.execution.scheduling import local_client, remote_client, run_plan
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from faultset.evaluators.results.rows import ResultRow

NAMES = ("ksigma", "always-yes", "random", "max-z")


class Calm(TrainingFreeBaseline):
    """Says no after a moment."""

    name: str = "calm"
    needs: frozenset[str] = frozenset()
    tables: tuple[str, ...] = ()

    def detect(self, episode) -> Detection:
        time.sleep(0.05)
        return Detection.silent()


class Hangs(Calm):
    def detect(self, episode) -> Detection:
        while True:
            time.sleep(60)


class EatsMemory(Calm):
    def detect(self, episode) -> Detection:
        kept = []
        while True:
            kept.append(b"0123456789" * (2 << 20))


class Exits(Calm):
    def detect(self, episode) -> Detection:
        os._exit(7)


class PrintsAGigabyte(Calm):
    def detect(self, episode) -> Detection:
        for _ in range(1 << 10):
            sys.stdout.write("x" * (1 << 20))
        return Detection.silent()


class Forks(Calm):
    def detect(self, episode) -> Detection:
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
        return Detection.silent()


class KillsTheWatch(Calm):
    def detect(self, episode) -> Detection:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
        return Detection.silent()


BAD = (Hangs, EatsMemory, Exits, PrintsAGigabyte, Forks, KillsTheWatch)


@pytest.fixture(scope="module", autouse=True)
def _classes_travel_by_value() -> Iterator[None]:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def spec_of(cls: type) -> BaselineSpec:
    return BaselineSpec(name=cls.__name__.lower(), task="detection", tables=(), factory=cls)


def plan_of(dataset: Path, specs: Any = NAMES, workers: int = 2, kept: Any = (), **settings: Any) -> EvaluationPlan:
    found = [get_baseline(spec) if isinstance(spec, str) else spec for spec in specs]
    source = DatasetSource.of(open_dataset(dataset))
    return make_plan(
        EvaluationScope(source=source, settings=EvaluationSettings(calibrate=True, **settings)),
        found,
        workers,
        reusable=kept,
    )


def answers(rows: list[ResultRow]) -> list[ResultRow]:
    measured = {"seconds": None, "cpu_seconds": None, "fit_seconds": None, "peak_bytes": None}
    return [dataclasses.replace(row, **measured) for row in sorted(rows, key=lambda row: row.key)]


@pytest.fixture(scope="module")
def expected(example_dataset: Path) -> list[ResultRow]:
    with local_client(2) as client:
        return answers(run_plan(plan_of(example_dataset), client))


@contextmanager
def dask_processes(workers: int) -> Iterator[tuple[str, subprocess.Popen[str], list[subprocess.Popen[str]]]]:
    """A scheduler and workers as on a cluster: processes of their own, on loopback."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "env": environment}
    dask = [sys.executable, "-m", "dask"]
    loopback = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = subprocess.Popen([*dask, "scheduler", *loopback, "--port", "0"], **quiet)
    started: list[subprocess.Popen[str]] = []
    try:
        assert scheduler.stderr is not None
        line = next(line for line in scheduler.stderr if "Scheduler at" in line)
        address = line.split()[-1]
        threading.Thread(target=scheduler.stderr.read, daemon=True).start()
        for _ in range(workers):
            command = [*dask, "worker", address, *loopback, "--nthreads", "1", "--no-nanny"]
            started.append(subprocess.Popen(command, **(quiet | {"stderr": subprocess.DEVNULL})))
        yield address, scheduler, started
    finally:
        for process in (*started, scheduler):
            process.kill()
            process.wait()
        if scheduler.stderr is not None:
            scheduler.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 8])
def test_any_number_of_workers_and_any_order_give_the_same_rows(example_dataset: Path, expected, workers: int):
    plan = plan_of(example_dataset, workers=workers)
    batches = list(plan.batches)
    random.Random(workers).shuffle(batches)
    with local_client(workers) as client:
        found = run_plan(dataclasses.replace(plan, batches=tuple(batches)), client)
    assert answers(found) == expected


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_time_and_no_row(example_dataset: Path, expected):
    with dask_processes(2) as (address, _, workers), remote_client(address, str(example_dataset)) as client:
        client.wait_for_workers(2)
        plan = plan_of(example_dataset, specs=(*NAMES, spec_of(Calm)))
        killed: list[int] = []

        def kill_one(rows: list[ResultRow]) -> None:
            if not killed:
                killed.append(workers[0].pid)
                workers[0].kill()

        found = run_plan(plan, client, keep=kill_one)
    assert killed
    assert answers([row for row in found if row.baseline != "calm"]) == expected


@pytest.mark.slow
def test_a_scheduler_that_is_lost_leaves_what_was_answered(example_dataset: Path, expected, tmp_path: Path):
    with dask_processes(1) as (address, scheduler, _), remote_client(address, str(example_dataset)) as client:
        plan = plan_of(example_dataset)
        with Checkpoint(tmp_path, {}) as checkpoint:
            checkpoint.begin({})

            def keep(rows: list[ResultRow]) -> None:
                checkpoint.add(rows)
                scheduler.kill()

            with pytest.raises(PlatformError, match=r"the dask scheduler is gone; [1-9][0-9]* of .* are stored"):
                run_plan(plan, client, keep=keep)
    truths = {truth.episode: truth for truth in plan.scope.source.truths}
    with Checkpoint(tmp_path, {}) as checkpoint:
        kept = checkpoint.begin(truths)
    assert 0 < len(kept) < len(expected)
    rest = plan_of(example_dataset, kept=kept)
    assert rest.answers == len(expected) - len(kept)
    with local_client(2) as client:
        assert answers(run_plan(rest, client)) == expected


@pytest.mark.slow
def test_methods_that_run_away_cost_a_row_each_and_nobody_else_notices(example_dataset: Path, expected):
    source = DatasetSource.of(open_dataset(example_dataset))
    truth = next(truth for truth in source.truths if truth.faulty)
    alone = dataclasses.replace(source, truths=(truth,))
    limits = RunLimits(timeout_s=20.0, memory_bytes=700 << 20)
    specs = [*map(get_baseline, NAMES), *map(spec_of, BAD)]
    plan = make_plan(EvaluationScope(source=alone, settings=EvaluationSettings(limits=limits)), specs, 1)
    with local_client(1) as client:
        rows = run_plan(plan, client)
    found = {row.baseline: (row.status, row.reason) for row in rows}
    assert found["hangs"] == ("timeout", "no answer after 20 s")
    assert found["eatsmemory"][0] == "memory"
    assert found["exits"][0] == "exit"
    assert found["killsthewatch"][0] == ("error" if landlock_version() >= 6 else "exit")
    assert found["printsagigabyte"] == ("output", "wrote more than 8 MiB of output")
    assert found["forks"][0] == "ok"
    good = [row for row in rows if row.baseline in NAMES]
    same = {(row.baseline, row.episode, row.protocol, row.seed): row for row in expected}
    assert len(good) == 2 + 5 * 2 + 3
    for row in answers(good):
        other = same[row.baseline, row.episode, row.protocol, row.seed]
        assert (row.status, row.answer, row.ranking) == (other.status, other.answer, other.ranking)


def test_an_interrupted_evaluation_asks_only_for_what_is_missing(example_dataset: Path, expected, tmp_path: Path):
    plan = plan_of(example_dataset)
    truths = {truth.episode: truth for truth in plan.scope.source.truths}
    done = [row for row in expected if row.baseline in ("ksigma", "max-z")]
    with Checkpoint(tmp_path, {"digest": "a"}) as checkpoint:
        checkpoint.begin(truths)
        checkpoint.add(done)
    with Checkpoint(tmp_path, {"digest": "a"}) as checkpoint:
        kept = checkpoint.begin(truths)
        assert sorted(kept, key=lambda row: row.key) == done
        rest = plan_of(example_dataset, kept=kept)
        asked = {rest.context.runs[n].name for batch in rest.batches for n in batch.runs}
        assert asked == {"always-yes", "random"}
        with local_client(1) as client:
            assert answers(run_plan(rest, client, keep=checkpoint.add)) == expected
        everything = plan_of(example_dataset, kept=expected)
        assert (everything.answers, everything.fits) == (0, ())
        checkpoint.remove()
    assert not (tmp_path / "results.partial.arrows").exists()
