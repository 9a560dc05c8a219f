"""A worker runs single episodes: whole or not at all, each once, and as many as its machine can carry."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.collector.campaigns.destinations import FolderDestination
from faultset.collector.campaigns.episode_processes import EpisodeHost
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.output_folder import WORKERS, WorkerFolder, remove_abandoned
from faultset.collector.campaigns.records import campaign_file
from faultset.collector.campaigns.worker_episodes import EpisodeRun, EpisodeWorker, WorkerAssignment
from faultset.collector.episodes.host_pressure import CpuUse
from faultset.collector.platforms.hosts import open_host
from faultset.core.locks import ProcessIdentity
from tests.collector.fake_episodes import FakeEpisodes, plans, wait_for
from tests.collector.plan_samples import PLAN

FREE = CpuUse(waiting_share=0.1, free_cores=1.2)
FULL = CpuUse(waiting_share=0.99, free_cores=0.0)


@pytest.fixture
def fake(tmp_path: Path) -> FakeEpisodes:
    return FakeEpisodes.make(tmp_path / "fake")


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


def left(root: Path) -> list[str]:
    return [path.name for path in (root / WORKERS).iterdir()] if (root / WORKERS).exists() else []


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
