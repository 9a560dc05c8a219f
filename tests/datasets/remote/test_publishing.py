"""Datasets copied to URLs: the version file comes last, interrupted copies go on, and what is there is read again."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from click.testing import CliRunner, Result

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.derivation import EpisodeFilter, filter_dataset
from faultset.datasets.format.version_files import hashes_below
from faultset.datasets.remote.file_systems import is_url, list_remote_versions, local_folder, local_path
from faultset.datasets.remote.writing import RemoteFolder, publish_dataset


def run(*arguments: object) -> Result:
    return CliRunner().invoke(faultset, [str(argument) for argument in arguments])


@pytest.fixture
def in_memory() -> Iterator[str]:
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    yield f"memory://{name}/data"
    system = fsspec.filesystem("memory")
    if system.exists(f"/{name}"):
        system.rm(f"/{name}", recursive=True)


@pytest.fixture(params=["memory", "file"])
def target(request: pytest.FixtureRequest, in_memory: str, tmp_path: Path) -> str:
    return in_memory if request.param == "memory" else f"file://{tmp_path}/published"


def files_at(url: str) -> set[str]:
    system, path = fsspec.core.url_to_fs(url)
    return {name.rpartition("/data/")[2].rpartition("/published/")[2] for name in system.find(path)}


def episodes_of(root: Path) -> dict[str, str]:
    return {name: one for name, one in hashes_below(root).items() if name.startswith("episodes/")}


def fail_after(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the copy of a file fail after some were copied, as when a connection is lost."""
    put: Callable[..., None] = RemoteFolder.put
    done: list[str] = []

    def failing(self: Any, source: Path, name: str) -> None:
        if len(done) >= number:
            raise PlatformError("the connection is lost")
        put(self, source, name)
        done.append(name)

    monkeypatch.setattr(RemoteFolder, "put", failing)


def test_a_location_is_a_url_or_a_folder() -> None:
    assert is_url("s3://bucket/data")
    assert not is_url("data/shop")
    assert not is_url("file:///data/shop")
    assert local_path("file:///data/shop") == Path("/data/shop")


def test_what_was_published_is_the_dataset(example_root: Path, target: str) -> None:
    done = publish_dataset(example_root, target)
    dataset = open_dataset(example_root)
    assert (done.version, done.is_new) == ("1.0.0", True)
    assert done.copied == done.files == sum(map(len, dataset.files.values()))
    assert done.copied_bytes == sum(one.bytes for files in dataset.files.values() for one in files.values())
    with local_folder(target) as root:
        assert episodes_of(root) == {
            name: one for name, one in episodes_of(example_root).items() if ".cache" not in name
        }
        assert (root / "versions" / "1.0.0.json").read_bytes() == (example_root / "versions/1.0.0.json").read_bytes()
    assert "README.md" in files_at(target)
    again = publish_dataset(example_root, target)
    assert (again.is_new, again.copied) == (False, 0)


def test_an_interrupted_copy_shows_no_version_and_goes_on(
    example_root: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        fail_after(broken, 11)
        with pytest.raises(PlatformError, match="connection is lost"):
            publish_dataset(example_root, target, threads=1)
    assert len(files_at(target)) == 11
    with pytest.raises(DataError, match="has no versions"):
        list_remote_versions(target)
    done = publish_dataset(example_root, target)
    assert done.copied == done.files - 11
    assert not [name for name in files_at(target) if "incomplete" in name or name.endswith(".tmp")]
    assert list_remote_versions(target) == ["1.0.0"]


def test_where_files_appear_before_they_are_whole_an_episode_has_another_name_until_then(
    example_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        fail_after(broken, 3)
        with pytest.raises(PlatformError):
            publish_dataset(example_root, f"file://{tmp_path}/published", threads=1)
    assert all(".incomplete/" in name for name in files_at(f"file://{tmp_path}/published"))


def test_a_file_of_another_size_is_copied_again(example_root: Path, target: str) -> None:
    publish_dataset(example_root, target)
    system, path = fsspec.core.url_to_fs(target)
    episode = open_dataset(example_root).episodes[0]
    system.pipe_file(f"{path}/episodes/{episode}/context.json", b"half")
    assert publish_dataset(example_root, target).copied == 1
    assert run("dataset", "verify", target).exit_code == 0


def test_versions_share_the_episodes_that_they_have_in_common(example_copy: Path, in_memory: str) -> None:
    publish_dataset(example_copy, in_memory)
    kept = open_dataset(example_copy).episodes[0]
    filter_dataset(example_copy, EpisodeFilter(episodes=[kept]))
    done = publish_dataset(example_copy, in_memory)
    assert (done.version, done.copied) == ("1.1.0", 0)
    assert list_remote_versions(in_memory) == ["1.0.0", "1.1.0"]


def test_another_version_of_the_same_name_is_refused_and_stays(
    example_root: Path, example_copy: Path, in_memory: str
) -> None:
    publish_dataset(example_root, in_memory)
    before = files_at(in_memory)
    file = example_copy / "versions" / "1.0.0.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"provenance": {"made": "elsewhere"}}))
    with pytest.raises(DataError, match=r"has a different version 1\.0\.0"):
        publish_dataset(example_copy, in_memory)
    assert files_at(in_memory) == before


def test_the_commands_read_what_was_published(example_root: Path, in_memory: str) -> None:
    done = run("dataset", "publish", example_root, in_memory)
    assert done.exit_code == 0, done.output
    assert f"is published at {in_memory}" in done.stdout
    here, there = run("dataset", "show", example_root, "--json"), run("dataset", "show", in_memory, "--json")
    assert {**json.loads(here.stdout), "dataset": ""} == {**json.loads(there.stdout), "dataset": ""}
    assert json.loads(run("dataset", "versions", in_memory, "--json").stdout)[0]["version"] == "1.0.0"
    assert "No errors." in run("dataset", "verify", in_memory).stdout
    doctor = run("dataset", "doctor", in_memory)
    assert f"{in_memory} is a faultset dataset: version 1.0.0" in doctor.stdout


def test_verify_names_what_is_damaged_or_missing_at_a_url(example_root: Path, in_memory: str) -> None:
    publish_dataset(example_root, in_memory)
    system, path = fsspec.core.url_to_fs(in_memory)
    one, other = open_dataset(example_root).episodes[:2]
    content = system.cat_file(f"{path}/episodes/{one}/telemetry/logs.parquet")
    system.pipe_file(f"{path}/episodes/{one}/telemetry/logs.parquet", content[:-9] + b"?" + content[-8:])
    system.rm(f"{path}/episodes/{other}/telemetry/spans.parquet")
    found = run("dataset", "verify", in_memory, "--json")
    assert found.exit_code == 3
    places = {record["file"] for record in json.loads(found.stdout) if record["severity"] == "error"}
    assert {f"episodes/{one}/telemetry/logs.parquet", f"episodes/{other}/telemetry/spans.parquet"} <= places


def test_a_web_server_is_read_and_never_written_to(example_root: Path, tmp_path: Path) -> None:
    shutil.copytree(example_root, tmp_path / "served" / "data")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object, **more: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/data"
        try:
            assert "1.0.0" in run("dataset", "versions", url).stdout
            assert "No errors." in run("dataset", "verify", url).stdout
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(UsageError, match="is read-only"):
        publish_dataset(example_root, url)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("scheme", 4, "install the fsspec package for nowhere://"),
        ("version", 3, 'has no version "9.9.9"'),
        ("itself", 2, "is the dataset's folder"),
        ("damaged", 3, "context.json"),
        ("file", 4, "cannot be"),
    ],
)
def test_mistakes_are_one_sentence(
    example_copy: Path, in_memory: str, tmp_path: Path, change: str, code: int, said: str
):
    (tmp_path / "a-file").write_text("mine")
    arguments: dict[str, list[object]] = {
        "scheme": ["nowhere://x/y"],
        "version": [in_memory, "--version", "9.9.9"],
        "itself": [f"file://{example_copy}"],
        "damaged": [in_memory],
        "file": [f"file://{tmp_path}/a-file/data"],
    }
    if change == "damaged":
        victim = next((example_copy / "episodes").glob("*/context.json"))
        victim.write_text(victim.read_text().replace("example", "exampel"))
    result = run("dataset", "publish", example_copy, *arguments[change])
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not files_at(in_memory)
