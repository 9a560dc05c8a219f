"""Episodes are run as processes; what may succeed the next time is tried again, and what cannot is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.campaigns import episode_queue, executors
from faultset.collector.campaigns.episode_processes import EpisodeHost, EpisodeResult
from faultset.collector.campaigns.episode_queue import OWN_ATTEMPTS, EpisodeQueue, WaitingEpisode
from faultset.collector.campaigns.executors import CampaignProgress, LocalExecutor, run_episodes
from faultset.collector.episodes.host_pressure import CpuUse
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.plan import Plan
from faultset.datasets.dataset import open_dataset
from tests.collector.fake_episodes import FakeEpisodes, plans, wait_for
from tests.collector.plan_samples import PLAN

REPORTS = """
import sys
from faultset.collector.episodes.messages import EpisodeOutcome, encode_message
sys.stdin.readline()
print(encode_message(EpisodeOutcome({arguments})), end="")
"""


def free(most: int) -> EpisodeHost:
    """A machine with room for so many episodes."""
    return EpisodeHost(most, use=lambda window_s: CpuUse(waiting_share=0.0, free_cores=8.0), stagger_s=0.0)


def run_once(
    root: Path, *program: str, should_stop: Callable[[], bool] = lambda: False, **options: Any
) -> EpisodeResult:
    """Run the plan in processes of these arguments of the interpreter."""
    executor = LocalExecutor(free(1), root, {}, program=program, **options)
    try:
        (result,) = run_episodes([PLAN], executor, progress=lambda state: None, should_stop=should_stop)
    finally:
        executor.close()
    return result


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., EpisodeResult]:
    """Run the plan in processes that report an outcome with these fields."""

    def start(**fields: Any) -> EpisodeResult:
        arguments = ", ".join(f"{name}={value!r}" for name, value in {"episode": PLAN.episode, **fields}.items())
        return run_once(tmp_path, "-c", REPORTS.format(arguments=arguments))

    return start


def test_what_may_succeed_the_next_time_is_tried_again(run: Callable[..., EpisodeResult]) -> None:
    result = run(failure="geo was not healthy")
    assert (result.attempts, result.failure) == (OWN_ATTEMPTS, "geo was not healthy")


def test_every_void_attempt_is_in_the_result_with_its_cause(run: Callable[..., EpisodeResult]) -> None:
    result = run(failure="95 ms late", void_cause="host too busy")
    assert [(void.attempt, void.cause, void.has_fault) for void in result.voids] == [
        (attempt, "host too busy", True) for attempt in range(1, OWN_ATTEMPTS + 1)
    ]
    assert run(verdict="manifest").voids == ()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared out")
def test_episodes_at_the_same_time_run_on_different_cores(tmp_path: Path) -> None:
    host, sleep = free(2), ("-c", "import time; time.sleep(60)")
    episodes = [host.start(WaitingEpisode(plan=PLAN), tmp_path, {}, program=sleep) for _ in range(2)]
    try:
        cores = [os.sched_getaffinity(episode.process.pid) for episode in episodes if episode]
        assert len(cores) == 2
        assert cores[0].isdisjoint(cores[1])
        assert cores[0] | cores[1] == os.sched_getaffinity(0)
    finally:
        for episode in episodes:
            if episode:
                episode.process.kill()
                episode.finish(lambda name: None)


def test_what_would_fail_again_is_not_retried(run: Callable[..., EpisodeResult]) -> None:
    result = run(failure="KeyError: 'pod' (acme.py, line 7)", retriable=False)
    assert (result.attempts, result.failure) == (1, "KeyError: 'pod' (acme.py, line 7)")


def test_an_episode_that_succeeds_runs_once(run: Callable[..., EpisodeResult]) -> None:
    result = run(verdict="manifest", source_failures={"meter": "no answer"})
    assert (result.attempts, result.failure, result.verdict) == (1, "", "manifest")
    assert result.outcome.source_failures == {"meter": "no answer"}
    assert isinstance(result.outcome, EpisodeOutcome)
    assert isinstance(result.plan, Plan)


LEAVES = """
import os, signal, subprocess, sys, time
sys.stdin.readline()
child = subprocess.Popen(["sleep", "600"])
open({path!r}, "w").write(str(child.pid))
os.kill(os.getpid(), signal.{signal})
"""


@pytest.mark.parametrize(
    ("signal", "failure"),
    [
        ("SIGKILL", "the episode's process ended: killed by SIGKILL"),
        ("SIGSTOP", "the episode's process was stopped by a signal"),
    ],
)
def test_an_episode_that_was_killed_or_stopped_leaves_no_process_and_is_undone_at_once(
    signal: str, failure: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, removed = tmp_path / "pid", list[str]()
    monkeypatch.setattr(executors, "EpisodeQueue", lambda *arguments: EpisodeQueue(*arguments, pause_s=0.0))
    monkeypatch.setattr(episode_queue, "HOST_ATTEMPTS", 2)
    program = LEAVES.format(path=str(path), signal=signal)
    result = run_once(tmp_path, "-c", program, remove_lost=removed.append)
    assert result.failure.startswith(failure)
    assert removed == [PLAN.episode] * result.attempts
    assert result.attempts > 1
    assert not Path(f"/proc/{path.read_text()}").exists()


@pytest.fixture
def fake(tmp_path: Path) -> FakeEpisodes:
    return FakeEpisodes.make(tmp_path / "fake")


def test_an_error_in_the_campaign_ends_its_episodes(fake: FakeEpisodes, tmp_path: Path) -> None:
    fake.hold(PLAN)

    def fail(state: CampaignProgress) -> None:
        if state.running:
            wait_for(lambda: fake.runs(PLAN))
            raise KeyboardInterrupt

    executor = LocalExecutor(free(1), tmp_path, {}, program=fake.program)
    with pytest.raises(KeyboardInterrupt):
        run_episodes([PLAN], executor, progress=fail, should_stop=lambda: False)
    executor.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in fake.processes(PLAN))


def test_an_episode_holds_the_lock_of_the_dataset(fake: FakeEpisodes, tmp_path: Path) -> None:
    fake.hold(PLAN)
    with (tmp_path / "lock").open("w") as lock:
        executor = LocalExecutor(free(1), tmp_path, {}, program=fake.program, lock=lock.fileno())
        executor.start(WaitingEpisode(plan=PLAN))
        wait_for(lambda: fake.runs(PLAN))
        (pid,) = fake.processes(PLAN)
        held = [path.resolve() for path in Path(f"/proc/{pid}/fd").iterdir() if path.exists()]
        executor.close()
    assert (tmp_path / "lock").resolve() in held


def test_what_a_result_asks_for_runs_after_the_others(fake: FakeEpisodes, tmp_path: Path) -> None:
    first, second, further = plans(3)

    def handle_result(result: EpisodeResult) -> list[WaitingEpisode]:
        return [WaitingEpisode(plan=further)] if result.plan == first else []

    executor = LocalExecutor(free(1), tmp_path, {}, program=fake.program)
    results = run_episodes(
        [first, second], executor, progress=lambda state: None, should_stop=lambda: False, handle_result=handle_result
    )
    executor.close()
    assert [result.plan for result in results] == [first, second, further]


COLLECT = "from faultset.collector.cli.collect import collect; collect()"
OPTIONS = (
    "--faults target-port,pod-kill --apps hotel --normal 1 --seed 3 "
    "--warmup 6s --healthy 20s --faulty 20s --cooldown 2s -v"
).split()


@pytest.fixture
def busy_loops() -> Iterator[None]:
    """Keep every core busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.slow
def test_a_campaign_completes_while_another_process_keeps_all_cores_busy(busy_loops: None, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COLLECT, *OPTIONS, "--out", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    dataset = open_dataset(tmp_path / "data")
    assert len(dataset.episodes) == 3
    print(done.stderr)
