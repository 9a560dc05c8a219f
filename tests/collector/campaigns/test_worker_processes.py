"""A campaign on dask's own programs: workers are killed, the scheduler is lost, and each episode is there once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.records import campaign_file
from faultset.collector.campaigns.worker_folders import WORKERS
from faultset.collector.campaigns.worker_scheduling import run_on_workers, worker_slots
from faultset.core.dask_clients import connected
from faultset.core.errors import PlatformError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from tests.collector.fake_episodes import FakeEpisodes, plans, wait_for

pytestmark = pytest.mark.slow

COLLECT = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs of dask, which are ended with the test."""
    begun: list[subprocess.Popen[str]] = []

    def run(program: str, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *options]
        begun.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True))
        return begun[-1]

    yield run
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def address(start: Start) -> tuple[str, subprocess.Popen[str]]:
    """A scheduler on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    return f"tcp://127.0.0.1:{port}", scheduler


def worker(start: Start, address: str) -> subprocess.Popen[str]:
    options = ("--nthreads", "1", "--resources", "episode=1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
    return start("worker", address, *options)


def busy_workers(processes: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Return the workers that run an episode, which is a process of theirs."""
    return [process for process in processes if psutil.Process(process.pid).children()]


def test_a_killed_worker_and_a_killed_scheduler_cost_only_what_was_unfinished(
    start: Start, address: tuple[str, subprocess.Popen[str]], tmp_path: Path
) -> None:
    url, scheduler = address
    root, fake, wanted = tmp_path / "data", FakeEpisodes.make(tmp_path / "fake"), plans(4)
    campaign_file(root, "c1").parent.mkdir(parents=True)
    campaign_file(root, "c1").write_text("{}")
    workers = [worker(start, url) for _ in range(2)]
    fake.hold(wanted[0])
    killed: list[int] = []

    def kill_a_worker(state: object) -> None:
        if not killed and (begun := fake.processes(wanted[0])):
            killed.append(psutil.Process(begun[0]).ppid())
            next(process for process in workers if process.pid == killed[0]).kill()
        if fake.runs(wanted[0]) == 2 and (fake.folder / "e0.hold").exists():
            fake.release(wanted[0])

    def kill_the_scheduler(state: object) -> None:
        if fake.runs(wanted[3]):
            scheduler.kill()

    def run(number: slice, disturb: Callable[[object], None]) -> list[EpisodeResult]:
        return run_on_workers(
            wanted[number],
            root,
            client=client,
            campaign="c1",
            settings={},
            progress=disturb,
            should_stop=lambda: False,
            program=fake.program,
        )

    with connected(url, str(root), os.getpid) as client:
        wait_for(lambda: len(worker_slots(client)) == 2)
        assert {result.failure for result in run(slice(3), kill_a_worker)} == {""}
        fake.hold(wanted[3])
        with pytest.raises(PlatformError, match="the dask scheduler is gone; 0 of 1 episodes"):
            run(slice(3, 4), kill_the_scheduler)
    assert {path.name for path in (root / "episodes").iterdir()} == {"e0", "e1", "e2"}
    assert [fake.runs(plan) for plan in wanted] == [2, 1, 1, 1]


def test_episodes_of_an_application_run_on_two_workers_of_which_one_is_killed(
    start: Start, address: tuple[str, subprocess.Popen[str]], tmp_path: Path
) -> None:
    url, _ = address
    root = tmp_path / "data"
    workers = [worker(start, url) for _ in range(2)]
    options = "--faults noop --apps hotel --normal 2 --step 500ms --warmup 4s --baseline 10s --fault 10s --cooldown 2s"
    command = [*COLLECT, *options.split(), "--scheduler", url, "--out", str(root)]
    collector = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: list((root / WORKERS).glob("*/.running/*.json")), 120)
        victim = busy_workers(workers)[0]
        episodes = psutil.Process(victim.pid).children()
        os.kill(victim.pid, signal.SIGKILL)
        wait_for(lambda: not any(process.is_running() for process in episodes), 60)
        said, _ = collector.communicate(timeout=540)
    finally:
        if collector.poll() is None:
            collector.kill()
            collector.communicate()
    assert collector.returncode == 0, said
    assert len(open_dataset(root).episodes) == 2
    assert [str(finding) for finding in verify(root) if finding.severity == "error"] == []
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("was there already") == 2
    assert list((root / WORKERS).iterdir()) == []
