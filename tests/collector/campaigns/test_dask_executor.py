"""Episodes on dask workers: the executor, one worker, and real worker processes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from dask import config

from faultset.collector.campaigns import dask_executor
from faultset.collector.campaigns.collection import collect
from faultset.collector.campaigns.dask_executor import (
    DaskExecutor,
    EpisodeRun,
    EpisodeWorker,
    WorkerAssignment,
    WorkerHosts,
    choose_worker,
    count_slots,
)
from faultset.collector.campaigns.destinations import FolderDestination, open_destination
from faultset.collector.campaigns.episode_processes import EpisodeHost, EpisodeResult
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.executors import CampaignProgress, run_episodes
from faultset.collector.campaigns.output_folder import WORKERS, WorkerFolder, remove_abandoned
from faultset.collector.campaigns.records import campaign_file
from faultset.collector.episodes.host_pressure import CpuUse
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.hosts import open_host
from faultset.collector.platforms.local.host import LocalHost
from faultset.core.dask_clients import connect_client, silence_dask
from faultset.core.errors import PlatformError, UsageError
from faultset.core.locks import ProcessIdentity
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.remote.file_systems import is_url, local_folder
from faultset.datasets.remote.writing import FinishedEpisodes, RemoteFolder
from tests.collector.fake_episodes import FakeEpisodes, plans, wait_for
from tests.collector.plan_samples import PLAN
from tests.s3_server import s3_bucket

REQUEST = make_request(faults=["noop"], apps=["hotel"], normal=1, profile="quick")
NOWHERE = "127.0.0.1:0"


@pytest.fixture
def fake(tmp_path: Path) -> FakeEpisodes:
    return FakeEpisodes.make(tmp_path / "fake")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    campaign_file(tmp_path / "data", "c1").parent.mkdir(parents=True)
    campaign_file(tmp_path / "data", "c1").write_text("{}")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def on_a_free_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers inside this process are one worker for us, on a machine that has room."""
    host = EpisodeHost(8, use=lambda window_s: CpuUse(waiting_share=0.0, free_cores=8.0), stagger_s=0.0)
    worker = EpisodeWorker(host)
    monkeypatch.setattr(dask_executor, "this_worker", lambda max_concurrent=1: worker)


@contextmanager
def cluster(workers: int, slots: int) -> Iterator[tuple[Any, Any]]:
    """A scheduler with workers of one thread in this process, and a client."""
    from distributed import Client, LocalCluster

    with (
        silence_dask(),
        config.set({"distributed.worker.profile.enabled": False, "distributed.comm.timeouts.connect": "500ms"}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            resources={"episode": slots} if slots else {},
            processes=False,
            dashboard_address=NOWHERE,
            worker_dashboard_address=NOWHERE,
            silence_logs=logging.CRITICAL,
        ) as made,
        Client(made, set_as_default=False) as client,
    ):
        yield made, client


class Campaign:
    """A campaign in a thread of its own."""

    def __init__(self, wanted: tuple[Plan, ...], root: Path, client: Any, fake: FakeEpisodes, jobs: int | None = None):
        self.results: list[EpisodeResult] = []
        self.error: BaseException | None = None
        self.states: list[CampaignProgress] = []
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(wanted, root, client, fake, jobs))
        self._thread.start()

    def _run(self, wanted: tuple[Plan, ...], root: Path, client: Any, fake: FakeEpisodes, jobs: int | None) -> None:
        executor = DaskExecutor(
            client, FolderDestination(root), campaign="c1", settings={}, jobs=jobs, program=fake.program
        )
        try:
            self.results = run_episodes(wanted, executor, progress=self.states.append, should_stop=self.stopped.is_set)
        except BaseException as error:
            self.error = error
        finally:
            executor.close()

    def end(self) -> list[EpisodeResult]:
        self._thread.join(timeout=120)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error
        return self.results


def episodes_in(root: Path) -> set[str]:
    return {path.name for path in (root / "episodes").iterdir()} if (root / "episodes").exists() else set()


def left(root: Path) -> list[Path]:
    return list((root / WORKERS).iterdir()) if (root / WORKERS).exists() else []


def test_episodes_begin_where_most_is_free_and_nowhere_when_all_is_taken() -> None:
    slots, busy, begun = {"a": 1, "b": 3}, Counter[str](), []
    while (worker := choose_worker(slots, busy)) is not None:
        busy[worker] += 1
        begun.append(worker)
    assert begun == ["b", "b", "a", "b"]
    assert choose_worker({}, {}) is None


def test_the_resource_and_not_the_threads_says_how_many_run_at_a_time(fake: FakeEpisodes, root: Path) -> None:
    wanted = plans(4)
    for plan in wanted:
        fake.hold(plan)
    with cluster(1, 3) as (_, client):
        assert list(count_slots(client).values()) == [3]
        campaign = Campaign(wanted, root, client, fake)
        wait_for(lambda: sum(map(fake.runs, wanted)) == 3)
        wait_for(lambda: campaign.states and {one.phase for one in campaign.states[-1].running.values()} == {"fault"})
        assert campaign.states[-1].waiting == 1
        for plan in wanted:
            fake.release(plan)
        results = campaign.end()
    assert {result.episode for result in results} == episodes_in(root) == {plan.episode for plan in wanted}
    assert max(len(state.running) for state in campaign.states) == 3
    assert left(root) == []


def test_the_user_may_want_fewer_at_a_time(fake: FakeEpisodes, root: Path) -> None:
    with cluster(1, 3) as (_, client):
        campaign = Campaign(plans(3), root, client, fake, jobs=1)
        assert len(campaign.end()) == 3
    assert max(len(state.running) for state in campaign.states) == 1


def test_what_fails_is_repeated_after_the_others_by_the_rules_of_every_campaign(fake: FakeEpisodes, root: Path) -> None:
    wanted = plans(3)
    fake.fail_once(wanted[0])
    with cluster(1, 1) as (_, client):
        campaign = Campaign(wanted, root, client, fake)
        results = campaign.end()
    assert [(result.episode, result.attempts, result.failure) for result in results] == [
        ("e1", 1, ""),
        ("e2", 1, ""),
        ("e0", 2, ""),
    ]
    assert "attempt 1 is void (geo was not healthy)" in campaign.states[-1].notices[0]


def test_an_episode_whose_worker_is_lost_runs_elsewhere_and_is_there_once(fake: FakeEpisodes, root: Path) -> None:
    wanted = plans(2)
    for plan in wanted:
        fake.hold(plan)
    with cluster(2, 2) as (made, client):
        campaign = Campaign(wanted, root, client, fake)
        wait_for(lambda: sum(map(fake.runs, wanted)) == 2)
        made.sync(next(iter(made.workers.values())).close, executor_wait=False, nanny=False)
        # the thread of the lost worker lives on, so that its episode is finished twice
        wait_for(lambda: sum(map(fake.runs, wanted)) == 3)
        for plan in wanted:
            fake.release(plan)
        results = campaign.end()
    assert {(result.episode, result.failure) for result in results} == {("e0", ""), ("e1", "")}
    assert episodes_in(root) == {"e0", "e1"}
    wait_for(lambda: left(root) == [])


def test_a_lost_scheduler_costs_only_what_was_unfinished(fake: FakeEpisodes, root: Path) -> None:
    wanted = plans(3)
    fake.hold(wanted[2])
    with cluster(1, 1) as (made, client):
        campaign = Campaign(wanted, root, client, fake)
        wait_for(lambda: fake.runs(wanted[2]))
        made.sync(made.scheduler.close)
        with pytest.raises(PlatformError, match=r"scheduler is gone; .* has 2 of 3 episodes. Run the same command"):
            campaign.end()
    assert episodes_in(root) == {"e0", "e1"}
    fake.release(wanted[2])
    with cluster(1, 1) as (_, client):
        results = Campaign(wanted[2:], root, client, fake).end()
    assert [result.failure for result in results] == [""]
    assert episodes_in(root) == {"e0", "e1", "e2"}
    wait_for(lambda: left(root) == [])


def test_after_a_stop_nothing_begins_and_what_runs_is_ended(fake: FakeEpisodes, root: Path) -> None:
    wanted = plans(3)
    fake.hold(wanted[0])
    with cluster(1, 1) as (_, client):
        campaign = Campaign(wanted, root, client, fake)
        wait_for(lambda: fake.runs(wanted[0]))
        campaign.stopped.set()
        (result,) = campaign.end()
    assert result.outcome.interrupted
    assert episodes_in(root) == set()
    assert left(root) == []


def test_a_worker_that_comes_later_is_used(fake: FakeEpisodes, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "_COUNT_EVERY_S", 0.05)
    wanted = plans(2)
    for plan in wanted:
        fake.hold(plan)
    with cluster(1, 1) as (made, client):
        campaign = Campaign(wanted, root, client, fake)
        wait_for(lambda: fake.runs(wanted[0]))
        made.scale(2)
        wait_for(lambda: fake.runs(wanted[1]))
        for plan in wanted:
            fake.release(plan)
        assert len(campaign.end()) == 2


@pytest.fixture
def hosts(tmp_path: Path) -> Callable[..., WorkerHosts]:
    def of(client: Any, jobs: int | None = None) -> WorkerHosts:
        destination, here = FolderDestination(tmp_path / "data"), open_host("local", {})
        return WorkerHosts(client, "tcp://10.0.0.5:8786", destination, plan_campaign(REQUEST), here, jobs)

    return of


def test_workers_are_looked_at_before_a_campaign_and_say_how_many_episodes_they_run(
    hosts: Callable[..., WorkerHosts],
) -> None:
    with cluster(2, 3) as (_, client):
        found = hosts(client)
        assert found.check() == ["2 dask workers on 1 machine, together 6 episodes at a time"]
        assert (found.episode_capacity(), hosts(client, jobs=4).episode_capacity()) == (6, 4)
        assert found.unsupported_needs(["exec"]) == {}
        assert [set(machine) for machine in found.machines()["hosts"]] == [
            {"cores", "cpu", "memory_gib", "system", "python"}
        ]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("resource", 'Start workers with "dask worker tcp://10.0.0.5:8786 --resources episode=2"'),
        ("machine", "episodes cannot run on the dask worker inproc://.*: there is no redis-server"),
        ("code", "differs from the code on this machine"),
    ],
)
def test_a_worker_that_cannot_run_episodes_is_named_with_the_reason(
    trouble: str, said: str, hosts: Callable[..., WorkerHosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(self: LocalHost) -> list[str]:
        raise PlatformError("there is no redis-server; install it")

    if trouble == "machine":
        monkeypatch.setattr(LocalHost, "check", lacking)
    if trouble == "code":
        codes = iter([{"fault noop": "1"}, {"fault noop": "2"}])
        monkeypatch.setattr(dask_executor, "identify_code", lambda plans: next(codes))
    with cluster(1, 0 if trouble == "resource" else 1) as (_, client), pytest.raises(PlatformError, match=said):
        hosts(client).check()


def test_a_campaign_of_another_platform_has_no_workers(tmp_path: Path) -> None:
    request = make_request(faults=["noop"], apps=["hotel"], normal=1, profile="quick", platform="kubernetes")
    with pytest.raises(
        UsageError, match="--scheduler runs episodes of the platform local, but --platform is kubernetes"
    ):
        collect(request, out=tmp_path / "data", scheduler="tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="is not the address of a dask scheduler"):
        collect(REQUEST, out=tmp_path / "data", scheduler="nowhere")


def test_workers_are_not_given_memory_of_this_process() -> None:
    with pytest.raises(UsageError, match="workers cannot read memory://shelf/data, which is in the memory of"):
        collect(REQUEST, out="memory://shelf/data", scheduler="tcp://127.0.0.1:9")


FREE = CpuUse(waiting_share=0.1, free_cores=1.2)
FULL = CpuUse(waiting_share=0.99, free_cores=0.0)


@pytest.fixture
def order(fake: FakeEpisodes, tmp_path: Path) -> WorkerAssignment:
    root = tmp_path / "data"
    campaign_file(root, "c1").parent.mkdir(parents=True)
    campaign_file(root, "c1").write_text("{}")
    return WorkerAssignment(
        waiting=WaitingEpisode(plan=PLAN),
        destination=FolderDestination(root),
        campaign="c1",
        run="run",
        settings={},
        program=fake.program,
    )


@pytest.fixture
def worker() -> EpisodeWorker:
    return EpisodeWorker(EpisodeHost(2, use=lambda window_s: FREE, stagger_s=0.0))


def begin(worker: EpisodeWorker, order: WorkerAssignment) -> tuple[threading.Thread, list[EpisodeRun]]:
    """Run an order in another thread."""
    runs: list[EpisodeRun] = []
    thread = threading.Thread(target=lambda: runs.append(worker.run(order)))
    thread.start()
    return thread, runs


def test_a_finished_episode_is_in_the_dataset_and_nothing_beside_it(
    worker: EpisodeWorker, order: WorkerAssignment
) -> None:
    phases: list[str] = []
    run = worker.run(order, phases.append)
    assert (run.outcome.failure, run.outcome.verdict) == ("", "none")
    assert phases == ["waiting", "fault"]
    assert [path.name for path in (order.destination.folder / "episodes").iterdir()] == [PLAN.episode]
    assert left(order.destination.folder) == []


def test_of_two_runs_of_one_episode_that_both_finish_one_is_kept(
    worker: EpisodeWorker, order: WorkerAssignment, fake: FakeEpisodes
) -> None:
    fake.hold(PLAN)
    both = [begin(worker, order), begin(EpisodeWorker(EpisodeHost(1)), replace(order, run="other"))]
    wait_for(lambda: fake.runs(PLAN) == 2)
    fake.release(PLAN)
    for thread, _ in both:
        thread.join()
    assert [runs[0].outcome.failure for _, runs in both] == ["", ""]
    assert [path.name for path in (order.destination.folder / "episodes").iterdir()] == [PLAN.episode]
    assert left(order.destination.folder) == []


def test_an_episode_that_the_dataset_has_is_not_run(
    worker: EpisodeWorker, order: WorkerAssignment, fake: FakeEpisodes
) -> None:
    worker.run(order)
    assert worker.run(order).outcome.verdict == "none"
    assert fake.runs(PLAN) == 1


def test_a_failed_episode_leaves_its_logs_with_the_dataset(
    worker: EpisodeWorker, order: WorkerAssignment, fake: FakeEpisodes
) -> None:
    fake.fail_once(PLAN)
    outcome = worker.run(order).outcome
    assert outcome.failure == "geo was not healthy"
    assert outcome.logs == order.destination.folder / ".failed" / PLAN.episode
    assert (order.destination.folder / ".failed" / PLAN.episode / "reason.txt").is_file()
    assert not (order.destination.folder / "episodes").exists()
    assert left(order.destination.folder) == []


def test_a_worker_that_does_not_see_the_dataset_says_so(
    worker: EpisodeWorker, order: WorkerAssignment, tmp_path: Path
) -> None:
    outcome = worker.run(replace(order, destination=FolderDestination(tmp_path / "elsewhere"))).outcome
    assert f"must be able to read {tmp_path / 'elsewhere'}" in outcome.failure
    assert not outcome.retriable
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_stopped_ends_and_nothing_more_of_it_begins(
    worker: EpisodeWorker, order: WorkerAssignment, fake: FakeEpisodes
) -> None:
    fake.hold(PLAN)
    thread, runs = begin(worker, order)
    wait_for(lambda: fake.runs(PLAN))
    worker.stop("run")
    thread.join()
    assert runs[0].outcome.interrupted
    assert worker.run(order).outcome.interrupted
    assert fake.runs(PLAN) == 1
    assert left(order.destination.folder) == []


def test_a_second_episode_begins_only_while_the_machine_has_room(order: WorkerAssignment, fake: FakeEpisodes) -> None:
    use = [FULL]
    worker = EpisodeWorker(EpisodeHost(2, use=lambda window_s: use[0], stagger_s=0.0))
    one, two = plans(2)
    fake.hold(one)
    first = begin(worker, replace(order, waiting=WaitingEpisode(plan=one)))
    wait_for(lambda: fake.runs(one))
    second = begin(worker, replace(order, waiting=WaitingEpisode(plan=two)))
    second[0].join(timeout=0.6)
    assert fake.runs(two) == 0
    use[0] = FREE
    second[0].join()
    assert fake.runs(two) == 1
    fake.release(one)
    first[0].join()


@pytest.fixture
def abandoned(order: WorkerAssignment) -> Callable[..., WorkerFolder]:
    """Make a folder that a worker with another identity has left."""

    def make(**changes: object) -> WorkerFolder:
        folder = WorkerFolder.make(order.destination.folder, PLAN.episode)
        other = ProcessIdentity.current().model_copy(update=changes)
        (folder.path / "owner.json").write_text(other.model_dump_json())
        return replace(folder, owner=other)

    return make


def test_what_a_lost_worker_of_this_machine_has_left_goes_with_the_next_episode(
    worker: EpisodeWorker, order: WorkerAssignment, abandoned: Callable[..., WorkerFolder]
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    lost, alive, elsewhere = abandoned(pid=ended.pid), abandoned(), abandoned(host="another")
    worker.run(order)
    assert not lost.path.exists()
    assert alive.path.exists()
    assert elsewhere.path.exists()


def test_what_another_machine_has_left_is_named_and_goes_when_that_is_wanted(
    order: WorkerAssignment, abandoned: Callable[..., WorkerFolder]
) -> None:
    elsewhere = abandoned(host="another")
    (sentence,) = remove_abandoned(order.destination.folder, open_host).remaining
    assert "on another, another machine or container" in sentence
    assert elsewhere.path.exists()
    assert remove_abandoned(order.destination.folder, open_host, take_over=True).remaining == []
    assert not elsewhere.path.exists()


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


@pytest.mark.slow
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


@pytest.mark.slow
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
