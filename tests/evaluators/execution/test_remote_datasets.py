"""Datasets behind URLs: fetched once, checked while they arrive, and scored as if they lay here."""

from __future__ import annotations

import dataclasses
import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faultset.baselines.registry import get_baseline
from faultset.core.errors import DataError, PlatformError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.remote.file_systems import fetch
from faultset.evaluators.cli.evaluate import evaluate
from faultset.evaluators.execution import dataset_source
from faultset.evaluators.execution.dataset_source import (
    DatasetSource,
    EpisodeLocation,
    local_folders,
    open_remote_source,
    remove_fetched_episodes,
)
from faultset.evaluators.execution.plan import make_plan
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from faultset.evaluators.results.rows import read_rows

NAMES = "ksigma,max-z,most-frequent"


@pytest.fixture
def server(tmp_path: Path, example_dataset: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A copy of the dataset behind a web server on loopback: its URL, its folder, and what was asked for."""
    root = tmp_path / "served" / "example"
    shutil.copytree(example_dataset, root)
    asked: list[str] = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object, **more: object) -> None:
            if self.command == "GET":
                asked.append(self.path)

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root.parent)))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}/example", root, asked
    made.shutdown()
    made.server_close()
    thread.join()
    remove_fetched_episodes()


@pytest.fixture
def in_memory(example_dataset: Path) -> Iterator[str]:
    import fsspec

    system = fsspec.filesystem("memory")
    system.put(str(example_dataset), "/example", recursive=True)
    yield "memory://example"
    system.rm("/example", recursive=True)
    remove_fetched_episodes()


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(evaluate, [str(argument) for argument in arguments])


def answers(path: Path) -> list:
    measured = {"seconds": None, "cpu_seconds": None, "fit_seconds": None, "peak_bytes": None}
    return [dataclasses.replace(row, **measured) for row in read_rows(path)]


def test_labels_and_contexts_are_copied_and_telemetry_is_not(server, example_dataset: Path):
    url, _, asked = server
    here = DatasetSource.of(open_dataset(example_dataset))
    with open_remote_source(url, None) as source:
        assert source.truths == here.truths
        assert (source.name, source.version, source.digest) == (here.name, here.version, here.digest)
        assert not list(source.folder.glob("episodes/*/telemetry/*"))
    assert not [path for path in asked if "telemetry" in path]


def test_an_episode_is_fetched_once_and_requests_only_for_those_who_may_see_them(server):
    url, _, asked = server
    with open_remote_source(url, "1.0.0") as source:
        location = source.location(source.truths[0].episode)
        for _ in range(2):
            with local_folders((location,), frozenset()) as (folder,):
                assert sorted(path.name for path in Path(folder).glob("telemetry/*")) == sorted(
                    f"{table}.parquet" for table in dataset_source.ALWAYS_FETCHED
                )
        with local_folders((location,), frozenset({"sli"})) as (folder,):
            assert (Path(folder) / "telemetry" / "requests.parquet").exists()
    fetched = [path for path in asked if "telemetry" in path]
    assert len(fetched) == len(set(fetched)) == 6


def test_what_nobody_uses_is_removed_when_space_is_short(server, monkeypatch: pytest.MonkeyPatch):
    url, _, _ = server
    monkeypatch.setattr(dataset_source, "CACHE_BYTES", 1)
    with open_remote_source(url, None) as source:
        locations = [source.location(truth.episode) for truth in source.truths[:2]]
        with local_folders(locations, frozenset()) as folders:
            assert all(Path(folder).exists() for folder in folders)
        assert not any(Path(folder).exists() for folder in folders)


def test_a_damaged_file_is_named_when_it_arrives(server):
    url, root, _ = server
    victim = sorted((root / "episodes").glob("*/telemetry/metrics.parquet"))[0]
    victim.write_bytes(b"x" + victim.read_bytes()[1:])
    with open_remote_source(url, None) as source:
        location = source.location(victim.parents[1].name)
        wrong = pytest.raises(DataError, match=r"differ from their checksum .first: telemetry/metrics.parquet")
        with wrong, local_folders((location,), frozenset()):
            pass


ARGUMENTS = ("--baselines", NAMES, "--workers", 1, "--thresholds", "reference", "--protocol", "oracle")


@pytest.fixture(scope="module")
def near(example_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list:
    out = tmp_path_factory.mktemp("near")
    result = invoke(example_dataset, *ARGUMENTS, "--out", out)
    assert result.exit_code == 0, result.output
    return answers(out / "results.parquet")


@pytest.mark.parametrize(
    "location", ["http", pytest.param("memory", marks=pytest.mark.slow), pytest.param("file", marks=pytest.mark.slow)]
)
def test_the_command_gives_the_rows_of_the_local_dataset(
    location: str, request: pytest.FixtureRequest, example_dataset: Path, tmp_path: Path, near: list
):
    if location == "file":
        url = f"file://{example_dataset}"
    else:
        url = request.getfixturevalue("server")[0] if location == "http" else request.getfixturevalue("in_memory")
    far = invoke(url, *ARGUMENTS, "--out", tmp_path / "far")
    assert far.exit_code == 0, far.output
    assert answers(tmp_path / "far" / "results.parquet") == near


@pytest.mark.slow
def test_workers_elsewhere_fetch_for_themselves(server):
    from distributed import LocalCluster

    from faultset.evaluators.execution.scheduling import remote_client, run_plan

    url, _, asked = server
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as cluster,
        remote_client(vars(cluster)["scheduler"].address, None) as client,
        open_remote_source(url, None) as source,
    ):
        rows = run_plan(
            make_plan(EvaluationScope(source=source, settings=EvaluationSettings()), [get_baseline("ksigma")], 1),
            client,
        )
    assert {row.status for row in rows} == {"ok"}
    assert any("telemetry" in path for path in asked)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("version", 3, 'has no version "9.9.9"'),
        ("out", 2, "give a local folder with --out"),
        ("scheme", 4, "install the fsspec package for nowhere://"),
        ("nothing", 3, "has no versions"),
    ],
)
def test_mistakes_about_urls_are_one_sentence(server, tmp_path: Path, change: str, code: int, said: str):
    url, _, _ = server
    arguments: dict[str, list[object]] = {
        "version": [url, "--version", "9.9.9", "--out", tmp_path],
        "out": [url],
        "scheme": ["nowhere://x/y", "--out", tmp_path],
        "nothing": [f"{url}/episodes", "--out", tmp_path],
    }
    result = invoke(*arguments[change])
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path):
    with pytest.raises(PlatformError, match="cannot be"):
        fetch("http://127.0.0.1:9/data", ["a"], {"a": ""})
    result = invoke("http://127.0.0.1:9/data", "--out", tmp_path)
    assert result.exit_code == 4, result.output


def test_a_place_without_checksums_is_a_folder():
    with local_folders((EpisodeLocation(folder="/data/episodes/e1"),), frozenset()) as folders:
        assert folders == ("/data/episodes/e1",)


@pytest.mark.parametrize("damage", ["id", "version", "missing"])
def test_a_version_file_behind_a_url_is_checked(damage: str, server, tmp_path: Path):
    url, root, _ = server
    file = root / "versions" / "1.0.0.json"
    content = json.loads(file.read_text())
    if damage == "id":
        content["episodes"][f"{tmp_path}/outside"] = content["episodes"].pop(next(iter(content["episodes"])))
    elif damage == "version":
        content["version"] = "9.9.9"
    else:
        del content["version"]
    file.write_text(json.dumps(content))
    result = invoke(url, "--out", tmp_path / "out")
    assert result.exit_code == 3, result.output
    assert "restore the file" in result.stderr
    assert not (tmp_path / "outside").exists()
