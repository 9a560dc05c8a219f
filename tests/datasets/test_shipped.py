"""Datasets of the project are found by name, wherever a command is run."""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.command_line.console import root as faultset
from faultset.datasets.dataset import dataset_folder, open_dataset, shipped_datasets
from faultset.evaluators.evaluation_call import results_folder

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"


@pytest.fixture
def installed_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Let the installation say where it came from, and run in an empty folder."""

    class Distribution:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def read_text(self, name: str) -> str | None:
            return json.dumps({"url": self.folder.as_uri()}) if name == "direct_url.json" else None

    def choose(folder: Path) -> None:
        monkeypatch.setattr(metadata, "distribution", lambda _: Distribution(folder))
        shipped_datasets.cache_clear()

    monkeypatch.chdir(tmp_path)
    yield choose
    shipped_datasets.cache_clear()


def test_the_sample_is_found_by_name_from_any_folder(installed_from) -> None:
    installed_from(SAMPLE.parents[1])
    assert open_dataset("sample").episodes == open_dataset(SAMPLE).episodes
    done = CliRunner().invoke(faultset, ["dataset", "show", "sample"])
    assert done.exit_code == 0, done.output
    assert f"{len(open_dataset(SAMPLE).episodes)} episodes" in done.output


def test_results_of_a_dataset_found_by_name_stay_here(installed_from, tmp_path: Path) -> None:
    installed_from(SAMPLE.parents[1])
    assert results_folder("sample") == tmp_path / "results" / "sample"
    assert results_folder(str(SAMPLE)) == SAMPLE.parent / "results" / "sample"


def test_a_folder_of_the_same_name_here_goes_first(installed_from, tmp_path: Path) -> None:
    installed_from(SAMPLE.parents[1])
    shutil.copytree(SAMPLE, tmp_path / "sample")
    assert dataset_folder("sample") == Path("sample")
    assert dataset_folder("./elsewhere/sample") == Path("elsewhere/sample")


def test_a_name_is_a_missing_folder_where_the_project_is_gone(installed_from, tmp_path: Path) -> None:
    installed_from(tmp_path / "a folder with spaces, removed since")
    done = CliRunner().invoke(faultset, ["dataset", "show", "sample"])
    assert done.exit_code == 3
    assert "there is no dataset at sample: no such folder" in done.output
