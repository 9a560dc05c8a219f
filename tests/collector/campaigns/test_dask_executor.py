"""A campaign on dask workers: placed by their resource, repeated by the same rules, and nothing finished is lost."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dask import config

from faultset.collector.campaigns import dask_executor, worker_episodes
from faultset.collector.campaigns.collection import collect
from faultset.collector.campaigns.dask_executor import DaskExecutor, WorkerHosts, choose_worker, count_slots
from faultset.collector.campaigns.destinations import FolderDestination
from faultset.collector.campaigns.episode_processes import EpisodeHost, EpisodeResult
from faultset.collector.campaigns.executors import CampaignProgress, run_episodes
from faultset.collector.campaigns.output_folder import WORKERS
from faultset.collector.campaigns.records import campaign_file
from faultset.collector.campaigns.worker_episodes import EpisodeWorker
from faultset.collector.episodes.host_pressure import CpuUse
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.hosts import open_host
from faultset.collector.platforms.local.host import LocalHost
from faultset.core.dask_clients import silence_dask
from faultset.core.errors import PlatformError, UsageError
from tests.collector.fake_episodes import FakeEpisodes, plans, wait_for

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
    monkeypatch.setattr(worker_episodes, "this_worker", lambda max_concurrent=1: worker)


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
        ("code", "has different code of fault noop than this machine"),
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
    with (
        cluster(1, 0 if trouble == "resource" else 1) as (_, client),
        pytest.raises(PlatformError, match=said),
    ):
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
