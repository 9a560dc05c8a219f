"""Fits are used again when nothing that they can depend on has changed, and nobody but their method opens them."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.baselines.registry import get_baseline
from faultset.core.errors import UsageError
from faultset.datasets.dataset import open_dataset
from faultset.evaluators import Evaluation, evaluate
from faultset.evaluators.execution import fits
from faultset.evaluators.execution.batches import BaselineRun, FittedModel
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.fits import FitBatch, FitCache, fits_folder, fits_limit
from faultset.evaluators.execution.plan import make_plan
from faultset.evaluators.execution.runners.messages import Blob
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from faultset.evaluators.leaderboards.formats import summary_lines

METHOD = "nearest-signature"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where fits are kept in a test."""
    monkeypatch.setenv("FAULTSET_FITS", str(tmp_path / "fits"))
    monkeypatch.setenv("FAULTSET_FITS_BYTES", str(1 << 24))
    return tmp_path / "fits"


def model(data: bytes = b"model", seconds: float = 1.5) -> FittedModel:
    return FittedModel(status="ok", blob=Blob.of(data), seconds=seconds)


def diagnosed(dataset: Path, **changes: object) -> Evaluation:
    return evaluate(dataset, [METHOD], protocol="oracle", workers=1, **changes)  # type: ignore[arg-type]


def test_the_second_evaluation_in_another_folder_fits_nothing_again(example_dataset: Path, tmp_path: Path):
    first = diagnosed(example_dataset, out=tmp_path / "one")
    made = {path: path.read_bytes() for path in fits_folder().iterdir()}
    assert len(made) == 2
    second = diagnosed(example_dataset, out=tmp_path / "two")
    assert {path: path.read_bytes() for path in fits_folder().iterdir()} == made
    assert "reused_fits" not in first.settings
    assert second.settings["reused_fits"] == f"2 of 2 ({METHOD} 2)"
    assert f"reused fits of earlier evaluations: 2 of 2 ({METHOD} 2)" in summary_lines(second.board)
    answers = [{row.key: (dict(row.answer), row.fit_seconds) for row in done.rows} for done in (first, second)]
    assert answers[0] == answers[1]
    anew = diagnosed(example_dataset, out=tmp_path / "three", fresh=True)
    assert "reused_fits" not in anew.settings
    assert set(fits_folder().iterdir()) == set(made)


def test_a_kept_fit_is_opened_in_the_methods_own_process_alone(example_dataset: Path, tmp_path: Path):
    diagnosed(example_dataset)
    process_ended = pickle.dumps(EndsItsProcess())
    header = {"layout": 1, "sha256": hashlib.sha256(process_ended).hexdigest(), "seconds": 1.0}
    for path in fits_folder().iterdir():
        path.write_bytes(json.dumps(header).encode() + b"\n" + process_ended)
    again = diagnosed(example_dataset)
    # had this process opened them, the test would have ended here
    assert {row.status for row in again.rows} == {"exit"}


class EndsItsProcess:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (7,)


@pytest.fixture(scope="module")
def batch(example_dataset: Path) -> tuple[FitBatch, BaselineRun]:
    source = DatasetSource.of(open_dataset(example_dataset))
    plan = make_plan(
        EvaluationScope(source=source, settings=EvaluationSettings(tasks=("rca",))), [get_baseline(METHOD)], 1
    )
    batch = next(one for one in plan.fits if one.inner is None)
    return batch, next(run for run in plan.context.runs if run.name == METHOD)


def key_of(fit: FitBatch, run: BaselineRun) -> str:
    """Name under which another evaluation would look for a fit."""
    return fit._build_key(run, fits.FitCache(1))


def test_whatever_a_fit_can_depend_on_is_in_its_key(
    batch: tuple[FitBatch, BaselineRun], monkeypatch: pytest.MonkeyPatch
):
    fit, run = batch
    key = key_of(fit, run)
    assert len(key) == 64
    assert key_of(fit, run) == key
    moved = tuple(replace(one, folder=f"/elsewhere/{Path(one.folder).name}") for one in fit.faulty)
    assert key_of(replace(fit, faulty=moved, fold=7, runs=()), run) == key
    others = {
        "seed": key_of(fit, replace(run, seed=1)),
        "code or parameters": key_of(fit, replace(run, fit_code="other")),
        "a file": key_of(replace(fit, faulty=(replace(fit.faulty[0], content="other"), *fit.faulty[1:])), run),
        "fewer episodes": key_of(replace(fit, healthy=fit.healthy[1:]), run),
        "labels": key_of(replace(fit, labels=(fit.labels[0]._replace(service="other"), *fit.labels[1:])), run),
        "references": key_of(fit, replace(run, learns_from_references=True)),
        "what is installed": key_of(fit, replace(run, built_in=False)),
    }
    monkeypatch.setattr(fits, "own_digest", lambda: "edited")
    others["faultset"] = key_of(fit, run)
    monkeypatch.undo()
    monkeypatch.setattr(fits, "library_versions", lambda: "newer")
    others["libraries"] = key_of(fit, run)
    assert len({key, *others.values()}) == 1 + len(others)
    assert "" not in others.values()


def test_labels_of_other_episodes_are_no_matter_to_a_method_that_is_not_given_them(batch: tuple[FitBatch, BaselineRun]):
    fit, run = batch
    unlabelled = replace(run, needs=())
    assert key_of(replace(fit, labels=(), faulty=()), unlabelled) == key_of(fit, unlabelled)


@pytest.mark.parametrize("changes", [{"learns": False}, {"fit_code": ""}])
def test_what_learns_nothing_or_belongs_to_no_distribution_is_not_kept(
    batch: tuple[FitBatch, BaselineRun], changes: dict[str, object]
):
    fit, run = batch
    assert key_of(fit, replace(run, **changes)) == ""  # type: ignore[arg-type]


def test_data_without_checksums_is_not_kept(batch: tuple[FitBatch, BaselineRun]):
    fit, run = batch
    assert key_of(replace(fit, healthy=(*fit.healthy, replace(fit.faulty[0], content=""))), run) == ""


def test_a_fit_comes_back_as_it_was_made(folder: Path):
    FitCache(1 << 20).store("a", model(b"of\nmany\nlines", 2.25))
    assert FitCache(1 << 20).find("a") == replace(model(b"of\nmany\nlines", 2.25), is_cached=True)
    assert FitCache(1 << 20).find("b") is None
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())] == ["0o700", "0o600"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(path.read_bytes().replace(b"seconds", b"minutes")),
        lambda path: path.write_bytes(path.read_bytes().replace(b'"layout": 1', b'"layout": 2')),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"[" * 1000),
        lambda path: (path.rename(path.parent / "moved"), path.symlink_to("moved")),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: path.parent.chmod(0o777),
    ],
)
def test_a_file_or_folder_that_is_not_as_it_was_left_is_no_fit(folder: Path, damage):
    kept = FitCache(1 << 20)
    kept.store("a", model())
    damage(folder / "a.fit")
    assert kept.find("a") is None


def test_the_fits_that_were_not_used_for_longest_make_room(folder: Path):
    kept = FitCache(40_000)
    for hour, key in enumerate("abc"):
        kept.store(key, model(key.encode() * 10_000))
        os.utime(folder / f"{key}.fit", (3600 * hour, 3600 * hour))
    assert kept.find("a") is not None
    kept.store("d", model(b"d" * 15_000))
    assert sorted(path.name for path in folder.iterdir()) == ["a.fit", "c.fit", "d.fit"]
    kept.store("e", model(b"e" * 40_001))
    assert kept.find("e") is None
    assert kept.find("d") is not None


def test_without_room_or_a_place_nothing_is_kept_and_nothing_fails(folder: Path):
    FitCache(0).store("a", model())
    assert not folder.exists()
    folder.write_text("a file")
    FitCache(1 << 20).store("a", model())
    assert FitCache(1 << 20).find("a") is None


def test_a_failed_fit_is_not_kept(folder: Path):
    FitCache(1 << 20).store("a", FittedModel(status="timeout", reason="slow"))
    assert not folder.exists()


@pytest.mark.parametrize("text", ["2GiB", "-1", "", "\u0663"])
def test_a_limit_that_is_no_number_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setenv("FAULTSET_FITS_BYTES", text)
    with pytest.raises(UsageError, match="must be a number of bytes"):
        fits_limit()
