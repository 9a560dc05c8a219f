"""Files of a version are hashed once, and what has changed since is found all the same."""

from __future__ import annotations

import os

import pytest

from faultset.datasets.dataset import open_dataset
from faultset.datasets.format import integrity
from faultset.datasets.format.cache_folder import FOLDER
from faultset.datasets.format.versions import create_version


@pytest.fixture
def hashed(monkeypatch):
    seen = []
    real = integrity.sha256_of
    monkeypatch.setattr(integrity, "sha256_of", lambda path: seen.append(path) or real(path))
    return seen


def test_nothing_is_hashed_after_the_first_time(example_copy, hashed):
    dataset = open_dataset(example_copy)
    first = dataset.differing_files(2)
    del hashed[:]
    assert (first, dataset.differing_files(2), hashed) == ([], [], [])


def test_what_made_a_version_need_not_be_hashed_for_it_again(write_episode, hashed):
    root = write_episode("e1").parents[1]
    create_version(root, provenance={})
    assert open_dataset(root).differing_files(2) == []
    assert hashed == []


@pytest.mark.parametrize("same_time", [False, True])
def test_a_file_of_the_same_size_with_other_bytes_is_found_by_its_time(example_copy, same_time):
    dataset = open_dataset(example_copy)
    assert dataset.differing_files(2) == []
    path = dataset.path(dataset.episodes[0]) / "telemetry" / "metrics.parquet"
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    if same_time:
        # what nothing but its bytes betrays is for verify
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert dataset.differing_files(2) == ([] if same_time else [path])


def test_a_damaged_list_of_what_was_seen_is_made_again(example_copy, hashed):
    dataset = open_dataset(example_copy)
    dataset.differing_files(2)
    del hashed[:]
    (example_copy / FOLDER / "content.json").write_text('{"a": [1]}')
    assert dataset.differing_files(2) == []
    assert len(hashed) == sum(len(files) for files in dataset.files.values())
