"""A campaign on dask's own programs: workers are killed, the scheduler is lost, and each episode is there once.

Into a folder that all workers see, and to a server that speaks S3 from workers that share no folder.
"""

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

from faultset.collector.campaigns.dask_executor import DaskExecutor, count_slots
from faultset.collector.campaigns.destinations import open_destination
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.executors import run_episodes
from faultset.collector.campaigns.output_folder import WORKERS
from faultset.collector.campaigns.records import campaign_file
from faultset.core.dask_clients import connect_client
from faultset.core.errors import PlatformError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.remote.file_systems import is_url, local_folder
from faultset.datasets.remote.writing import FinishedEpisodes, RemoteFolder
from tests.collector.fake_episodes import FakeEpisodes, plans, wait_for
from tests.s3_server import s3_bucket

pytestmark = pytest.mark.slow

COLLECT = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs of dask, which are ended with the test."""
    begun: list[subprocess.Popen[str]] = []

    def run(program: str, *options: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *options]
        nowhere = subprocess.DEVNULL
        begun.append(
            subprocess.Popen(command, stdout=nowhere, stderr=nowhere, text=True, env={**os.environ, **environment})
        )
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


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where episodes go; the caches of this process are those of a machine of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    if request.param == "folder":
        yield str(tmp_path / "data")
    else:
        with s3_bucket(monkeypatch) as url:
            yield url


def two_workers(start: Start, address: str, folder: Path) -> list[subprocess.Popen[str]]:
    """Start workers, each with caches of its own as on a machine of its own."""
    options = ("--nthreads", "1", "--resources", "episode=1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
    return [
        start("worker", address, *options, XDG_CACHE_HOME=str(folder / f"caches-of-worker-{number}"))
        for number in range(2)
    ]


def episodes_at(place: str) -> set[str]:
    """Return the episodes that are there, and check that nothing is half there."""
    if not is_url(place):
        return {path.name for path in Path(place, "episodes").iterdir()}
    finished = FinishedEpisodes(place)
    records = finished.records()
    finished.check_complete({episode: record.files for episode, record in records.items()})
    return {*records}


def busy_workers(processes: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Return the workers that run an episode, which is a process of theirs."""
    return [process for process in processes if psutil.Process(process.pid).children()]


def test_a_killed_worker_and_a_killed_scheduler_cost_only_what_was_unfinished(
    start: Start, address: tuple[str, subprocess.Popen[str]], place: str, tmp_path: Path
) -> None:
    url, scheduler = address
    destination, fake, wanted = open_destination(place), FakeEpisodes.make(tmp_path / "fake"), plans(4)
    campaign_file(destination.folder, "c1").parent.mkdir(parents=True)
    campaign_file(destination.folder, "c1").write_text("{}")
    destination.save(campaign_file(destination.folder, "c1"))
    workers = two_workers(start, url, tmp_path)
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
        executor = DaskExecutor(client, destination, campaign="c1", settings={}, program=fake.program)
        try:
            return run_episodes(wanted[number], executor, progress=disturb, should_stop=lambda: False)
        finally:
            executor.close()

    with connect_client(url, None, os.getpid) as client:
        wait_for(lambda: len(count_slots(client)) == 2)
        assert {result.failure for result in run(slice(3), kill_a_worker)} == {""}
        fake.hold(wanted[3])
        with pytest.raises(PlatformError, match=r"the dask scheduler is gone; .* has 0 of 1 episode"):
            run(slice(3, 4), kill_the_scheduler)
    assert episodes_at(place) == {"e0", "e1", "e2"}
    assert [fake.runs(plan) for plan in wanted] == [2, 1, 1, 1]


def test_episodes_of_an_application_run_on_two_workers_of_which_one_is_killed(
    start: Start, address: tuple[str, subprocess.Popen[str]], place: str, tmp_path: Path
) -> None:
    url, _ = address
    workers = two_workers(start, url, tmp_path)
    options = "--faults noop --apps hotel --normal 2 --step 500ms --warmup 4s --healthy 10s --faulty 10s --cooldown 2s"
    command = [*COLLECT, *options.split(), "--scheduler", url, "--out", place]
    collector = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: list(tmp_path.rglob(f"{WORKERS}/*/.running/*.json")), 120)
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
    with local_folder(place) as copy:
        assert len(open_dataset(copy).episodes) == 2
        assert [str(finding) for finding in verify(copy) if finding.severity == "error"] == []
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("was already collected") == 2
    assert RemoteFolder(place).sizes(WORKERS) == {}
