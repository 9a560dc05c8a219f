"""Episodes are run as processes; what may succeed the next time is tried again, and what cannot is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.campaigns import episode_processes, episode_queue, scheduler
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import OWN_ATTEMPTS, EpisodeQueue
from faultset.collector.campaigns.scheduler import run_episodes
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.plan import Plan
from tests.collector.plan_samples import PLAN

PROGRAM = """
import sys
from faultset.collector.episodes.messages import EpisodeOutcome, write_message
sys.stdin.readline()
print(write_message(EpisodeOutcome({arguments})), end="")
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., EpisodeResult]:
    """Run the plan in processes that report an outcome with these fields."""

    def start(**fields: Any) -> EpisodeResult:
        given = ", ".join(f"{name}={value!r}" for name, value in {"episode": PLAN.episode, **fields}.items())
        program = PROGRAM.format(arguments=given)
        popen = subprocess.Popen

        def begin(command: list[str], **options: Any) -> Any:
            return popen([sys.executable, "-c", program], **options)

        monkeypatch.setattr(episode_processes.subprocess, "Popen", begin)
        (result,) = run_episodes(
            [PLAN], tmp_path, jobs=1, settings={}, progress=lambda state: None, should_stop=lambda: False
        )
        return result

    return start


def test_what_may_succeed_the_next_time_is_tried_again(run: Callable[..., EpisodeResult]) -> None:
    result = run(failure="geo was not healthy")
    assert (result.attempts, result.failure) == (OWN_ATTEMPTS, "geo was not healthy")


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
import subprocess, sys, time
sys.stdin.readline()
child = subprocess.Popen(["sleep", "600"])
open({path!r}, "w").write(str(child.pid))
{end}
"""


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the episode's process ended: killed by SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "the episode's process was stopped by a signal"),
    ],
)
def test_an_episode_that_was_killed_or_stopped_leaves_no_process_and_is_undone_at_once(
    end: str, failure: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, popen, removed = tmp_path / "pid", subprocess.Popen, []
    program = LEAVES.format(path=str(path), end=end)
    monkeypatch.setattr(
        episode_processes.subprocess,
        "Popen",
        lambda command, **options: popen([sys.executable, "-c", program], **options),
    )
    monkeypatch.setattr(scheduler, "EpisodeQueue", lambda plans: EpisodeQueue(plans, pause_s=0.0))
    monkeypatch.setattr(episode_queue, "HOST_ATTEMPTS", 2)
    (result,) = run_episodes(
        [PLAN],
        tmp_path,
        jobs=1,
        settings={},
        progress=lambda state: None,
        should_stop=lambda: False,
        remove_lost=removed.append,
    )
    assert result.failure.startswith(failure)
    assert removed == [PLAN.episode] * result.attempts
    assert result.attempts > 1
    assert not Path(f"/proc/{path.read_text()}").exists()
