"""Wide frames kept beside a dataset: the same numbers, never stale, never needed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from faultset.datasets.cache import FOLDER
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.metrics import frames as frames_module
from faultset.datasets.views import EpisodeView


@pytest.fixture(autouse=True)
def _small_files_too(monkeypatch):
    monkeypatch.setattr(frames_module, "MIN_CACHED_BYTES", 0)


def view_of(root: Path) -> EpisodeView:
    dataset = open_dataset(root)
    return dataset.view(dataset.episodes[0])


def frames(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob("*.frame"))


def test_a_kept_frame_equals_the_one_that_was_made(example_copy, monkeypatch):
    view = view_of(example_copy)
    made = view.wide(2.0, ["cpu", "latency"])
    monkeypatch.setattr(EpisodeView, "_make_wide", None)
    kept = view.wide(2.0, ["cpu", "latency"])
    pd.testing.assert_frame_equal(kept, made)


def test_another_step_other_roles_and_another_file_are_other_frames(example_copy):
    view = view_of(example_copy)
    view.wide(1.0)
    view.wide(2.0)
    view.wide(2.0, ["cpu"])
    assert len(frames(example_copy)) == 3
    os.utime(example_copy / "episodes" / view.episode / "telemetry" / "metrics.parquet", ns=(1, 1))
    view.wide(1.0)
    assert len(frames(example_copy)) == 4


def test_a_damaged_frame_is_made_again(example_copy):
    view = view_of(example_copy)
    made = view.wide(1.0)
    frames(example_copy)[0].write_bytes(b'[["a","b"]]\n')
    pd.testing.assert_frame_equal(view.wide(1.0), made)


def test_a_dataset_that_cannot_be_written_is_read_all_the_same(example_copy):
    shutil.rmtree(example_copy / FOLDER)
    (example_copy / FOLDER).write_text("a file is in the way")
    assert len(view_of(example_copy).wide(1.0))


def test_verification_takes_no_notice_of_kept_frames(example_copy):
    before = verify(example_copy)
    view_of(example_copy).wide(1.0)
    assert verify(example_copy) == before


def test_small_episodes_keep_nothing(example_copy, monkeypatch):
    monkeypatch.setattr(frames_module, "MIN_CACHED_BYTES", 1 << 20)
    view_of(example_copy).wide(1.0)
    assert not frames(example_copy)
