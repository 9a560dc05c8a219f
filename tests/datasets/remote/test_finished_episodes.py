"""Episodes that are written to a URL one by one: each once and of one run, whoever is interrupted or comes second."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.datasets.format.version_files import hashes_below
from faultset.datasets.remote.writing import ARRIVING, FINISHED, FinishedEpisodes, RemoteFolder
from tests.s3_server import s3_bucket


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.slow)])
def finished(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FinishedEpisodes]:
    """A dataset in an object store, and one where files are seen before they are whole."""
    if request.param == "s3":
        with s3_bucket(monkeypatch) as url:
            yield FinishedEpisodes(url)
        return
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    yield FinishedEpisodes(f"memory://{name}/data" if request.param == "memory" else f"file://{tmp_path}/{name}/data")
    memory = fsspec.filesystem("memory")
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)


@pytest.fixture
def runs(example_root: Path, tmp_path: Path) -> list[Path]:
    """Two runs of one episode, with different files."""
    made = []
    for number, episode in enumerate(sorted((example_root / "episodes").iterdir())[:2]):
        made.append(Path(shutil.copytree(episode, tmp_path / f"run{number}")))
    return made


def content(finished: FinishedEpisodes, episode: str) -> dict[str, bytes]:
    names = finished.folder.sizes(f"episodes/{episode}")
    return {
        name: finished.folder.system.cat_file(f"{finished.folder.root}/episodes/{episode}/{name}") for name in names
    }


def content_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in hashes_below(folder)}


def lose(monkeypatch: pytest.MonkeyPatch, method: str, after: int) -> None:
    """Let the connection be lost after something was done a number of times."""
    done: list[str] = []
    kept = getattr(RemoteFolder, method)

    def failing(self: RemoteFolder, *arguments: object) -> object:
        if len(done) >= after:
            raise PlatformError("the connection is lost")
        done.append(method)
        return kept(self, *arguments)

    monkeypatch.setattr(RemoteFolder, method, failing)


def test_an_added_episode_is_there_with_its_record_and_nothing_beside_it(
    finished: FinishedEpisodes, runs: list[Path]
) -> None:
    assert finished.find("e1") is None
    assert finished.records() == {}
    assert finished.add(runs[0], "e1")
    record = finished.find("e1")
    assert record is not None
    assert finished.records() == {"e1": record}
    assert content(finished, "e1") == content_of(runs[0])
    finished.check_complete({"e1": record.files})
    assert finished.folder.sizes(ARRIVING) == {}


def test_of_two_runs_of_one_episode_the_first_stays_as_it_is(finished: FinishedEpisodes, runs: list[Path]) -> None:
    assert [finished.add(run, "e1") for run in runs] == [True, False]
    assert content(finished, "e1") == content_of(runs[0])
    assert finished.folder.sizes(ARRIVING) == {}


def test_of_two_runs_that_arrive_at_the_same_moment_one_is_there_unmixed(
    finished: FinishedEpisodes, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    create, others = RemoteFolder.create, [runs[1]]

    def overtaken(self: RemoteFolder, name: str, data: bytes) -> bytes:
        if others:
            assert finished.add(others.pop(), "e1")
        return create(self, name, data)

    monkeypatch.setattr(RemoteFolder, "create", overtaken)
    assert not finished.add(runs[0], "e1")
    assert content(finished, "e1") == content_of(runs[1])
    assert finished.folder.sizes(ARRIVING) == {}


def test_of_many_runs_that_end_together_each_is_told_whether_it_counts(
    finished: FinishedEpisodes, runs: list[Path]
) -> None:
    if finished.folder.renames:
        pytest.skip("a folder has no conditional writes")
    both = threading.Barrier(4)

    def add(number: int) -> bool:
        both.wait()
        return FinishedEpisodes(finished.folder.url).add(runs[number % 2], "e1")

    with ThreadPoolExecutor(4) as pool:
        counted = list(pool.map(add, range(4)))
    assert sum(counted) == 1
    assert content(finished, "e1") == content_of(runs[counted.index(True) % 2])
    finished.settle(finished.records())
    assert finished.folder.sizes(ARRIVING) == {}


def test_an_interrupted_copy_leaves_nothing(
    finished: FinishedEpisodes, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        lose(broken, "put", after=4)
        with pytest.raises(PlatformError, match="connection is lost"):
            finished.add(runs[0], "e1")
    assert finished.find("e1") is None
    assert finished.folder.sizes("") == {}
    assert finished.add(runs[1], "e1")
    assert content(finished, "e1") == content_of(runs[1])


def test_what_a_killed_copy_has_left_goes_when_the_episode_is_finished(
    finished: FinishedEpisodes, runs: list[Path]
) -> None:
    finished.folder.put(runs[0] / "context.json", f"{ARRIVING}/e1-00/context.json")
    finished.folder.put(runs[0] / "context.json", f"{ARRIVING}/e2-00/context.json")
    finished.settle(finished.records())
    assert len(finished.folder.sizes(ARRIVING)) == 2
    finished.add(runs[1], "e1")
    finished.settle(finished.records())
    assert list(finished.folder.sizes(ARRIVING)) == ["e2-00/context.json"]
    assert content(finished, "e1") == content_of(runs[1])


@pytest.mark.parametrize("after", [0, 3])
def test_an_interrupted_move_is_gone_on_with(
    after: int, finished: FinishedEpisodes, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        lose(broken, "_move", after)
        with pytest.raises(PlatformError, match="connection is lost"):
            finished.add(runs[0], "e1")
    record = finished.find("e1")
    assert record is not None
    with pytest.raises(DataError, match=r"are incomplete .* remove the records of their episodes in finished/"):
        finished.check_complete({"e1": record.files})
    assert not finished.add(runs[1], "e1")
    finished.settle(finished.records())
    assert content(finished, "e1") == content_of(runs[0])
    finished.check_complete({"e1": record.files})
    assert finished.folder.sizes(ARRIVING) == {}


def test_an_answer_that_is_lost_after_the_record_was_written_counts_as_written(
    finished: FinishedEpisodes, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    system, last = type(finished.folder.system), "mv" if finished.folder.renames else "pipe_file"
    done = getattr(system, last)

    def answered_late(self: Any, path: str, *arguments: object, **options: object) -> None:
        done(self, path, *arguments, **options)
        if FINISHED in path:
            raise TimeoutError("no answer")

    monkeypatch.setattr(system, last, answered_late)
    assert finished.add(runs[0], "e1")
    assert content(finished, "e1") == content_of(runs[0])


def test_a_damaged_record_is_named(finished: FinishedEpisodes) -> None:
    finished.folder.write(f"{FINISHED}/e1.json", b'{"episode": "e1"}')
    with pytest.raises(DataError, match=r"finished/e1\.json"):
        finished.records()


@pytest.mark.parametrize("url", ["https://example.org/data", "memory://"])
def test_a_url_that_cannot_be_written_to_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="s3://bucket/data"):
        FinishedEpisodes(url)
