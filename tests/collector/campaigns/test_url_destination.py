"""A campaign whose dataset is behind a URL: readers see whole versions, resuming goes on, and bad places are named."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner

from faultset.collector.campaigns import collection, destinations
from faultset.collector.campaigns.collection import collect
from faultset.collector.campaigns.dask_executor import EpisodeWorker, WorkerAssignment
from faultset.collector.campaigns.destinations import FolderDestination, UrlDestination, open_destination
from faultset.collector.campaigns.episode_processes import EpisodeHost
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.cli.output import print_summary
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.core.console import root as faultset
from faultset.core.errors import DataError, PlatformError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.version_files import hashes_below
from faultset.datasets.remote.file_systems import list_remote_versions, local_folder, read_remote_version
from faultset.datasets.remote.writing import ARRIVING, FinishedEpisodes, RemoteFolder
from tests.collector.fake_episodes import FakeEpisodes, FakeExecutor
from tests.collector.plan_samples import PLAN

REQUEST = make_request(faults=["noop"], apps=["hotel"], normal=3, profile="quick")


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Choose which machine this is, as far as the local part of a dataset goes."""

    def machine(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    machine("caches")
    return machine


@pytest.fixture
def url() -> Iterator[str]:
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    yield f"memory://{name}/data"
    memory = fsspec.filesystem("memory")
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)


class Runs:
    """Stands for the processes of episodes: those of a synthetic dataset are there at once."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.ran: list[str] = []
        self.outcomes: dict[str, EpisodeOutcome] = {}

    def plans(self, request: object, run: int = 1) -> tuple[Plan, ...]:
        """Return plans of the synthetic episodes, of which run 2 has no others."""
        planned = plan_campaign(REQUEST)
        return tuple(
            replace(plan, episode=episode)
            for plan, episode in zip(planned, open_dataset(self.source).episodes, strict=True)
        )

    def write(self, root: Path, episode: str) -> None:
        """Write an episode."""
        shutil.copytree(self.source / "episodes" / episode, root / "episodes" / episode)

    def __call__(self, waiting: WaitingEpisode, root: Path) -> EpisodeOutcome:
        """Run an episode."""
        episode = waiting.plan.episode
        outcome = self.outcomes.get(episode, EpisodeOutcome(episode=episode, verdict="none"))
        if not outcome.failure:
            self.write(root, episode)
        self.ran.append(episode)
        return outcome


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    write_example_dataset(tmp_path / "source", episodes=3, baseline_s=10, fault_s=10)
    made = Runs(tmp_path / "source")
    monkeypatch.setattr(collection, "plan_campaign", made.plans)
    FakeExecutor.install(monkeypatch, made)
    return made


def episodes_of(root: Path) -> Mapping[str, str]:
    return {name: one for name, one in hashes_below(root).items() if name.startswith("episodes/")}


def lose_connection(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    put, done = RemoteFolder.put, []

    def failing(self: RemoteFolder, source: Path, name: str) -> None:
        if len(done) >= after:
            raise PlatformError("the connection is lost")
        done.append(name)
        put(self, source, name)

    monkeypatch.setattr(RemoteFolder, "put", failing)


def test_out_is_a_folder_or_a_url(tmp_path: Path) -> None:
    assert open_destination("data") == FolderDestination(Path("data"))
    assert open_destination(f"file://{tmp_path}/data") == FolderDestination(tmp_path / "data")
    assert open_destination("memory://shelf/data/") == UrlDestination("memory://shelf/data")
    assert UrlDestination("memory://shelf/data").folder.name == "data"
    assert UrlDestination("memory://shelf/..").folder.name == "-"


def test_what_was_collected_to_a_url_is_a_sound_dataset_there(
    url: str, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    result = collect(REQUEST, out=url)
    assert (result.version, result.location, result.failures) == ("1.0.0", url, {})
    with local_folder(url) as copy:
        assert episodes_of(copy) == episodes_of(runs.source)
        assert [str(finding) for finding in verify(copy) if finding.severity == "error"] == []
    assert read_remote_version(url, None)[0].provenance["campaign"] == result.campaign
    assert {"README.md", "campaigns", "episodes", "finished", "versions"} <= {*RemoteFolder(url).entries()}
    assert RemoteFolder(url).sizes(ARRIVING) == {}
    print_summary(result)
    printed = capsys.readouterr().out
    assert f"3 of 3 episodes in 0.0 min; dataset {url}, version 1.0.0\nnext: faultset dataset verify {url}" in printed


def test_telemetry_does_not_stay_on_the_machine_that_has_collected_it(url: str, runs: Runs) -> None:
    root = collect(REQUEST, out=url).root
    assert len(list(root.glob("episodes/*/truth/label.parquet"))) == 3
    assert list(root.glob("episodes/*/telemetry")) == []


@pytest.mark.parametrize("machine", ["caches", "another"])
def test_a_campaign_is_resumed_on_the_same_machine_and_on_another(
    machine: str, url: str, runs: Runs, caches: Callable[[str], None]
) -> None:
    bad = runs.plans(REQUEST)[1].episode
    runs.outcomes[bad] = EpisodeOutcome(episode=bad, failure="it broke")
    assert collect(REQUEST, out=url).failures == {bad: "it broke"}
    caches(machine)
    runs.outcomes.clear()
    runs.ran.clear()
    again = collect(REQUEST, out=url)
    assert (runs.ran, again.version) == ([bad], "1.1.0")
    assert sorted(one.attempts for one in again.episodes) == [0, 0, 1]
    assert list_remote_versions(url) == ["1.0.0", "1.1.0"]
    assert len(read_remote_version(url, "1.0.0")[0].episodes) == 2
    runs.ran.clear()
    assert (collect(REQUEST, out=url).version, runs.ran) == ("1.1.0", [])
    assert list_remote_versions(url) == ["1.0.0", "1.1.0"]


def test_a_lost_connection_shows_no_version_and_what_is_finished_is_not_run_again(
    url: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        lose_connection(broken, after=14)
        with pytest.raises(PlatformError, match="connection is lost"):
            collect(REQUEST, out=url)
    with pytest.raises(DataError, match="has no versions"):
        list_remote_versions(url)
    assert len(FinishedEpisodes(url).records()) == 1
    assert len(runs.ran) == 2
    assert len(collect(REQUEST, out=url).episodes) == 3
    assert len(runs.ran) == 3
    with local_folder(url) as copy:
        assert episodes_of(copy) == episodes_of(runs.source)


def test_what_others_have_finished_gets_a_version_without_running(url: str, runs: Runs) -> None:
    for episode in open_dataset(runs.source).episodes:
        FinishedEpisodes(url).add(runs.source / "episodes" / episode, episode)
    assert collect(REQUEST, out=url).version == "1.0.0"
    assert runs.ran == []


def test_of_an_episode_that_another_machine_has_finished_meanwhile_that_run_stays(
    url: str, runs: Runs, tmp_path: Path
) -> None:
    first, second, _ = open_dataset(runs.source).episodes
    other = shutil.copytree(runs.source / "episodes" / first, tmp_path / "other")
    shutil.copy(runs.source / "episodes" / second / "telemetry" / "events.parquet", other / "telemetry")
    write = runs.write

    def overtaken(root: Path, episode: str) -> None:
        write(root, episode)
        if episode == first:
            FinishedEpisodes(url).add(other, first)

    runs.write = overtaken
    collect(REQUEST, out=url)
    with local_folder(url) as copy:
        assert hashes_below(copy / "episodes" / first) == hashes_below(other)


def test_a_version_that_somebody_else_makes_meanwhile_stays_and_the_next_run_makes_another(
    url: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = UrlDestination.publish_version

    def overtaken(self: UrlDestination, version: str) -> None:
        RemoteFolder(url).write(f"versions/{version}.json", (runs.source / "versions" / "1.0.0.json").read_bytes())
        publish(self, version)

    with monkeypatch.context() as broken:
        broken.setattr(UrlDestination, "publish_version", overtaken)
        with pytest.raises(DataError, match=r"has published version 1\.0\.0 of .*Run the same command again"):
            collect(REQUEST, out=url)
    assert read_remote_version(url, "1.0.0")[0].provenance["synthetic"]


def test_a_dataset_that_was_removed_is_collected_anew_although_this_machine_remembers_it(url: str, runs: Runs) -> None:
    collect(REQUEST, out=url)
    RemoteFolder(url).remove("")
    assert collect(REQUEST, out=url).version == "1.0.0"
    assert len(runs.ran) == 6


def test_a_fresh_campaign_knows_those_that_are_behind_the_url(
    url: str, runs: Runs, caches: Callable[[str], None]
) -> None:
    first = collect(REQUEST, out=url).campaign
    caches("another")
    assert collect(REQUEST, out=url, fresh=True).campaign == f"{first}-2"


def collect_to(place: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        faultset, ["collect", "--faults", "noop", "--apps", "hotel", "--normal", "1", "--out", place]
    )
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("https://example.org/data", 2, "https://example.org/data is read-only; give a URL that can be written to"),
        ("s3://", 2, "s3:// needs a bucket or folder"),
        ("gs://bucket/data", 4, "install the fsspec package for gs://"),
    ],
)
def test_a_place_where_nothing_can_be_written_is_one_sentence(place: str, code: int, said: str) -> None:
    found, text = collect_to(place)
    assert found == code, text
    assert said in " ".join(text.split())
    assert "Traceback" not in text


def test_a_place_that_refuses_writing_is_named_before_anything_runs(
    url: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "pipe_file", refused)
    with pytest.raises(PlatformError, match=r"cannot be written to \(PermissionError: Access Denied\); check the addr"):
        collect(REQUEST, out=url)
    assert runs.ran == []


def test_a_place_that_holds_something_else_is_left_alone(url: str, runs: Runs) -> None:
    RemoteFolder(url).write("photos/cat.jpg", b"")
    with pytest.raises(DataError, match=r"--out must be a dataset or an empty URL, but .* contains 'photos'"):
        collect(REQUEST, out=url)
    assert RemoteFolder(url).entries() == ["photos"]


@pytest.fixture
def order(url: str, tmp_path: Path) -> WorkerAssignment:
    RemoteFolder(url).write("campaigns/c1.json", b"{}")
    return WorkerAssignment(
        waiting=WaitingEpisode(plan=PLAN),
        destination=UrlDestination(url),
        campaign="c1",
        run="run",
        program=FakeEpisodes.make(tmp_path / "fake").program,
    )


def test_a_worker_writes_its_episode_to_the_url_and_keeps_nothing(order: WorkerAssignment, tmp_path: Path) -> None:
    run = EpisodeWorker(EpisodeHost(1)).run(order)
    assert (run.outcome.failure, run.outcome.verdict) == ("", "none")
    assert [*FinishedEpisodes(order.destination.location).records()] == [PLAN.episode]
    assert [path for path in order.destination.folder.rglob("*") if path.is_file()] == []


def test_two_workers_without_a_common_folder_write_one_episode_once(
    order: WorkerAssignment, tmp_path: Path, caches: Callable[[str], None]
) -> None:
    fake = FakeEpisodes(tmp_path / "fake")
    there = order.destination.outcome
    outcomes = [EpisodeWorker(EpisodeHost(1)).run(order).outcome]
    caches("another")
    outcomes.append(EpisodeWorker(EpisodeHost(1)).run(order).outcome)
    assert [one.verdict for one in outcomes] == ["none", "none"]
    assert there(PLAN.episode) == outcomes[1]
    assert fake.runs(PLAN) == 1


def test_an_episode_that_a_worker_cannot_write_is_void_and_may_be_repeated(
    order: WorkerAssignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destinations, "PAUSES_S", (0.0, 0.0))
    with monkeypatch.context() as broken:
        lose_connection(broken, after=3)
        outcome = EpisodeWorker(EpisodeHost(1)).run(order).outcome
    assert (outcome.failure, outcome.retriable, outcome.exit_code) == ("the connection is lost", True, 4)
    assert {*RemoteFolder(order.destination.location).sizes("")} == {"campaigns/c1.json"}
    assert EpisodeWorker(EpisodeHost(1)).run(order).outcome.verdict == "none"


def test_a_worker_tries_again_to_copy_an_episode_when_the_connection_was_lost_for_a_moment(
    order: WorkerAssignment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(destinations, "PAUSES_S", (0.0, 0.0))
    add, lost = FinishedEpisodes.add, ["once", "twice"]

    def failing(self: FinishedEpisodes, path: Path, episode: str) -> bool:
        if lost:
            raise PlatformError(f"the connection is lost {lost.pop()}")
        return add(self, path, episode)

    monkeypatch.setattr(FinishedEpisodes, "add", failing)
    assert EpisodeWorker(EpisodeHost(1)).run(order).outcome.verdict == "none"
    assert FakeEpisodes(tmp_path / "fake").runs(PLAN) == 1


def test_a_worker_that_does_not_reach_the_dataset_says_so(order: WorkerAssignment) -> None:
    outcome = EpisodeWorker(EpisodeHost(1)).run(replace(order, campaign="c2")).outcome
    assert f"the worker must be able to read {order.destination.location}" in outcome.failure
    assert not outcome.retriable


def test_the_logs_of_an_episode_that_failed_on_a_worker_are_on_its_machine(
    order: WorkerAssignment, tmp_path: Path
) -> None:
    FakeEpisodes(tmp_path / "fake").fail_once(PLAN)
    outcome = EpisodeWorker(EpisodeHost(1)).run(order).outcome
    assert outcome.failure.startswith("geo was not healthy (on the machine ")
    assert outcome.logs == order.destination.folder / ".failed" / PLAN.episode
    assert outcome.logs is not None
    assert (outcome.logs / "reason.txt").is_file()


def test_recover_looks_after_the_local_part_of_a_dataset_behind_a_url(url: str, runs: Runs) -> None:
    root = collect(REQUEST, out=url).root
    (root / "episodes" / "e1.incomplete" / "telemetry").mkdir(parents=True)
    result = CliRunner().invoke(faultset, ["recover", "--out", url])
    assert result.exit_code == 0, result.output
    assert not (root / "episodes" / "e1.incomplete").exists()
