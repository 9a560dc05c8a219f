"""Predictions are scored as answers of baselines are: same folds, same rules, thresholds from training episodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.training.folds import cross_folds
from faultset.evaluators import Evaluation, compare, evaluate
from faultset.evaluators.cli.evaluate import evaluate as command
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings, build_training_data
from faultset.evaluators.predictions.files import read_prediction_file
from faultset.evaluators.predictions.prediction_rows import read_predictions
from faultset.evaluators.results.rows import ResultRow, read_rows

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def source(example_dataset: Path) -> DatasetSource:
    return DatasetSource.of(open_dataset(example_dataset))


def every_second(source: DatasetSource, score) -> pd.DataFrame:
    """A score for each second of every episode: `score(truth, time_ns)`."""
    return pd.DataFrame(
        [
            {"episode": truth.episode, "time": time, "score": score(truth, time)}
            for truth in source.truths
            for time in range(truth.view_start_ns + SECOND, truth.view_end_ns + 1, SECOND)
        ]
    )


def knowing(truth, time_ns: int) -> float:
    """A score that is high from the onset on."""
    return float(truth.onset_ns is not None and time_ns > truth.onset_ns) + 1e-3 * (time_ns // SECOND % 7)


def rows_of(frame: pd.DataFrame, folder: Path, source: DatasetSource, **settings) -> list[ResultRow]:
    frame.to_parquet(folder / "mine.parquet", index=False)
    return read_predictions(
        EvaluationScope(source=source, settings=EvaluationSettings(**settings)),
        [read_prediction_file(folder / "mine.parquet")],
    )


def evaluated(dataset: Path, *given: object, **options) -> Evaluation:
    predictions = [str(one) for one in given]
    return evaluate(dataset, ["always-no", "random"], workers=1, predictions=predictions, **options)


def test_scores_alarm_above_what_healthy_training_samples_reach(source: DatasetSource, tmp_path: Path):
    rows = rows_of(every_second(source, knowing), tmp_path, source)
    assert {row.status for row in rows} == {"ok"}
    for row in rows:
        onset = row.truth.onset_ns
        assert (row.alarm_ns is not None) == (onset is not None)
        assert onset is None or row.alarm_ns is None or 0 < row.alarm_ns - onset <= 3 * SECOND
        assert min(row.answer["times_ns"]) > row.truth.reference_end_ns


def test_the_truth_of_test_episodes_decides_no_threshold(source: DatasetSource, tmp_path: Path):
    """Other scores in the tested episodes of a fold change none of its thresholds."""
    frame = every_second(source, knowing)
    fold = cross_folds(source.truths)[0]
    changed = frame.assign(score=frame["score"].where(~frame["episode"].isin(fold.test), -5.0))
    before, after = (
        {row.answer["threshold"] for row in rows_of(one, tmp_path, source) if row.fold == fold.number}
        for one in (frame, changed)
    )
    assert before == after
    assert len(before) == 1


def test_a_stated_threshold_is_used_as_it_stands(source: DatasetSource, tmp_path: Path):
    rows = rows_of(every_second(source, knowing).assign(threshold=9.0), tmp_path, source)
    assert {row.alarm_ns for row in rows} == {None}
    assert {row.answer["threshold"] for row in rows} == {9.0}


def test_without_training_scores_or_threshold_there_is_no_alarm_to_score(source: DatasetSource, tmp_path: Path):
    frame = every_second(source, knowing)
    faulty = {truth.episode for truth in source.truths if truth.faulty}
    with pytest.raises(DataError, match="must have scores of training episodes without a fault"):
        rows_of(frame[frame["episode"].isin(faulty)], tmp_path, source)
    assert rows_of(frame[frame["episode"].isin(faulty)].assign(threshold=0.5), tmp_path, source)


def test_episodes_that_a_file_leaves_out_are_misses_counted_apart(source: DatasetSource, tmp_path: Path):
    frame = every_second(source, knowing)
    left_out = next(truth.episode for truth in source.truths if truth.faulty)
    rows = rows_of(frame[frame["episode"] != left_out], tmp_path, source)
    assert [row.episode for row in rows if row.status == "missing"] == [left_out]
    board = Evaluation(rows=tuple(rows)).board
    table = board.table("detection", "detected", app=source.truths[0].app)
    assert table is not None
    assert table.entries[0].failed == {"missing": 1}
    assert table.entries[0].metrics["event_recall"].value == 0.5
    assert [failure.status for failure in board.failures] == ["missing"]


def test_localizers_and_diagnosers_are_asked_where_baselines_are(source: DatasetSource, tmp_path: Path):
    faulty = [truth for truth in source.truths if truth.faulty]
    ranked = pd.DataFrame([{"episode": t.episode, "service": s, "score": 1.0} for t in faulty for s in t.causes[0]])
    told = rows_of(ranked, tmp_path, source)
    assert {row.episode for row in told} == {truth.episode for truth in faulty}
    assert {row.protocol for row in told} == {"oracle"}
    untold = rows_of(ranked.assign(protocol="detected"), tmp_path, source)
    assert len(untold) == len(source.truths)
    assert [row.status for row in untold].count("missing") == len(source.truths) - len(faulty)
    nobody = pd.DataFrame({"episode": [t.episode for t in source.truths], "service": None, "score": np.nan})
    assert {(row.status, len(row.ranking)) for row in rows_of(nobody, tmp_path, source)} == {("ok", 0)}
    named = pd.DataFrame([{"episode": t.episode, "level": t.system_level, "type": t.fault_type} for t in faulty])
    board = Evaluation(rows=tuple(rows_of(named, tmp_path, source))).leaderboard("rca")
    assert board["joint"].tolist() == [1.0]


def test_what_was_not_chosen_is_not_scored_silently(source: DatasetSource, tmp_path: Path):
    frame = every_second(source, knowing)
    with pytest.raises(UsageError, match="is for the task detection, which is not among --tasks"):
        rows_of(frame, tmp_path, source, tasks=("localization",))
    with pytest.raises(UsageError, match="tests episodes more than once, but a prediction file has one answer"):
        rows_of(frame, tmp_path, source, split="cross-2x2")
    ranked = pd.DataFrame(
        {"episode": [source.truths[0].episode], "service": source.truths[0].candidates[0], "score": 1}
    )
    with pytest.raises(UsageError, match="protocol oracle, which this evaluation leaves out"):
        rows_of(ranked, tmp_path, source, protocols=("detected",))


def test_predictions_stand_beside_baselines_and_are_compared(
    example_dataset: Path, source: DatasetSource, tmp_path: Path
):
    every_second(source, knowing).to_csv(tmp_path / "good.csv", index=False)
    every_second(source, lambda truth, time: 0.0).to_csv(tmp_path / "flat.csv", index=False)
    faulty = [truth for truth in source.truths if truth.faulty]
    ranked = pd.DataFrame({"episode": [t.episode for t in faulty], "service": [t.causes[0][0] for t in faulty]})
    ranked.assign(score=1.0, protocol="detected").to_csv(tmp_path / "rank.csv", index=False)
    new = evaluated(example_dataset, f"mine={tmp_path / 'good.csv'}", tmp_path / "rank.csv", out=tmp_path / "new")
    frame = new.leaderboard("detection")
    scored = frame.set_index("baseline")
    assert scored.loc["mine", "event_recall"] == 1.0
    assert scored.loc["mine", "kind"] == "external"
    assert scored.loc["always-no", "event_recall"] == 0.0
    assert scored.loc["always-no", "event_recall[reference]"] == 0.0
    assert set(frame["threshold_rule"]) == {"train-quantile(0.995)"}
    assert new.board.settings["predictions"]["mine"]["sha256"] in (tmp_path / "new" / "leaderboard.json").read_text()
    # a ranking that was made elsewhere says nothing about the alarm that baselines were given
    assert sum(new.board.early_alarms.values()) == len(faulty)
    stored = {row.baseline: row.method_code for row in read_rows(tmp_path / "new" / "results.parquet")}
    assert stored["mine"].startswith("predictions ")
    assert "mine" in (tmp_path / "new" / "report.html").read_text()
    old = evaluated(example_dataset, f"mine={tmp_path / 'flat.csv'}", tasks=["detection"])
    compared = compare(old, new)
    entry = next(e for table in compared.tables for e in table.entries if e.baseline == "mine")
    assert entry.differences["timed_balanced_accuracy"].value > 0
    assert any(change.what == "code of mine" for change in compared.changes)


def test_thresholds_may_come_from_another_dataset_that_methods_learn_from(
    example_dataset: Path, source: DatasetSource, tmp_path: Path
):
    write_example_dataset(tmp_path / "other", episodes=4, seed=9, baseline_s=20, fault_s=20)
    other = DatasetSource.of(open_dataset(tmp_path / "other"))
    both = pd.concat([every_second(source, knowing), every_second(other, knowing)])
    both.to_parquet(tmp_path / "mine.parquet", index=False)
    file = read_prediction_file(tmp_path / "mine.parquet")
    training = build_training_data(other, source)
    rows = read_predictions(
        EvaluationScope(source=source, settings=EvaluationSettings(calibrate=True), training=training), [file]
    )
    assert {row.split for row in rows} == {training.name}
    tested = {row.episode for row in rows if row.protocol == "detected"}
    assert tested == {truth.episode for truth in source.truths}
    assert {row.episode for row in rows if row.protocol == "calibration"} == set(training.fold.healthy_train)
    with pytest.raises(DataError, match=r"missing from example version 1.0.0"):
        read_predictions(EvaluationScope(source=source), [file])


def test_another_file_is_another_key(source: DatasetSource, tmp_path: Path):
    frame = every_second(source, knowing)
    own, same, other = (rows_of(one, tmp_path, source) for one in (frame, frame, frame.assign(score=1.0)))
    assert [row.key for row in own] == [row.key for row in same]
    assert not {row.key for row in own} & {row.key for row in other}


def test_an_alarm_without_scores_has_no_area_under_a_curve(source: DatasetSource, tmp_path: Path):
    alarms = pd.DataFrame(
        {
            "episode": [truth.episode for truth in source.truths],
            "alarm": pd.array([t.onset_ns and t.onset_ns + SECOND for t in source.truths], "Int64"),
        }
    )
    frame = Evaluation(rows=tuple(rows_of(alarms, tmp_path, source))).leaderboard("detection")
    assert frame["timed_balanced_accuracy"].tolist() == [1.0]
    assert frame["average_precision"].isna().all()


def test_the_command_refuses_a_bad_file_before_anything_runs(example_dataset: Path, tmp_path: Path):
    (tmp_path / "bad.csv").write_text("episode,alarm\nnowhere,\n")
    result = CliRunner().invoke(
        command, [str(example_dataset), "--predictions", str(tmp_path / "bad.csv"), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 3
    assert '1.0.0 (first: "nowhere")' in result.stderr
    assert "including any that their model was trained on" in " ".join(result.stderr.split())
    assert not (tmp_path / "out" / "results.parquet").exists()
    taken = CliRunner().invoke(command, [str(example_dataset), "--predictions", f"ksigma={tmp_path / 'bad.csv'}"])
    assert taken.exit_code == 2
    assert "belongs to another method" in taken.stderr
