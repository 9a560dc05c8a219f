"""Prediction files are read with all their types checked, and damaged ones are refused in one sentence."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.testing import mutate, mutation_seeds
from faultset.datasets.training.folds import cross_folds
from faultset.evaluators import Evaluation, compare, evaluate, predictions
from faultset.evaluators.cli.evaluate import evaluate as command
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings, build_training_data
from faultset.evaluators.predictions import (
    ALARMS,
    DIAGNOSES,
    RANKINGS,
    SCORES,
    check_names,
    check_predictions,
    read_prediction_file,
    read_predictions,
)
from faultset.evaluators.results.rows import ResultRow, read_rows

SECOND = 1_000_000_000


START = 1_760_000_000 * SECOND


def scores(**changes) -> pd.DataFrame:
    """Three samples of the episode e1."""
    values = {"episode": "e1", "time": [START + 50 * SECOND, START + 51 * SECOND, START + 52 * SECOND], "score": 0.5}
    return pd.DataFrame(values | changes)


def rankings(**changes) -> pd.DataFrame:
    return pd.DataFrame({"episode": "e1", "service": ["a", "b"], "score": [1.0, 2.0]} | changes)


def written(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


@pytest.fixture
def checked(tmp_path: Path, make) -> Callable[..., predictions.PredictionFile]:
    """Write a frame, read it and check it against the episodes e1 (with a fault) and h1 (without)."""

    def check(frame: pd.DataFrame, name: str = "mine.parquet") -> predictions.PredictionFile:
        file = read_prediction_file(written(frame, tmp_path / name))
        check_predictions(file, {"e1": make.truth(), "h1": make.healthy()}, "shop version 1.0.0")
        return file

    return check


@pytest.mark.parametrize(
    ("frame", "layout"),
    [
        (scores(), SCORES),
        (scores(threshold=0.7), SCORES),
        (pd.DataFrame({"episode": ["e1", "h1"], "alarm": pd.array([START + SECOND, None], "Int64")}), ALARMS),
        (rankings(protocol="detected"), RANKINGS),
        (pd.DataFrame({"episode": ["e1"], "level": ["Network"], "type": [None]}), DIAGNOSES),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_both_formats_of_every_layout_say_the_same(checked, frame, layout, suffix: str):
    file = checked(frame, f"mine.{suffix}")
    assert file.layout is layout
    assert file.name == "mine"
    assert len(file.frame) == len(frame)
    for column in set(frame) & {"time", "score", "threshold"}:
        np.testing.assert_array_equal(file.frame[column], frame[column])
    if layout is ALARMS:
        assert file.frame["alarm"].tolist() == [START + SECOND, -1]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_times_with_a_zone_become_nanoseconds(checked, suffix: str):
    zoned = pd.to_datetime(scores()["time"], utc=True).dt.tz_convert("Asia/Tokyo")
    file = checked(scores(time=zoned), f"mine.{suffix}")
    np.testing.assert_array_equal(file.frame["time"], scores()["time"])


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (scores(episode="e9"), r'1 episode missing from shop version 1.0.0 \(first: "e9"\)'),
        (scores(episode=None), "3 rows without an episode"),
        (pd.concat([scores(), scores()]), "3 repeated rows"),
        (scores(score=[0.1, np.nan, 0.2]), "NaN or infinite|empty cells"),
        (scores(score=[0.1, np.inf, 0.2]), "1 of 3 values are NaN or infinite"),
        (scores(score=["a", "b", "c"]), "must be numbers"),
        (scores(time=[START - SECOND, START, START + SECOND]), "within the episode's view, but 1 of 3 times"),
        (scores(time=[1_760_000_050, 1_760_000_051, 1_760_000_052]), "3 of 3 times .* UTC nanoseconds"),
        (scores(time=[1.76e9, 1.77e9, 1.78e9]), "must be UTC nanoseconds as integers"),
        (scores(time=pd.to_datetime(scores()["time"])), "with a time zone"),
        (scores(time=pd.array([START, None, START + 1], "Int64")), "1 empty cells"),
        (scores(threshold=[1.0, 2.0, 1.0]), 'column threshold .* has 2 in "e1"'),
        (scores(threshold=pd.array([1.0, None, None])), "column threshold .* empty cells"),
        (scores(alarm=START), "expected one of: episode, time, score"),
        (scores(service="a"), "expected one of"),
        (scores().drop(columns="score"), "expected one of"),
        (scores().iloc[:0], "has no rows"),
        (rankings(service=["a", "who"]), 'ranks "who", which is not a candidate'),
        (rankings(service=["a", "a"]), "1 repeated rows"),
        (rankings(service=["a", None]), "a service but no score, or a score but no service"),
        (rankings(service=["a", None], score=[1.0, None]), "rows with and without a service"),
        (rankings(protocol="told"), 'column protocol of .* contains "told"'),
        (pd.DataFrame({"episode": ["e1"], "alarm": [START + 200 * SECOND]}), "1 of 1 times are not"),
        (pd.DataFrame({"episode": ["e1", "e1"], "level": "Network", "type": "Delay"}), "1 repeated rows"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_is_wrong_is_said_in_one_sentence(checked, frame, said: str, suffix: str):
    with pytest.raises(DataError, match=said) as caught:
        checked(frame, f"mine.{suffix}")
    assert "\n" not in str(caught.value)


def test_numbers_are_no_names(checked):
    with pytest.raises(DataError, match=r"column level of .* must be text, got int64"):
        checked(pd.DataFrame({"episode": ["e1"], "level": [3], "type": ["Delay"]}))


def test_files_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DataError, match="is missing"):
        read_prediction_file(tmp_path / "nothing.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        read_prediction_file(tmp_path / "folder.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="is a named pipe"):
        read_prediction_file(tmp_path / "pipe.csv")
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_prediction_file(tmp_path / "empty.csv")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_prediction_file(tmp_path / "torn.parquet")
    (tmp_path / "ragged.csv").write_text("episode,alarm\ne1,1,2\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_prediction_file(tmp_path / "ragged.csv")
    (tmp_path / "coded.csv").write_bytes(b"episode,service,score\n\xff\xfe,a,1\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_prediction_file(tmp_path / "coded.csv")
    (tmp_path / "twice.csv").write_text("episode,alarm,alarm\ne1,1,2\n")
    with pytest.raises(DataError, match='the column "alarm" more than once'):
        read_prediction_file(tmp_path / "twice.csv")
    monkeypatch.setattr(predictions, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="at most 10"):
        read_prediction_file(written(scores(), tmp_path / "large.csv"))


def test_a_small_file_of_too_many_rows_is_refused_before_they_are_unpacked(tmp_path: Path):
    many = pa.table({"episode": pa.repeat("e1", 30_000_000).dictionary_encode(), "alarm": pa.nulls(30_000_000)})
    pq.write_table(many, tmp_path / "many.parquet", compression="zstd")
    assert (tmp_path / "many.parquet").stat().st_size < 1_000_000
    with pytest.raises(DataError, match=r"has 30,000,000 rows"):
        read_prediction_file(tmp_path / "many.parquet")


def test_a_method_is_called_what_its_file_or_its_user_says(tmp_path: Path):
    path = written(scores(), tmp_path / "run=1.csv")
    assert read_prediction_file(f"usad={path}").name == "usad"
    with pytest.raises(UsageError, match="NAME=FILE"):
        read_prediction_file(path)
    with pytest.raises(UsageError, match="has no file after the name"):
        read_prediction_file("usad=")
    twice = [read_prediction_file(f"usad={path}")] * 2
    with pytest.raises(UsageError, match=r'the name "usad" .* belongs to another method'):
        check_names(twice, [])
    with pytest.raises(UsageError, match=r'the name "usad" .* belongs to another method'):
        check_names(twice[:1], ["usad"])


def test_the_identity_of_a_file_is_its_content(tmp_path: Path):
    first, same, other = (
        read_prediction_file(written(frame, tmp_path / f"{name}.csv"))
        for name, frame in (("a", scores()), ("b", scores()), ("c", scores(score=0.6)))
    )
    assert first.code == same.code != other.code
    assert first.record["sha256"] == same.record["sha256"]


FRAMES = {
    "scores": pd.DataFrame(
        {"episode": "e1", "time": [START + i * SECOND for i in range(50, 60)], "score": 0.5, "threshold": 0.7}
    ),
    "alarms": pd.DataFrame({"episode": ["e1", "h1"], "alarm": pd.array([START + SECOND, None], "Int64")}),
    "rankings": pd.DataFrame({"episode": "e1", "service": ["a", "b"], "score": [1.0, 2.0], "protocol": "detected"}),
    "diagnoses": pd.DataFrame({"episode": ["e1"], "level": ["Network"], "type": ["loss"]}),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", FRAMES)
def test_a_changed_file_is_read_or_refused(name: str, suffix: str, make: Any, tmp_path: Path) -> None:
    file = tmp_path / f"mine.{suffix}"
    write = FRAMES[name].to_csv if suffix == "csv" else FRAMES[name].to_parquet
    write(file, index=False)
    whole = file.read_bytes()
    truths = {"e1": make.truth(), "h1": make.healthy()}
    refused = 0
    for seed in mutation_seeds():
        file.write_bytes(mutate(whole, random.Random(f"{name}/{seed}")))
        said = ""
        try:
            check_predictions(read_prediction_file(file), truths, "shop version 1.0.0")
        except FaultsetError as error:
            refused += 1
            said = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed} ends in {type(error).__name__}: {error}") from error
        assert said.isprintable(), f"seed {seed}: {said!r}"
    assert refused


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
