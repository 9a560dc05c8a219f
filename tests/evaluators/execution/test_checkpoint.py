"""The checkpoint keeps what was answered, and gives back only what still holds."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.core.errors import UsageError
from faultset.datasets.dataset import open_dataset
from faultset.evaluators import EvaluationStart, evaluate
from faultset.evaluators.comparison.pairing import compare
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.method_runs import Checkpoint
from faultset.evaluators.results.provenance import code_version
from faultset.evaluators.results.rows import ResultRow, read_rows

METHOD = """
from faultset.baselines import baseline
from faultset.baselines.contract import Detection, TrainingFreeBaseline

@baseline("acme", title="Acme", task="detection", paper="none", kind="rule", tables=(), speed="instant")
class Acme(TrainingFreeBaseline):
    def detect(self, episode):
        return Detection.silent({score})
"""


@pytest.fixture
def expected(make) -> list[ResultRow]:
    return [make.row(make.truth(f"e{i}"), ranking={"b": 1.0 + i}) for i in range(6)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registries: None) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    (tmp_path / "code").mkdir()
    yield tmp_path
    sys.modules.pop("acme_detector", None)


def method_with(folder: Path, score: float) -> type:
    from faultset.baselines import registry

    (folder / "code" / "acme_detector.py").write_text(METHOD.format(score=score))
    sys.modules.pop("acme_detector", None)
    registry._announced.pop("acme", None)
    importlib.invalidate_caches()
    return importlib.import_module("acme_detector").Acme


def interrupted(dataset: Path, method: type, out: Path) -> tuple[ResultRow, ...]:
    """Leave the checkpoint of an evaluation that was stopped when all its answers were there; return them."""
    done = evaluate(dataset, [method, "ksigma", "max-z"], workers=1)
    source = DatasetSource.of(open_dataset(dataset))
    codes = {row.baseline: row.method_code for row in done.rows}
    out.mkdir()
    with Checkpoint(out, {"digest": source.digest, "code": code_version(), "split": ""}, codes) as checkpoint:
        checkpoint.begin({})
        checkpoint.add(done.rows)
    return done.rows


def resumed(dataset: Path, method: type, out: Path) -> EvaluationStart:
    starts: list[EvaluationStart] = []
    evaluate(dataset, [method, "ksigma", "max-z"], workers=1, out=out, started=starts.append)
    return starts[0]


def test_an_edited_method_is_asked_again_and_said_to_be_edited(example_dataset: Path, folder: Path):
    out = folder / "results"
    rows = interrupted(example_dataset, method_with(folder, 1.0), out)
    others = sum(row.baseline != "acme" for row in rows)
    start = resumed(example_dataset, method_with(folder, 2.0), out)
    assert (start.reused, start.changed) == (others, ("the code of acme",))
    scores = {row.answer["threshold"] for row in read_rows(out / "results.parquet") if row.baseline == "acme"}
    assert scores == {2.0}


def test_a_method_that_was_not_edited_is_not_asked_again(example_dataset: Path, folder: Path):
    out = folder / "results"
    rows = interrupted(example_dataset, method_with(folder, 1.0), out)
    start = resumed(example_dataset, method_with(folder, 1.0), out)
    assert (start.reused, start.changed) == (len(rows), ())


def test_a_comparison_names_the_method_whose_code_differs(example_dataset: Path, folder: Path):
    for out, score in (("old", 1.0), ("new", 2.0)):
        evaluate(example_dataset, [method_with(folder, score), "ksigma"], workers=1, out=folder / out)
    (change,) = compare(folder / "old", folder / "new").changes
    assert (change.what, change.category) == ("code of acme", "code")
    assert change.old.startswith("no distribution sha256:")
    starts: list[EvaluationStart] = []
    again = method_with(folder, 3.0)
    evaluate(example_dataset, [again, "ksigma"], workers=1, out=folder / "new", started=starts.append)
    assert starts[0].changed == ("the code of acme",), "finished results are compared too"


def test_answers_whose_alarm_came_from_an_edited_detector_are_not_used(make, tmp_path: Path):
    truth = make.truth()
    rows = [
        make.row(truth, "given", alarm_source="ksigma"),
        make.row(truth, "given", protocol="oracle", alarm_source="truth"),
    ]
    with Checkpoint(tmp_path, {}, {"given": "1", "ksigma": "1"}) as checkpoint:
        checkpoint.begin({})
        checkpoint.add(rows)
    with Checkpoint(tmp_path, {}, {"given": "1", "ksigma": "2"}) as checkpoint:
        assert [row.protocol for row in checkpoint.begin({truth.episode: truth})] == ["oracle"]
        assert checkpoint.changed == ("the code of ksigma",)


def test_a_flipped_bit_costs_the_rows_behind_it_and_nothing_else(expected, tmp_path: Path):
    truths = {row.episode: row.truth for row in expected}
    with Checkpoint(tmp_path, {}) as checkpoint:
        checkpoint.begin(truths)
        checkpoint.add(expected[:3])
        checkpoint.add(expected[3:])
    path = tmp_path / "results.partial.arrows"
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        with Checkpoint(tmp_path, {}) as checkpoint:
            assert checkpoint.begin(truths) in (expected, expected[:3], [])


def test_links_in_the_folder_are_not_followed(expected, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    out = tmp_path / "results"
    out.mkdir()
    os.symlink(victim, out / "results.partial.arrows")
    with Checkpoint(out, {}) as checkpoint:
        assert checkpoint.begin({}) == []
        checkpoint.add(expected)
    assert victim.read_text() == "mine"
    os.symlink(victim, out / ".results.partial.arrows.lock")
    with pytest.raises(UsageError, match="is a link"), Checkpoint(out, {}):
        pass
    assert victim.read_text() == "mine"


def test_a_ledger_with_a_torn_end_keeps_what_stands_before(expected, tmp_path: Path):
    truths = {row.episode: row.truth for row in expected}
    with Checkpoint(tmp_path, {}) as checkpoint:
        checkpoint.begin(truths)
        checkpoint.add(expected[:3])
        checkpoint.add(expected[3:6])
    path = tmp_path / "results.partial.arrows"
    path.write_bytes(path.read_bytes()[:-200])
    with Checkpoint(tmp_path, {}) as checkpoint:
        assert checkpoint.begin(truths) == expected[:3]


def test_a_ledger_of_other_data_or_code_is_not_used(expected, tmp_path: Path):
    truths = {row.episode: row.truth for row in expected}
    for about, fresh, left in (({"code": "1"}, False, 0), ({"code": "1"}, True, 0), ({"code": "2"}, False, 0)):
        with Checkpoint(tmp_path, about) as checkpoint:
            assert len(checkpoint.begin(truths, fresh=fresh)) == left
            checkpoint.add(expected[:2])
    with Checkpoint(tmp_path, {"code": "2"}) as checkpoint:
        assert len(checkpoint.begin(truths)) == 2


def test_two_evaluations_cannot_write_to_one_folder(tmp_path: Path):
    with (
        Checkpoint(tmp_path, {}),
        pytest.raises(UsageError, match="another evaluation writes to"),
        Checkpoint(tmp_path, {}),
    ):
        pass
    with Checkpoint(tmp_path, {}):
        pass
