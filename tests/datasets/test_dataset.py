"""A dataset is a collection of episodes, and its labels are a table."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, UsageError
from faultset.datasets import Dataset, Label, open_dataset
from faultset.datasets.dataset import dataset_folder, list_project_datasets
from faultset.evaluators.evaluation_call import results_folder


@pytest.fixture(scope="module")
def dataset(example_root) -> Dataset:
    return open_dataset(example_root)


def test_a_dataset_is_a_collection_of_its_episodes(dataset: Dataset):
    assert len(dataset) == 4
    assert [episode.id for episode in dataset] == list(dataset.episodes)
    first = dataset.episodes[0]
    assert dataset[first].label == dataset.label(first)
    assert dataset[first].view.context == dataset.view(first).context
    assert first in dataset
    assert "nobody" not in dataset


@pytest.mark.parametrize(("episode", "error"), [(0, UsageError), (None, UsageError), ("nobody", DataError)])
@pytest.mark.parametrize("method", ["__getitem__", "view", "label", "path"])
def test_what_is_no_episode_is_refused_in_a_sentence(dataset: Dataset, method: str, episode, error: type[Exception]):
    with pytest.raises(error, match="episode"):
        getattr(dataset, method)(episode)


def test_labels_are_a_row_an_episode_in_seconds_and_utc(dataset: Dataset):
    frame = dataset.labels()
    assert tuple(frame.index) == dataset.episodes
    for episode in dataset:
        label, row = episode.label, frame.loc[episode.id].to_dict()
        assert (row["app"], row["fault"], row["verdict"]) == (episode.context.app, label.fault, label.verdict)
        assert row["duration_s"] == (label.view_end_ns - label.view_start_ns) / 1e9
        assert row["start"] == pd.Timestamp(label.view_start_ns, tz="UTC")
        if label.onset_ns is None:
            assert all(pd.isna(row[name]) for name in ("target", "onset", "onset_s", "onset_ns"))
        else:
            assert row["target"] == label.targets[0]
            assert row["onset_ns"] == label.onset_ns
            assert row["onset"] == pd.Timestamp(label.onset_ns, tz="UTC")
            assert row["onset_s"] == pytest.approx((row["onset"] - row["start"]).total_seconds())


def test_labels_of_an_empty_dataset_have_the_same_columns(dataset: Dataset):
    empty = Dataset(dataset.root, replace(dataset.version_file, episodes={}))
    pd.testing.assert_series_equal(empty.labels().dtypes, dataset.labels().dtypes)


def test_a_label_prints_as_a_line_and_as_a_short_table(dataset: Dataset):
    for label in (episode.label for episode in dataset):
        assert len(repr(label)) < 160
        assert label.episode in repr(label)
        lines = str(label).splitlines()
        assert 4 <= len(lines) <= 12
        for fault in label.fault_names:
            assert fault in repr(label)
            assert fault in lines[1]


def test_a_label_shows_no_control_characters_of_its_source(dataset: Dataset):
    label: Label = replace(dataset.label(dataset.episodes[0]), parameters={"image": "\x1b[2J"})
    assert "\x1b" not in str(label)


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
        list_project_datasets.cache_clear()

    monkeypatch.chdir(tmp_path)
    yield choose
    list_project_datasets.cache_clear()


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
