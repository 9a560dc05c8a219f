"""Tables beyond the plain ones: policies, own detectors, later alarms, diagnoses, metrics and pods, foreign data."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.evaluators.leaderboards.formats import (
    choose_columns,
    leaderboard_frame,
    markdown,
    render_text,
    write_json,
)
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.rendering import policy_tables, render_table
from faultset.evaluators.reports.page import render
from faultset.evaluators.results.rows import ResultRow, read_rows, write_rows
from faultset.evaluators.results.truth import GRAY_FAULTS, LOUD_FAULTS, FaultTruth
from faultset.evaluators.scoring.thresholds import choose_policies

SECOND = 1_000_000_000


def ranking(*names: str) -> dict[str, float]:
    return {name: float(len(names) - i) for i, name in enumerate(names)}


def table_of(rows: list[ResultRow], task: str, protocol: str = "detected", app: str = "shop", **options):
    table = build_leaderboard(rows, **options).table(task, protocol, app=app)
    assert table is not None
    return table


def scores_row(make, truth, scores: list[float], **changes) -> ResultRow:
    times = [truth.reference_end_ns + (i + 1) * SECOND for i in range(len(scores))]
    answer = {
        "times_ns": times,
        "scores": scores,
        "flags": "".join("01"[score > 5] for score in scores),
        "threshold": 5.0,
        "consecutive": 1,
        "evidence": [],
    }
    first = next((time for time, score in zip(times, scores, strict=True) if score > 5), None)
    return make.row(truth, task="detection", alarm_ns=first, answer=answer, **changes)


def test_a_threshold_from_training_gets_columns_of_its_own(make):
    faults = [make.truth(f"e{i}", fault=name) for i, name in enumerate(("crash", "leak"))]
    calm = make.healthy("h1")
    quiet = [1.0] * 60
    rows = [scores_row(make, truth, [1.0] * 30 + [4.0] * 30) for truth in faults]
    rows += [scores_row(make, calm, quiet)]
    rows += [scores_row(make, make.healthy("h2"), [2.0] * 60, protocol="calibration")]
    board = build_leaderboard(rows)
    table = board.table("detection", "detected", app="shop")
    assert table is not None
    metrics = table.entries[0].metrics
    # the detector's own threshold of 5 sees nothing; two is what training shows at most
    assert metrics["event_recall"].value == 0.0
    assert metrics["event_recall[train-quantile(0.995)]"].value == 1.0
    assert metrics["false_alarms_per_hour[train-quantile(0.995)]"].value == 0.0
    assert metrics["timed_balanced_accuracy[train-quantile(0.995)]"].value == 1.0
    assert board.thresholds == {"train-quantile(0.995)": {"method": {"0/0": 2.0}}}
    assert board.counts["no fault"] == 1
    assert "### Threshold policy train-quantile(0.995)" in markdown(board)


def test_without_training_episodes_there_is_no_policy_column(make):
    rows = [scores_row(make, make.truth(), [1.0] * 60), scores_row(make, make.healthy(), [1.0] * 60)]
    table = table_of(rows, "detection")
    assert not any("[train" in metric.name for metric in table.metrics)


def test_a_detector_that_failed_in_training_is_unknown_under_the_policy(make):
    truth, calm, training = make.truth(), make.healthy("h1"), make.healthy("h2")
    rows = [scores_row(make, episode, [1.0] * 60, baseline=name) for episode in (truth, calm) for name in ("a", "b")]
    rows += [scores_row(make, training, [1.0] * 60, baseline="a", protocol="calibration")]
    rows += [make.row(training, "b", task="detection", protocol="calibration", status="error", reason="no")]
    by = {entry.baseline: entry.metrics for entry in table_of(rows, "detection").entries}
    assert by["a"]["event_recall[train-quantile(0.995)]"].known
    unknown = by["b"]["event_recall[train-quantile(0.995)]"]
    assert (unknown.known, unknown.reason) == (
        False,
        "the policy train-quantile(0.995) sets no threshold for this detector",
    )


def test_the_own_detector_is_a_column_and_its_silence_a_miss(make):
    truths = [make.truth(f"e{i}") for i in range(2)]
    rows = [make.row(truth, ranking=ranking("b")) for truth in truths]
    rows += [make.row(truths[0], protocol="own", ranking=ranking("b"))]
    rows += [make.row(truths[1], protocol="own", status="no_alarm")]
    rows += [make.row(truth, "other", ranking=ranking("b")) for truth in truths]
    table = table_of(rows, "localization")
    by = {entry.baseline: entry.metrics["ac1_own"] for entry in table.entries}
    assert (by["method"].value, by["method"].n) == (0.5, 2)
    assert by["other"].reason == "the method does not declare its own detector"
    assert [metric.name for metric in choose_columns(table)][:2] == ["ac1", "ac1_own"]


def test_hit_at_one_is_retrieval_times_rerank(make):
    firsts = [ranking("b"), ranking("a", "b"), ranking("a", "c", "b"), {}]
    rows = [make.row(make.truth(f"e{i}", candidates=tuple("abcdefg")), ranking=r) for i, r in enumerate(firsts)]
    metrics = table_of(rows, "localization").entries[0].metrics
    assert metrics["hit5"].value == 0.75
    assert metrics["rerank"].value == pytest.approx(1 / 3)
    assert metrics["hit5"].value * metrics["rerank"].value == pytest.approx(metrics["hit1"].value)


def test_naming_nobody_is_right_without_a_fault(make):
    calm = [make.healthy(f"h{i}") for i in range(4)]
    rows = [make.row(make.truth(), ranking=ranking("b"))]
    rows += [make.row(calm[0], status="no_alarm"), make.row(calm[1]), make.row(calm[2], ranking=ranking("a"))]
    rows += [make.row(calm[3], status="timeout")]
    table = table_of(rows, "localization")
    assert table.entries[0].metrics["correct_abstentions"].value == 0.5
    assert table.entries[0].metrics["ac1"].n == 1
    assert (table.episodes, table.no_fault_episodes) == (1, 4)


def test_a_delay_curve_compares_with_the_same_episodes(make):
    long, short = make.truth("e1"), make.truth("e2", view_end_ns=make.truth().view_end_ns - 20 * SECOND)
    rows = [make.row(t, protocol="delayed", delay_s=0.0, ranking=ranking("b")) for t in (long, short)]
    rows += [make.row(long, protocol="delayed", delay_s=10.0, ranking=ranking("a"))]
    board = build_leaderboard(rows)
    (curve,) = board.curves
    assert [(p.at_s, p.right.value, p.right.n, p.right_otherwise) for p in curve.points] == [
        (0.0, 1.0, 2, 1.0),
        (10.0, 0.0, 1, 1.0),
    ]
    assert board.tables == ()
    assert "AC@1 by delay of the alarm" in markdown(board)


def diagnosis(make, truth, level: str | None, kind: str | None, **changes) -> ResultRow:
    answer = {"system_level": level, "fault_type": kind, "confidence": 1.0, "evidence": []}
    fields = {"task": "rca", "needs": ("labels",), "majority_label": ("A", "m")}
    return make.row(truth, **(fields | {"answer": answer} | changes))


def test_root_cause_tables_have_joint_parts_and_the_best_constant(make):
    pairs = [("A", "m"), ("A", "m"), ("A", "n"), ("V", "n")]
    truths = [make.truth(f"e{i}", system_level=level, fault_type=kind) for i, (level, kind) in enumerate(pairs)]
    answers = [("A", "m"), ("A", "n"), ("V", "n"), (None, None)]
    rows = [diagnosis(make, truth, *answer) for truth, answer in zip(truths, answers, strict=True)]
    rows += [diagnosis(make, make.healthy("h1"), None, None), diagnosis(make, make.healthy("h2"), "A", "m")]
    rows += [diagnosis(make, make.truth("e9", system_level=None, fault_type=None), "A", "m")]
    board = build_leaderboard(rows)
    table = board.table("rca", "detected", app="shop")
    assert table is not None
    metrics = table.entries[0].metrics
    assert (metrics["joint"].value, metrics["level"].value, metrics["type"].value) == (0.25, 0.5, 0.5)
    assert (metrics["parts"].value, metrics["answered"].value) == (0.5, 0.75)
    # A: 2 right of 2 answers and 3 true; V: none right of 1 answers and 1 true
    assert metrics["macro_f1_level"].value == pytest.approx((4 / 5 + 0) / 2)
    assert metrics["correct_abstentions"].value == 0.5
    assert (table.floor["joint"].value, table.floor["parts"].value) == (0.5, (3 / 4 + 2 / 4) / 2)
    assert board.unscored == {"root cause: level or type unknown": 1}
    assert table.title == "root cause · given: alarm of a detector · shop · manifest"


def test_episodes_of_unknown_verdict_count_as_headline_and_are_named(make):
    rows = [make.row(make.truth("e1", verdict="unknown"), ranking=ranking("b"))]
    rows += [make.row(make.truth("e2"), ranking=ranking("a"))]
    board = build_leaderboard(rows)
    table = board.table("localization", "detected", app="shop")
    assert table is not None
    assert table.entries[0].metrics["ac1"].value == 0.5
    assert table.note == "1 of the fault episodes have no verdict and count as headline."
    assert board.counts["unknown"] == 1
    assert "1 of unknown verdict" in markdown(board)


def test_a_fault_without_a_known_cause_or_onset_is_counted_and_left_out(make):
    rows = [make.row(make.truth("e1"), ranking=ranking("b")), make.row(make.truth("e2", causes=()))]
    lost = make.truth("e3", onset_ns=None, manifest_ns=None)
    rows += [
        make.row(lost, ranking=ranking("b")),
        make.detection(lost, range(65, 101)),
        make.detection(make.healthy(), []),
    ]
    board = build_leaderboard(rows)
    localization_facts, detection_facts = (
        board.table(task, "detected", app="shop") for task in ("localization", "detection")
    )
    assert localization_facts is not None
    assert detection_facts is not None
    assert localization_facts.entries[0].metrics["ac1"].n == 2
    assert not detection_facts.entries[0].metrics["event_recall"].known
    assert detection_facts.entries[0].metrics["timed_balanced_accuracy"].value == 1.0
    assert board.unscored == {
        "localization: no root cause among the candidates": 1,
        "onset unknown: excluded from event metrics and the protocol oracle": 1,
    }


def test_pods_and_metrics_are_scored_where_the_truth_names_them(make):
    fine = {"pod_causes": ("b-1",), "metric_causes": (("b", "cpu_*"),)}
    answer = {"pods": {"b-1": 1.0, "a-1": 1.0}, "metrics": [["a", "mem", 3.0], ["b", "cpu_seconds", 2.0]]}
    rows = [make.row(make.truth("e1", **fine), ranking=ranking("b"), answer=answer)]
    rows += [make.row(make.truth("e2", **fine), ranking=ranking("b")), make.row(make.truth("e3"), ranking=ranking("b"))]
    metrics = table_of(rows, "localization").entries[0].metrics
    assert (metrics["pod_ac1"].value, metrics["pod_ac1"].n) == (0.25, 2)
    assert (metrics["metric_ac1"].value, metrics["metric_ac3"].value, metrics["metric_mrr"].value) == (0.0, 0.5, 0.25)
    plain = table_of(rows[2:], "localization").entries[0].metrics
    assert plain["metric_ac1"].reason == "the truth names no metrics"


def test_several_causes_part_the_three_definitions_and_need_an_exact_set(make):
    truth = make.truth(causes=(("a",), ("b",)), calls=(("c", "a"), ("d", "e")))
    rows = [
        make.row(truth, "tied", ranking={"a": 1.0, "b": 1.0}),
        make.row(truth, "mixed", ranking=ranking("a", "c", "b")),
    ]
    by = {entry.baseline: entry.metrics for entry in table_of(rows, "localization").entries}
    assert (by["tied"]["exact_set"].value, by["mixed"]["exact_set"].value) == (1.0, 0.0)
    assert (by["mixed"]["jaccard"].value, by["mixed"]["set_f1"].value) == (0.5, pytest.approx(2 / 3))
    assert (by["mixed"]["ac1"].value, by["mixed"]["ac3"].value, by["mixed"]["recall3"].value) == (1.0, 1.0, 1.0)


def test_misses_are_sorted_and_their_distance_counted(make):
    calls = (("a", "b"), ("c", "d"))
    firsts = [ranking("b"), ranking("a"), ranking("c"), {}]
    rows = [make.row(make.truth(f"e{i}", calls=calls), ranking=r) for i, r in enumerate(firsts)]
    (miss,) = build_leaderboard(rows).misses
    assert (miss.hit, miss.symptom, miss.unrelated, miss.none) == (0.25, 0.25, 0.25, 0.25)
    assert miss.hops == {"0": 1, "1": 1, "inf": 1, "none": 1}


def test_the_pooled_table_predicts_one_more_application(make):
    rows = [
        make.row(make.truth(f"{app}{i}", app=app), ranking=ranking("b" if i < right else "a"))
        for app, right in (("x", 4), ("y", 2), ("z", 3))
        for i in range(4)
    ]
    board = build_leaderboard(rows)
    assert [table.app for table in board.tables] == ["x", "y", "z", "all apps"]
    across = board.tables[-1].entries[0].across
    assert across is not None
    assert (across.value, across.n) == (0.75, 3)
    assert across.low < 0 < 1 < across.high
    assert board.tables[0].entries[0].across is None


def test_the_prediction_is_of_the_number_that_the_table_is_ranked_by(make):
    rows = []
    for app, detected in (("x", 3), ("y", 1), ("z", 0)):
        truths = [make.truth(f"{app}{i}", app=app, targets=(f"t{i}",)) for i in range(3)]
        rows += [make.detection(t, [60, 61] if i < detected else [], "method") for i, t in enumerate(truths)]
        rows += [make.detection(t, [], "silent", kind="control") for t in truths]
        rows += [make.detection(make.healthy(f"{app}n", app=app), [], name) for name in ("method", "silent")]
    board = build_leaderboard(rows)
    pooled = board.tables[-1]
    assert pooled.app == "all apps"
    assert pooled.metrics[0].name == "timed_balanced_accuracy"
    across = {entry.baseline: entry.across.value for entry in pooled.entries if entry.across is not None}
    # Fault episodes are three quarters, and count half.
    assert across["silent"] == 0.5
    assert across["method"] == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    for name, value in across.items():
        by_app = [entry.metrics for table in board.tables[:-1] for entry in table.entries if entry.baseline == name]
        assert value == pytest.approx(sum(metrics["timed_balanced_accuracy"].value for metrics in by_app) / 3)


def test_everything_survives_being_stored_and_scored_again(make, tmp_path: Path):
    truth = make.truth(metric_causes=(("b", "cpu"),), pod_causes=("b-1",), calls=(("a", "b"),))
    rows = [make.row(truth, ranking=ranking("b"), answer={"metrics": [["b", "cpu", 1.0]]})]
    rows += [make.row(truth, protocol="delayed", delay_s=0.0, ranking=ranking("b")), diagnosis(make, truth, "A", "m")]
    write_rows(rows, tmp_path / "results.parquet")
    again = read_rows(tmp_path / "results.parquet")
    assert again == sorted(rows, key=lambda row: row.key)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_json(build_leaderboard(rows), first)
    write_json(build_leaderboard(again, policies=choose_policies([])), second)
    assert json.loads(first.read_text()) == json.loads(second.read_text())
    assert not math.isnan(json.loads(first.read_text())["curves"][0]["points"][0]["right"]["value"])


def test_a_constant_control_has_no_spread_and_a_silent_method_has(make):
    faulty = [make.truth(f"f{i}", targets=(f"t{i}",)) for i in range(6)]
    calm = [make.healthy(f"h{i}") for i in range(6)]
    rows = [make.detection(truth, [], "always-no", kind="control") for truth in [*faulty, *calm]]
    rows += [make.detection(truth, [], "silent") for truth in [*faulty, *calm]]
    board = build_leaderboard(rows)
    table = board.table("detection", "detected", app="shop")
    assert table is not None
    by_name = {entry.baseline: entry.metrics["timed_balanced_accuracy"] for entry in table.entries}
    assert (by_name["always-no"].value, by_name["always-no"].low, by_name["always-no"].high) == (0.5, 0.5, 0.5)
    assert by_name["silent"].low < 0.5 < by_name["silent"].high


SEVERAL = {
    "fault": "crash + loss",
    "targets": ("b", "c"),
    "causes": (("b",), ("c",)),
    "system_level": "A + V",
    "fault_type": "m + n",
    "faults": (FaultTruth("crash", "b", "A", "m"), FaultTruth("loss", "c", "V", "n")),
}


def test_the_level_and_type_of_one_of_several_faults_are_right_and_one_of_each_is_not(make):
    truths = [make.truth(f"e{number}", **SEVERAL) for number in range(3)]
    answers = [("A", "m"), ("V", "n"), ("A", "n")]
    board = build_leaderboard([diagnosis(make, truth, *pair) for truth, pair in zip(truths, answers, strict=True)])
    metrics = board.tables[0].entries[0].metrics
    assert metrics["joint"].value == pytest.approx(2 / 3)
    assert (metrics["level"].value, metrics["type"].value) == (1.0, 1.0)
    assert metrics["exact_diagnosis"].value == 0.0
    assert metrics["diagnosis_f1"].value == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert board.tables[0].floor["joint"].value == 1.0, "the majority label is that of one of the faults"


def test_a_diagnosis_that_all_faults_share_is_exact(make):
    faults = tuple(fault._replace(system_level="A", fault_type="m") for fault in SEVERAL["faults"])
    truth = make.truth(**(SEVERAL | {"faults": faults, "system_level": "A", "fault_type": "m"}))
    metrics = build_leaderboard([diagnosis(make, truth, "A", "m")]).tables[0].entries[0].metrics
    assert (metrics["exact_diagnosis"].value, metrics["diagnosis_f1"].value) == (1.0, 1.0)


def test_a_leaderboard_says_how_it_counts_episodes_with_several_causes(make):
    truth = make.truth(**SEVERAL)
    board = build_leaderboard([make.row(truth, ranking=ranking("b", "a", "c"))])
    metrics = board.tables[0].entries[0].metrics
    assert (metrics["ac1"].value, metrics["hit1"].value, metrics["recall3"].value) == (1.0, 1.0, 1.0)
    assert (metrics["exact_set"].value, metrics["set_f1"].value) == (0.0, pytest.approx(2 / 3))
    assert "episodes with several root causes: 1" in markdown(board)
    assert "several root causes" not in markdown(build_leaderboard([make.row(make.truth(), ranking=ranking("b"))]))


def mixed_rows(make) -> list[ResultRow]:
    """A detector whose own threshold finds nothing, beside one whose threshold was set in training."""
    faults = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(3)]
    tested = [(truth, [1.0] * 30 + [4.0] * 30) for truth in faults] + [(make.healthy("h1"), [1.0] * 60)]
    rows = []
    for name, needs in (("strict", ()), ("mine", ("threshold",))):
        rows += [scores_row(make, truth, scores, baseline=name, needs=needs) for truth, scores in tested]
        training = {"baseline": name, "needs": needs, "protocol": "calibration"}
        rows.append(scores_row(make, make.healthy("h2"), [2.0] * 60, **training))
    return rows


def test_where_one_threshold_comes_from_training_all_detectors_are_ranked_by_that_rule(make):
    rows = mixed_rows(make)
    table = table_of(rows, "detection")
    assert table.threshold_rule == "train-quantile(0.995)"
    assert "thresholds: train-quantile(0.995)" in table.header
    by = {entry.baseline: entry.metrics for entry in table.entries}
    assert {name: metrics["timed_balanced_accuracy"].value for name, metrics in by.items()} == {
        "strict": 1.0,
        "mine": 1.0,
    }
    assert by["strict"]["event_recall[reference]"].value == 0.0
    assert not by["mine"]["event_recall[reference]"].known
    assert table.header in markdown(build_leaderboard(rows))
    alone = table_of([row for row in rows if row.baseline == "strict"], "detection")
    assert alone.threshold_rule == "reference"
    assert alone.entries[0].metrics["event_recall"].value == 0.0


def test_a_detector_that_was_not_run_on_training_episodes_is_named_in_the_rule(make):
    rows = [row for row in mixed_rows(make) if row.protocol != "calibration" or row.baseline != "strict"]
    table = table_of(rows, "detection")
    assert table.threshold_rule == "train-quantile(0.995) (of strict: reference)"
    assert {e.baseline: e.metrics["event_recall"].value for e in table.entries} == {"strict": 0.0, "mine": 1.0}


@pytest.mark.parametrize(
    ("right", "standing"),
    [
        (12, "+1.00 p<0.001 vs the control guess; 1 of 1 beat it (p<0.05, Holm)"),
        (2, "+0.17 p=0.500 [-0.08, +0.41] vs the control guess; none of 1 beat it (p<0.05, Holm)"),
    ],
)
def test_a_table_ends_with_the_best_method_against_the_strongest_control(make, right: int, standing: str):
    rows = []
    for number in range(12):
        truth = make.truth(f"e{number}", fault=f"fault-{number}")
        rows.append(make.row(truth, ranking=ranking("b" if number < right else "a")))
        rows.append(make.row(truth, "guess", kind="control", ranking=ranking("a")))
    table = table_of(rows, "localization")
    standing = f"best method method: {standing}"
    assert table.standing == standing
    board = build_leaderboard(rows)
    assert f"**{standing}.**" in markdown(board)
    assert standing in " ".join(render_text(board, 200).split())
    assert ("beats it" in markdown(board)) == (right == 12)
    assert standing.split(": ")[1].split(" vs")[0].split(" [")[0] in render_text(board, 120).split("best method")[0]
    frame = leaderboard_frame(board.tables).set_index("baseline")
    assert frame.loc["method", "beats_control"] == (right == 12)
    assert frame.loc["method", "control"] == "guess"
    assert frame.loc["method", "vs_control"] == pytest.approx(right / 12)


@pytest.mark.parametrize("trained", [{"majority_label": None}, {"majority_label": ("B", "n"), "class_trained": False}])
def test_a_diagnosis_without_a_label_to_learn_from_has_too_few_episodes_and_no_score(make, trained):
    truth = make.truth(fault="cpu-hog")
    rows = [diagnosis(make, truth, None, None, baseline=name, **trained) for name in ("constant", "forest")]
    rows[0] = replace(rows[0], kind="control")
    board = build_leaderboard(rows)
    table = board.tables[0]
    assert [entry.metrics["joint"].known for entry in table.entries] == [False, False]
    assert table.note.startswith(
        "Too few episodes: no training episode has the label of a tested fault, which forest, constant need"
    )
    assert table.standing == ""
    assert markdown(board).count("| too few episodes |") >= 2
    assert markdown(board).lower().count("too few episodes: ") == len(board.tables)
    assert "gray faults:" not in render_text(board, 120)
    assert render_text(board, 120).lower().count("too few episodes: ") == 1
    page = render(board, rows, [], Path("/nowhere"))
    assert "too few episodes" in page
    assert "0.00" not in page
    learned = diagnosis(make, truth, None, None)
    assert build_leaderboard([learned]).tables[0].entries[0].metrics["joint"].value == 0.0


def test_a_number_over_answered_episodes_stands_beside_the_one_that_counts_misses(make):
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(4)]
    rows = [make.row(truth, ranking=ranking("b")) for truth in truths[:3]]
    rows.append(make.row(truths[3], status="cannot", reason="no spans"))
    board = build_leaderboard(rows)
    metrics = board.tables[0].entries[0].metrics
    assert (metrics["ac1"].value, metrics["ac1_answered"].value, metrics["ac1_answered"].n) == (0.75, 1.0, 3)
    assert "1.00 n=3" in render_text(board, 120)
    assert "AC@1 answered" not in render_text(build_leaderboard(rows[:3]), 120)


def test_gray_and_loud_faults_have_tables_of_their_own_and_unknown_faults_have_none(make):
    faults = {"gray": ("cpu-hog", "network-delay"), "loud": ("pod-kill", "wrong-host")}
    rows = []
    for loudness, names in faults.items():
        for name in names:
            truth = make.truth(name, fault=name)
            rows.append(make.row(truth, "watcher", ranking=ranking("b" if loudness == "loud" else "a")))
            rows.append(make.row(truth, "guess", kind="control", ranking=ranking("a")))
    board = build_leaderboard(rows)
    gray, loud = (board.table("localization", "detected", app="shop", faults=faults) for faults in ("gray", "loud"))
    assert gray is not None
    assert loud is not None
    assert [table.entries[0].metrics["ac1"].value for table in (gray, loud)] == [0.0, 1.0]
    assert (gray.episodes, gray.title) == (
        2,
        "localization · given: alarm of a detector · shop · manifest · gray faults",
    )
    assert "2 gray faults: guess 0.00" not in render_text(board, 120)
    assert "2 loud faults: watcher 1.00, control guess 0.00" in " ".join(render_text(board, 120).split())
    assert {table.faults for table in build_leaderboard([make.row(make.truth(), ranking=ranking("b"))]).tables} == {
        "all"
    }


def test_the_gray_and_loud_faults_are_those_of_the_catalogue():
    from faultset.collector.faults.registry import faults

    declared = {name: spec.gray for name, spec in faults().items()}
    assert {name for name, gray in declared.items() if gray} == GRAY_FAULTS
    assert {name for name, gray in declared.items() if not gray} == LOUD_FAULTS


def test_a_table_of_one_application_says_how_often_each_candidate_is_a_cause(make):
    causes = ("b", "b", "b", "c")
    rows = [
        make.row(make.truth(f"e{i}", targets=(name,), causes=((name, "alias"),)), ranking=ranking("b"))
        for i, name in enumerate(causes)
    ]
    rows.append(make.row(make.truth("e9", app="hotel"), ranking=ranking("b")))
    board = build_leaderboard(rows)
    text = "5 candidates; 2 are a cause in some episode: b 75%, c 25%"
    assert [table.target_text for table in board.tables if table.app == "shop"] == [text]
    assert text in markdown(board)
    assert [table.target_text for table in board.tables if table.app == "all apps"] == [""]


def test_less_evidence_has_columns_beside_the_whole_view(make):
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(2)]
    # of this fault only 5 s are seen: its whole view is no more than any budget
    short = make.truth("short", view_end_ns=make.truth().onset_ns + 5 * SECOND)
    rows = [make.row(truth, protocol="oracle", ranking=ranking("b")) for truth in (*truths, short)]
    rows += [
        make.row(truth, protocol="evidence", evidence_s=seconds, ranking=ranking("b" if seconds > 20 else "a"))
        for truth in truths
        for seconds in (10.0, 30.0)
    ]
    table = table_of(rows, "localization", "oracle")
    assert [metric.name for metric in choose_columns(table)][:3] == ["ac1", "ac1_10s", "ac1_30s"]
    metrics = table.entries[0].metrics
    values = {name: (metrics[name].value, metrics[name].n) for name in ("ac1_10s", "ac1_30s", "ac1")}
    assert values == {"ac1_10s": (pytest.approx(1 / 3), 3), "ac1_30s": (1.0, 3), "ac1": (1.0, 3)}
    assert metrics["ac1_60s"].reason == "methods were not run with 60 s of evidence; add --evidence 10,30,60"
    assert "--evidence 10,30,60" in markdown(build_leaderboard(rows[:3]))
    assert "rankings may differ" not in markdown(build_leaderboard(rows))


def test_a_reconstruction_shows_its_range_over_settings_and_is_ranked_by_the_default(make):
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(4)]
    right = {"old": 2, "old[combine=and]": 3, "old[steps=5]": 1, "other": 4, "alone[x]": 4}
    rows = [
        make.row(truth, name, ranking=ranking("b" if i < count else "a"))
        for name, count in right.items()
        for i, truth in enumerate(truths)
    ]
    board = build_leaderboard(rows, reconstructions=["old"])
    by_name = {entry.baseline: entry for entry in board.tables[0].entries}
    assert by_name.keys() == {"old", "other", "alone[x]"}
    assert (by_name["old"].rank, by_name["old"].metrics["ac1"].value) == (3, 0.5)
    assert by_name["old"].range_text == "0.25 to 0.75 over 3 settings"
    assert "method, reconstruction 0.25 to 0.75 over 3 settings" in markdown(board)
    assert "old (0.25 to 0.75 over 3 settings)" in render_text(board, 120)
    frame = leaderboard_frame(board.tables).set_index("baseline")
    assert [frame.loc["old", name] for name in ("settings_low", "settings_high", "reconstruction")] == [
        0.25,
        0.75,
        True,
    ]


def test_the_detection_table_has_one_threshold_rule_and_a_number_without_threshold_on_120_columns(make):
    faults = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(8)]
    rows = [scores_row(make, truth, [1.0] * 30 + [4.0] * 30, baseline="quiet-detector") for truth in faults]
    rows += [scores_row(make, make.healthy(f"h{i}"), [1.0] * 60, baseline="quiet-detector") for i in range(8)]
    calibration = {"baseline": "quiet-detector", "protocol": "calibration"}
    rows.append(scores_row(make, make.healthy("h9"), [2.0] * 60, **calibration))
    rows += [make.detection(row.truth, [], "always-no", kind="control") for row in rows[:16]]
    board = build_leaderboard(rows)
    text = render_table(board.tables[0], kinds=False).fit(120)
    shown = dict(zip((column.title for column in text.columns), (cell.text for cell in text.rows[0]), strict=True))
    # the detector's own threshold of 5 sees nothing; 2, the highest score in training, finds every fault
    assert shown["baseline"] == "quiet-detector"
    assert (shown["timed balanced accuracy"], shown["vs always-no"]) == ("0.50", "+0.00")
    assert not [title for title in shown if "train-quantile" in title]
    policy = policy_tables(board.tables[0])["train-quantile(0.995)"]
    cells = dict(zip((column.title for column in policy.columns), policy.rows[0], strict=True))
    assert cells["timed balanced accuracy"].text == "1.00"
    assert (shown["balanced accuracy"], float(shown["VUS-PR"]) > 0.9) == ("0.50", True)
    assert max(map(len, render_text(board, 120).splitlines())) <= 120
