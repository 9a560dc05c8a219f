from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from faultset.core.errors import DataError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.schemas import SCHEMA_VERSION
from faultset.datasets.format.version_files import VersionFile, compute_sha256
from faultset.datasets.format.versions import (
    compare_versions,
    create_version,
    list_versions,
    write_version_file,
)

VERSION_FILE = VersionFile(
    schema_version=SCHEMA_VERSION, version="1.0.0", created="now", provenance={}, episodes={}, splits={}
)


def test_the_first_version_is_1_0_0_and_bumps_follow(write_episode, tmp_path):
    write_episode("e1")
    made = [
        create_version(tmp_path, provenance={}, bump=bump) for bump in ("minor", "minor", "patch", "major", "minor")
    ]
    assert made == ["1.0.0", "1.1.0", "1.1.1", "2.0.0", "2.1.0"]
    assert list_versions(tmp_path) == made


def test_versions_are_ordered_as_numbers(write_episode, tmp_path):
    write_episode("e1")
    for _ in range(11):
        create_version(tmp_path, provenance={})
    assert list_versions(tmp_path)[-2:] == ["1.9.0", "1.10.0"]
    assert open_dataset(tmp_path).version == "1.10.0"


def test_a_version_records_every_file(example_root):
    dataset = open_dataset(example_root)
    assert len(dataset.episodes) == 4
    for episode, files in dataset.files.items():
        folder = dataset.path(episode)
        present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert files.keys() == present
        for name, record in files.items():
            assert record.bytes == (folder / name).stat().st_size
            assert record.sha256 == compute_sha256(folder / name)
            assert (record.rows is not None) == name.endswith(".parquet")


def test_a_version_file_is_never_changed(write_episode, tmp_path):
    write_episode("e1")
    create_version(tmp_path, provenance={"run": 1})
    file = tmp_path / "versions" / "1.0.0.json"
    before = file.read_bytes()
    with pytest.raises(DataError, match=r"version 1\.0\.0 .* already exists and cannot be changed"):
        write_version_file(tmp_path, VERSION_FILE)
    write_episode("e2")
    create_version(tmp_path, provenance={"run": 2})
    assert file.read_bytes() == before
    assert [path.name for path in (tmp_path / "versions").iterdir() if path.name.startswith(".")] == []


def test_of_many_writers_of_one_version_one_wins(tmp_path):
    def attempt(number: int) -> bool:
        try:
            write_version_file(tmp_path, replace(VERSION_FILE, created=str(number)))
        except DataError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1


def test_an_older_version_opens_with_its_own_episodes(write_episode, tmp_path):
    write_episode("e1")
    create_version(tmp_path, provenance={"run": 1})
    write_episode("e2")
    create_version(tmp_path, provenance={"run": 2})
    assert open_dataset(tmp_path, "1.0.0").episodes == ("e1",)
    assert open_dataset(tmp_path, "1.0.0").provenance == {"run": 1}
    assert open_dataset(tmp_path).episodes == ("e1", "e2")
    added = {"change": "added", "episode": "e2", "files": []}
    assert compare_versions(tmp_path, "1.0.0", "1.1.0") == [added]
    assert compare_versions(tmp_path, "1.1.0", "1.0.0") == [added | {"change": "removed"}]


def test_chosen_episodes_must_exist(write_episode, tmp_path):
    write_episode("e10")
    write_episode("e20")
    assert create_version(tmp_path, episodes=["e10"], provenance={}) == "1.0.0"
    assert open_dataset(tmp_path).episodes == ("e10",)
    with pytest.raises(DataError, match=r'no complete episode "e11"; did you mean "e10"'):
        create_version(tmp_path, episodes=["e11"], provenance={})


def test_episodes_being_written_are_no_part_of_a_version(write_episode, tmp_path):
    write_episode("e1")
    with EpisodeWriter(tmp_path, "e2"):
        create_version(tmp_path, provenance={})
    assert open_dataset(tmp_path).episodes == ("e1",)


def test_missing_and_changed_files_are_counted_when_opening(example_copy):
    dataset = open_dataset(example_copy)
    first = dataset.path(dataset.episodes[0])
    (first / "telemetry" / "logs.parquet").unlink()
    (first / "telemetry" / "spans.parquet").unlink()
    with pytest.raises(DataError, match=r"version 1\.0\.0 is incomplete: 2 of 40 files missing \(first: episodes/e"):
        open_dataset(example_copy)


def test_a_file_of_another_size_is_found_when_opening(example_copy):
    dataset = open_dataset(example_copy)
    with (dataset.path(dataset.episodes[0]) / "context.json").open("a") as file:
        file.write(" ")
    with pytest.raises(DataError, match=r"is damaged: 1 of 40 files have a different size"):
        open_dataset(example_copy)


@pytest.mark.parametrize("found", [SCHEMA_VERSION + 1, 0, "one"])
def test_an_unknown_schema_version_names_both_numbers_and_a_remedy(example_copy, found):
    file = example_copy / "versions" / "1.0.0.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": found}))
    with pytest.raises(DataError, match=rf"must have schema version {SCHEMA_VERSION}, but has \"?{found}\"?; read it"):
        open_dataset(example_copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must hold an object, but holds a list of 0"),
        ("{}", "must have schema version 1, but has None"),
        ('{"schema_version": 1}', "the field version is missing"),
    ],
)
def test_a_damaged_version_file_is_named(example_copy, content, message):
    (example_copy / "versions" / "1.0.0.json").write_text(content)
    with pytest.raises(DataError, match=rf"1\.0\.0\.json.* {message}"):
        open_dataset(example_copy)


def test_folders_that_are_no_datasets_are_told_apart(tmp_path, example_root):
    with pytest.raises(DataError, match="no such folder"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no versions"):
        open_dataset(tmp_path)
    with pytest.raises(DataError, match=r'no version "1\.0\.1"; did you mean "1\.0\.0"'):
        open_dataset(example_root, "1.0.1")
    with pytest.raises(DataError, match="no complete episode for a version"):
        create_version(tmp_path, provenance={})


def test_labels_and_paths_are_looked_up_by_episode(example_root):
    dataset = open_dataset(example_root)
    labels = [dataset.label(episode) for episode in dataset.episodes]
    assert sorted(label.fault or "" for label in labels) == ["", "", "cpu-hog", "slow-disk"]
    assert all(isinstance(label.workload, dict) for label in labels)
    with pytest.raises(DataError, match="has no episode"):
        dataset.view("../truth")


def test_the_card_lists_every_table_for_hugging_face(example_root):
    import yaml

    text = (example_root / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    configs = {config["config_name"]: config["data_files"] for config in front["configs"]}
    assert configs["metrics"] == "episodes/*/telemetry/metrics.parquet"
    assert configs["label"] == "episodes/*/truth/label.parquet"
    assert len(configs) == 8
    for pattern in configs.values():
        assert len(list(example_root.glob(pattern))) == 4
    assert "synthetic" in text
    assert "| example | cpu-hog | manifest | 1 |" in text


def test_a_new_card_keeps_the_notes_below_its_mark(write_episode, tmp_path):
    write_episode("e1")
    create_version(tmp_path, provenance={})
    card = tmp_path / "README.md"
    card.write_text(card.read_text() + "Collected on a rainy day.\n")
    create_version(tmp_path, provenance={})
    text = card.read_text()
    assert "version 1.1.0" in text
    assert text.endswith("is written again. -->\nCollected on a rainy day.\n")


def test_a_version_that_could_not_be_read_again_is_not_written(example_copy, monkeypatch):
    from faultset.datasets.format import versions

    monkeypatch.setattr(versions, "LIMIT_BYTES", 1000)
    with pytest.raises(DataError, match=r"the file for 4 episodes .* divide them among several datasets"):
        create_version(example_copy, provenance={})
    assert list_versions(example_copy) == ["1.0.0"]
