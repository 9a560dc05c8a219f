"""Labels and reference gaps that an evaluation has read once: found again while the files stay as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faultset.baselines.api.registry import get_baseline
from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.evaluators.execution import dataset_source
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.file_cache import labels_folder
from faultset.evaluators.execution.plan import make_plan
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings


@pytest.fixture
def example_copy(example_dataset: Path, tmp_path: Path) -> Path:
    shutil.copytree(example_dataset, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("FAULTSET_LABELS_BYTES", str(1 << 24))
    return labels_folder()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    seen: list[Path] = []
    label, gaps = dataset_source.read_label, dataset_source.reference_gaps
    monkeypatch.setattr(dataset_source, "read_label", lambda path: seen.append(path) or label(path))
    monkeypatch.setattr(dataset_source, "reference_gaps", lambda view: seen.append(view) or gaps(view))
    return seen


def labels_and_gaps(root: Path) -> tuple[object, list[str]]:
    source = DatasetSource.of(open_dataset(root))
    return source.truths, source.reference_gaps()


def test_nothing_is_read_the_second_time_and_the_same_is_found(example_copy: Path, folder: Path, read: list[Path]):
    first = labels_and_gaps(example_copy)
    assert read
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read == []
    assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o600"}


def test_gaps_are_found_again_as_they_were(example_copy: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    gaps = dataset_source.ReferenceGaps(no_samples=True, coarse_step=False, without_metrics=("geo",))
    monkeypatch.setattr(dataset_source, "reference_gaps", lambda view: gaps)
    _, first = labels_and_gaps(example_copy)
    assert len(first) == 2
    assert labels_and_gaps(example_copy)[1] == first


@pytest.mark.parametrize("name", ["truth/label.parquet", "context.json"])
def test_a_file_that_was_written_again_is_read_again(example_copy: Path, folder: Path, read: list[Path], name: str):
    first = labels_and_gaps(example_copy)
    path = next((example_copy / "episodes").iterdir()) / name
    path.write_bytes(path.read_bytes())
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read


def test_a_label_that_is_gone_is_missed_although_it_is_known(example_copy: Path, folder: Path):
    dataset = open_dataset(example_copy)
    DatasetSource.of(dataset)
    (dataset.path(dataset.episodes[0]) / "truth" / "label.parquet").unlink()
    with pytest.raises(DataError, match=r"label\.parquet is missing"):
        DatasetSource.of(dataset)


def test_what_is_known_of_one_copy_says_nothing_of_another(
    example_copy: Path, folder: Path, read: list[Path], tmp_path: Path
):
    labels_and_gaps(example_copy)
    shutil.copytree(example_copy, tmp_path / "other", copy_function=shutil.copy2)
    del read[:]
    labels_and_gaps(tmp_path / "other")
    assert read


@pytest.mark.parametrize("content", [b"", b"[", b"[1]", b'{"a": 1}', b"\xff"])
def test_a_damaged_file_is_made_again(example_copy: Path, folder: Path, read: list[Path], content: bytes):
    first = labels_and_gaps(example_copy)
    for path in folder.iterdir():
        path.write_bytes(content)
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read == []


def test_nothing_is_kept_where_nothing_may_be(example_copy: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAULTSET_LABELS_BYTES", "0")
    labels_and_gaps(example_copy)
    assert not folder.exists()
    monkeypatch.setenv("FAULTSET_LABELS_BYTES", "much")
    with pytest.raises(UsageError, match="must be a number of bytes"):
        labels_and_gaps(example_copy)


def test_methods_cannot_read_them(example_copy: Path, folder: Path):
    source = DatasetSource.of(open_dataset(example_copy))
    plan = make_plan(EvaluationScope(source=source, settings=EvaluationSettings()), [get_baseline("max-z")], 1)
    assert str(folder) in plan.context.hidden
