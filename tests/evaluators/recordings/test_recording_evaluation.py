"""`evaluate` on datasets with recordings, from files to tables."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.datasets import open_dataset
from faultset.datasets.explorer.content import read_answers
from faultset.datasets.remote.writing import publish_dataset
from faultset.evaluators import Evaluation, EvaluationStart, evaluate, evaluation_call
from faultset.evaluators.execution import scheduling
from faultset.evaluators.recordings.detection_plan import DetectionPlan
from tests.datasets.recorded_samples import at
from tests.evaluators.recordings.recording_samples import recorded_dataset

INCIDENTS = {"r1": [(400, 120), (1500, 150), (2700, 120)], "r2": [(600, 120), (1900, 150), (2900, 120)]}
METHODS = ["ksigma", "spot", "always-yes", "max-z", "baro"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def started_clients() -> list[int]:
    """Workers of each dask client that the evaluation started."""
    return []


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, results: Path, started_clients: list[int]) -> Evaluation:
    dataset = recorded_dataset(tmp_path_factory.mktemp("recorded") / "hours", INCIDENTS)
    start_client = scheduling.local_client

    def record_start(workers: int) -> AbstractContextManager[Any]:
        started_clients.append(workers)
        return start_client(workers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "local_client", record_start)
        return evaluate(dataset, METHODS, workers=1, out=results, protocol="detected")


def entry(evaluation: Evaluation, method: str) -> Any:
    (table,) = evaluation.board.recorded_tables
    return next(entry for entry in table.entries if entry.baseline == method)


def test_every_incident_is_detected_and_random_alarms_detect_few(evaluated: Evaluation) -> None:
    spot = entry(evaluated, "spot")
    assert (spot.metrics["recall"].k, spot.metrics["recall"].n) == (6, 6)
    assert spot.metrics["precision"].value > 0.5
    assert spot.metrics["ttd_median"].value <= 15
    assert spot.against.difference.value > 0.4
    assert spot.metrics["vus_pr"].value > 0.8
    assert spot.metrics["affiliation_f1"].value > 0.8


def test_a_detector_that_is_always_on_detects_nothing(evaluated: Evaluation) -> None:
    always = entry(evaluated, "always-yes")
    assert always.metrics["recall"].value == 0
    assert always.metrics["false_alarms_per_day"].k == 2
    assert always.rank == max(entry.rank for entry in evaluated.board.recorded_tables[0].entries)


def test_a_threshold_from_training_gets_columns_of_its_own(evaluated: Evaluation, results: Path) -> None:
    assert evaluated.recordings is not None
    assert entry(evaluated, "spot").metrics["recall[train-quantile(0.995)]"].known
    (policy,) = evaluated.recordings.by_policy
    judged = [row for row in evaluated.recordings.by_policy[policy] if row.baseline == "ksigma"]
    own = [row for row in evaluated.recordings.rows if row.baseline == "ksigma"]
    # one threshold for each fold, and the scores of the same answers
    assert {len({row.answer["threshold"] for row in judged if row.fold == fold}) for fold in (0, 1)} == {1}
    scores = [{row.episode: row.answer["scores"] for row in rows} for rows in (judged, own)]
    assert scores[0] == scores[1]
    ksigma = entry(evaluated, "ksigma").metrics
    alarms = ksigma["false_alarms_per_day[train-quantile(0.995)]"].k, ksigma["false_alarms_per_day"].k
    # the quantile lets some healthy samples of the test pass, the detector's own threshold none
    assert alarms[0] > alarms[1] == 0
    assert ksigma["recall[train-quantile(0.995)]"].k == 6
    assert "### Threshold policy train-quantile(0.995), detection on recordings" in (
        results / "leaderboard.md"
    ).read_text("utf-8")


def test_a_detector_without_training_scores_is_unknown_under_the_policy(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path / "hours", INCIDENTS)
    rows = [(name, at(start + 5)) for name, incidents in INCIDENTS.items() for start, _ in incidents]
    file = tmp_path / "mine.csv"
    pd.DataFrame(rows, columns=["episode", "time"]).assign(score=1.0, threshold=0.5).to_csv(file, index=False)
    done = evaluate(dataset, ["ksigma"], predictions=[file], workers=1, tasks=["detection"])
    assert entry(done, "ksigma").metrics["precision[train-quantile(0.995)]"].known
    unknown = entry(done, "mine").metrics["precision[train-quantile(0.995)]"]
    assert unknown.reason == "the policy train-quantile(0.995) sets no threshold for this detector"


@pytest.mark.parametrize(("named", "shown"), [("reference", []), ("train-budget(2)", ["train-budget(2)"])])
def test_only_a_named_policy_is_applied(tmp_path: Path, named: str, shown: list[str]) -> None:
    dataset = recorded_dataset(tmp_path, {"r1": [(400, 120), (2000, 150)]})
    done = evaluate(dataset, ["ksigma"], thresholds=[named], workers=1, tasks=["detection"])
    assert list(done.board.other_rules) == shown


def test_localizers_get_the_alarms_that_were_raised_online(evaluated: Evaluation, results: Path) -> None:
    alarms = pq.read_table(results / "alarms.parquet", filters=[("baseline", "==", "spot")])["alarm_ns"].to_pylist()
    rows = (row for row in evaluated.rows if row.protocol == "detected" and row.truth.faulty)
    located = [row for row in rows if row.baseline == "max-z"]
    assert len(located) == 6
    assert {row.alarm_source for row in located} == {"spot"}
    assert {row.given_alarm_ns for row in located} <= {*alarms}
    assert evaluated.leaderboard("localization").set_index("baseline")["ac1"]["max-z"] == 1


def test_views_of_recordings_and_cuts_share_one_client(evaluated: Evaluation, started_clients: list[int]) -> None:
    assert {row.task for row in evaluated.rows} == {"localization"}
    assert started_clients == [1]


def test_the_files_have_alarms_and_timelines(evaluated: Evaluation, results: Path) -> None:
    answers = read_answers(results)
    assert {row["method"] for row in answers["r1"]} == {"ksigma", "spot", "always-yes"}
    page = (results / "report.html").read_text()
    assert 'href="explorer.html#r1@' in page
    assert "missed: memory-leak on geo" in page
    assert "detection on recordings" in (results / "leaderboard.md").read_text()
    assert not [*results.glob("*.partial.arrows")]
    assert "2 recordings" in repr(evaluated)


def test_one_recording_is_tested_after_its_first_part(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path, {"r1": [(400, 120), (2000, 150)]})
    done = evaluate(dataset, ["forecast-residual", "always-no"], workers=1, tasks=["detection"])
    assert done.recordings is not None
    assert done.recordings.split == "first-part"
    assert min(row.truth.reference_end_ns for row in done.recordings.rows) >= at(0.3 * 3600)
    assert entry(done, "forecast-residual").metrics["recall"].n == 1
    assert not done.rows


def test_scores_from_a_file_are_ranked_with_detectors(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path / "hours", INCIDENTS)
    rows = [
        (name, at(second), float(any(start < second <= start + length for start, length in incidents)))
        for name, incidents in INCIDENTS.items()
        for second in range(0, 3600, 5)
    ]
    file = tmp_path / "oracle.csv"
    pd.DataFrame(rows, columns=["episode", "time", "score"]).assign(threshold=0.5).to_csv(file, index=False)
    done = evaluate(dataset, ["always-no"], predictions=[file], workers=1, tasks=["detection"])
    mine = entry(done, "oracle")
    assert (mine.kind, mine.rank, mine.metrics["recall"].k) == ("external", 1, 6)
    assert mine.metrics["precision"].value == 1


def test_a_file_about_another_recording_is_refused(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path / "hours", {"r1": [(2000, 150)]})
    file = tmp_path / "mine.csv"
    file.write_text(f"episode,time,score\nr1,{at(2001)},1\nr9,{at(2001)},1\n")
    with pytest.raises(DataError, match="names r9, which is not a recording"):
        evaluate(dataset, ["always-no"], predictions=[file], workers=1)


def test_an_interrupted_evaluation_does_not_watch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = recorded_dataset(tmp_path / "hours", {"r1": [(2000, 150), (2900, 120)]})
    starts: list[EvaluationStart] = []

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(evaluation_call, "cut_recordings", stop)
        with pytest.raises(KeyboardInterrupt):
            evaluate(dataset, ["always-yes", "max-z"], workers=1, out=tmp_path / "out")
    assert not (tmp_path / "out/results.parquet").exists()
    evaluate(dataset, ["always-yes", "max-z"], workers=1, out=tmp_path / "out", started=starts.append)
    watched, cut = starts
    assert (watched.recordings, watched.answers, cut.recordings) == (1, 0, 0)
    assert watched.reused > 0
    assert not [*(tmp_path / "out").glob("*.partial.arrows")]


def test_a_recording_without_services_is_scored_for_detection(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path, {"r1": [(2000, 150)]}, anomaly=True, context={"platform": "imported"})
    done = evaluate(dataset, ["ksigma"], workers=1)
    assert entry(done, "ksigma").metrics["recall"].n == 1


def test_a_recording_that_is_never_healthy_is_refused(tmp_path: Path) -> None:
    voids = [{"start": at(0), "end": at(3600), "reason": "host", "detail": "busy"}]
    dataset = recorded_dataset(tmp_path, {"r1": []}, voids=voids)
    with pytest.raises(DataError, match="never healthy for 120 s"):
        evaluate(dataset, ["ksigma"], workers=1)


def test_methods_learn_from_another_dataset_of_recordings(tmp_path: Path, example_dataset: Path) -> None:
    sample = open_dataset(example_dataset)
    tested = recorded_dataset(tmp_path / "tested", {"t1": [(400, 120), (1500, 150)], "t2": []})
    learned = recorded_dataset(tmp_path / "learned", {"r1": [(600, 120)]}, context={"app": "social"})
    methods, options = ["forecast-residual", "always-no", "most-frequent"], {"workers": 1, "protocol": "oracle"}
    done = evaluate(tested, methods, train=learned, **options)
    assert done.recordings is not None
    assert done.recordings.split == "train on learned 1.0.0"
    assert {row.truth.view_start_ns for row in done.recordings.rows} == {
        window.reference_start_ns for window in DetectionPlan.for_testing(tested, learned).windows.values()
    }
    assert (entry(done, "forecast-residual").metrics["recall"].n, len(done.recordings.facts)) == (2, 2)
    assert {row.split for row in done.rows} == {"train on learned 1.0.0"}
    onto_episodes = evaluate(sample, ["most-frequent"], train=tested, **options)
    assert {row.split for row in onto_episodes.rows} == {"train on tested 1.0.0"}
    from_episodes = evaluate(tested, ["spot"], train=sample, **options)
    assert from_episodes.recordings is not None
    assert from_episodes.recordings.split.startswith("train on ")


def test_training_on_a_tested_recording_is_refused(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path / "one", {"r1": [(400, 120)]})
    same = recorded_dataset(tmp_path / "other", {"r2": [(400, 120)]})
    for train in (dataset, same):
        with pytest.raises(DataError, match="share 1 recording"):
            evaluate(dataset, ["spot"], train=train, workers=1)


def test_recordings_at_a_url_are_scored_like_a_local_copy(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path / "hours", {"r1": [(2000, 150), (2900, 120)]})
    publish_dataset(dataset.root, "memory://bucket/hours")
    places = ("memory://bucket/hours", dataset)
    there, here = (evaluate(place, ["spot"], workers=1, tasks=["detection"]) for place in places)
    assert there.recordings is not None
    assert here.recordings is not None
    alarms = [[*recordings.list_alarm_rows()] for recordings in (there.recordings, here.recordings)]
    assert alarms[0] == alarms[1] != []
    assert (there.recordings.location, there.board.dataset) == ("memory://bucket/hours", "hours")
