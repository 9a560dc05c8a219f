"""Tables from rows that were made by hand."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from faultset.evaluators import Evaluation
from faultset.evaluators.leaderboards.formats import markdown, write_json
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.scoring.alarms import list_alarms
from faultset.evaluators.scoring.detection import DETECTION_METRICS, AlarmFacts, alarm_facts
from faultset.evaluators.scoring.localization import AC1
from faultset.evaluators.scoring.metrics import ScoredCase

SECOND = 1_000_000_000
AVERAGE_PRECISION, VUS_PR = (
    next(metric for metric in DETECTION_METRICS if metric.name == name) for name in ("average_precision", "vus_pr")
)


def ranking(*names: str) -> dict[str, float]:
    return {name: float(len(names) - i) for i, name in enumerate(names)}


def facts_of(*rows) -> AlarmFacts:
    return alarm_facts(ScoredCase(rows=rows))


def detection_rows(make):
    """An ideal detector, a constant, and a control that is never right, on three faults and two calm episodes."""
    faulty = [make.truth(f"e{i}", fault=fault) for i, fault in enumerate(("crash", "leak", "loss"))]
    calm = [make.healthy("h1"), make.healthy("h2")]
    rows = [make.detection(truth, range(65, 101), "ideal") for truth in faulty]
    rows += [make.detection(truth, [], "ideal") for truth in calm]
    rows += [make.detection(truth, range(41, 101), "always-yes", kind="control") for truth in faulty + calm]
    return rows


def test_alarms_are_raised_at_the_last_flag_that_is_needed(make):
    row = make.detection(make.truth(), [45, 70, 71, 72, 90, 91])
    start = row.truth.view_start_ns
    assert [(a - start) // SECOND for a, _ in list_alarms(row)] == [71]
    assert list_alarms(dataclasses.replace(row, alarm_ns=None)) == []


def test_a_detector_that_is_always_on_finds_nothing(make):
    on = facts_of(make.detection(make.truth(), range(41, 101)))
    assert (on.raised_alarm, on.detected, on.alarms_before_onset) == (1.0, 0.0, 1.0)
    assert on.delay_s == math.inf


def test_delays_count_from_the_onset_and_from_the_first_impact(make):
    facts = facts_of(make.detection(make.truth(), range(65, 101)))
    assert (facts.delay_s, facts.delay_from_manifest_s) == (6.0, 4.0)


PAUSES = ((65, 75), (80, 100))


@pytest.mark.parametrize(
    ("flagged", "expected"),
    [
        (range(62, 64), (1.0, 1, 1, 3.0)),
        (range(67, 70), (0.0, 0, 0, math.inf)),
        (range(67, 78), (1.0, 1, 1, 15.0)),
        ([*range(67, 70), 76, 77], (1.0, 1, 1, 17.0)),
        (range(50, 70), (0.0, 1, 0, math.inf)),
    ],
    ids=["while it is there", "in a pause", "still raised when it is back", "raised again", "before the onset"],
)
def test_an_alarm_in_a_pause_of_the_fault_is_neither_false_nor_a_detection(make, flagged, expected):
    start = make.truth().view_start_ns
    truth = make.truth(pauses=tuple((start + a * SECOND, start + b * SECOND) for a, b in PAUSES))
    facts = facts_of(make.detection(truth, flagged))
    assert (facts.detected, facts.alarms, facts.true_alarms, facts.delay_s) == expected


def test_samples_of_a_pause_are_not_judged(make):
    start = make.truth().view_start_ns
    pauses = tuple((start + a * SECOND, start + b * SECOND) for a, b in PAUSES)
    flagged = [*range(61, 66), *range(76, 81)]
    assert ScoredCase(rows=(make.detection(make.truth(pauses=pauses), flagged),)).value(AVERAGE_PRECISION) == 1.0
    assert ScoredCase(rows=(make.detection(make.truth(), flagged),)).value(AVERAGE_PRECISION) < 1.0


def test_a_failed_detector_is_wrong_with_and_without_a_fault(make):
    broken = {"status": "error", "alarm_ns": None, "answer": {}, "task": "detection"}
    assert facts_of(make.row(make.truth(), **broken)).raised_alarm == 0.0
    assert facts_of(make.row(make.healthy(), **broken)).raised_alarm == 1.0


def test_seeds_are_averaged_before_episodes(make):
    truth = make.truth()
    rows = [make.row(truth, ranking=ranking(first, "d"), seed=i) for i, first in enumerate("aabab")]
    assert ScoredCase(rows=tuple(rows)).value(AC1) == pytest.approx(2 / 5)


def test_the_detection_table_separates_an_ideal_detector_from_a_constant(make):
    table = build_leaderboard(detection_rows(make)).table("detection", "detected", app="shop")
    assert table is not None
    ideal, constant = table.entries
    assert (ideal.baseline, ideal.rank) == ("ideal", 1)
    assert ideal.metrics["timed_balanced_accuracy"].value == 1.0
    assert ideal.metrics["timed_balanced_accuracy"].low < 0.9
    assert ideal.metrics["ttd_median"].value == 6.0
    assert (ideal.metrics["false_alarms_per_hour"].k, ideal.metrics["false_alarms_per_hour"].value) == (0, 0)
    # on from the first sample on: an alarm before the onset finds no fault
    assert constant.metrics["timed_balanced_accuracy"].value == 0.0
    assert constant.metrics["balanced_accuracy"].value == 0.5
    assert ideal.metrics["balanced_accuracy"].value == 1.0
    assert constant.metrics["event_recall"].value == 0.0
    assert constant.metrics["event_precision"].value == 0.0
    assert ideal.metrics["detected_within_60s"].reason == "a view ends 40 s after the onset"
    assert table.floor["average_precision"].value == pytest.approx(40 / 60)
    assert (table.episodes, table.clusters, table.no_fault_episodes) == (3, 3, 2)
    assert ideal.against is not None
    assert ideal.against.test.reason == "5 clusters; a test needs 6"


def test_latent_and_silent_episodes_have_tables_of_their_own(make):
    rows = [
        make.row(make.truth("e1"), ranking=ranking("b")),
        make.row(make.truth("e2", verdict="silent"), ranking=ranking("a")),
    ]
    board = build_leaderboard(rows)
    headline = board.table("localization", "detected", app="shop")
    silent = board.table("localization", "detected", app="shop", verdict="silent")
    assert headline is not None
    assert silent is not None
    assert headline.entries[0].metrics["ac1"].value == 1.0
    assert silent.entries[0].metrics["ac1"].value == 0.0
    assert board.counts == {"manifest": 1, "latent": 0, "silent": 1, "no fault": 0}


def test_failures_and_missed_alarms_stay_in_the_denominator(make):
    truths = [make.truth(f"e{i}") for i in range(4)]
    rows = [
        make.row(truths[0], ranking=ranking("b")),
        make.row(truths[1], status="timeout", reason="no answer after 60 s"),
        make.row(truths[2], status="no_alarm", reason="ksigma raised no alarm", alarm_source="ksigma"),
        make.row(truths[3]),
    ]
    board = build_leaderboard(rows)
    table = board.table("localization", "detected", app="shop")
    assert table is not None
    entry = table.entries[0]
    assert (entry.metrics["ac1"].value, entry.metrics["ac1"].n) == (0.25, 4)
    assert entry.failed == {"timeout": 1, "no_alarm": 1}
    assert [failure.status for failure in board.failures] == ["timeout"]
    assert entry.metrics["answered"].value == 0.25


def test_methods_that_see_client_requests_rank_among_themselves(make):
    rows = [
        make.row(make.truth(), "plain", ranking=ranking("a")),
        make.row(make.truth(), "seeing", ranking=ranking("b"), needs=("sli",)),
    ]
    board = build_leaderboard(rows)
    plain, seeing = (board.table("localization", "detected", app="shop", group=g) for g in ("telemetry", "sli"))
    assert plain is not None
    assert seeing is not None
    assert [entry.baseline for entry in plain.entries] == ["plain"]
    assert [entry.baseline for entry in seeing.entries] == ["seeing"]


def test_protocols_are_never_mixed_and_early_alarms_are_marked(make):
    truth = make.truth()
    early = make.row(truth, given_alarm_ns=truth.onset_ns - 5 * SECOND, alarm_source="ksigma", ranking=ranking("a"))
    oracle = make.row(
        truth, protocol="oracle", given_alarm_ns=truth.onset_ns, alarm_source="truth", ranking=ranking("b")
    )
    board = build_leaderboard([early, oracle])
    assert early.alarm_given_early
    assert not oracle.alarm_given_early
    assert board.early_alarms == {"before onset": 1}
    at_alarm, at_onset = (board.table("localization", p, app="shop") for p in ("detected", "oracle"))
    assert at_alarm is not None
    assert at_onset is not None
    assert (at_alarm.entries[0].metrics["ac1"].value, at_onset.entries[0].metrics["ac1"].value) == (0, 1)


def test_applications_come_before_the_pooled_table(make):
    rows = [
        make.row(make.truth("e1"), ranking=ranking("b")),
        make.row(make.truth("e2", app="hotel"), ranking=ranking("a")),
    ]
    assert [table.app for table in build_leaderboard(rows).tables] == ["hotel", "shop", "all apps"]


def test_guessing_is_printed_for_the_candidates_at_hand(make):
    table = build_leaderboard([make.row(make.truth(), ranking=ranking("a"))]).table(
        "localization", "detected", app="shop"
    )
    assert table is not None
    assert table.floor["ac1"].value == pytest.approx(1 / 5)
    assert table.floor["avg5"].value == pytest.approx(3 / 5)
    assert table.floor["median_rank"].value == pytest.approx(3.0)


def test_difficulty_follows_from_the_rules(make):
    truths = [make.truth(f"e{i}") for i in range(3)]
    rows = [make.row(t, "max-z", kind="control", ranking=ranking("b" if i == 0 else "a")) for i, t in enumerate(truths)]
    rows += [
        make.row(t, "loudest-log", kind="control", ranking=ranking("b" if i == 1 else "a"))
        for i, t in enumerate(truths)
    ]
    strata = {stratum.name: stratum.episodes for stratum in build_leaderboard(rows).strata}
    assert strata == {"trivial": ("e0",), "one modality": ("e1",), "hard": ("e2",)}


def test_quick_episodes_mark_the_results(make):
    rows = [make.row(make.truth(profile="quick"), ranking=ranking("b"))]
    board = build_leaderboard(rows)
    assert board.quick
    assert "**quick**" in markdown(board)


def test_json_has_nulls_with_reasons_instead_of_nan(make, tmp_path: Path):
    rows = [make.detection(make.truth(), range(65, 101)), make.detection(make.truth("e2"), [])]
    write_json(build_leaderboard(rows), tmp_path / "leaderboard.json")
    content = json.loads((tmp_path / "leaderboard.json").read_text())
    metrics = content["tables"][0]["entries"][0]["metrics"]
    assert metrics["timed_balanced_accuracy"]["value"] is None
    assert metrics["timed_balanced_accuracy"]["reason"] == "no no-fault episodes"
    assert metrics["ttd_median"]["value"] == "inf"


def test_markdown_has_counts_intervals_and_the_floor(make):
    text = markdown(build_leaderboard(detection_rows(make), digest="d" * 64))
    assert "1.00 [0.44, 1.00] 3/3" in text
    assert "| guessing |" in text
    assert "thresholds: reference" in text
    assert "## Failed rows" in text
    assert "ddddddddddd" in text


@pytest.mark.parametrize("step", [1, 3])
def test_the_floor_of_the_volume_is_what_a_constant_score_gets_on_the_same_samples(make, step):
    truth = make.truth()
    times = [truth.reference_end_ns + n * SECOND for n in range(step, 61, step)]
    answer = {"times_ns": times, "scores": [0.0] * len(times), "flags": "0" * len(times), "consecutive": 2}
    case = ScoredCase(rows=(make.row(truth, task="detection", answer=answer),))
    floor = VUS_PR.estimate_guess([case])
    assert floor is not None
    assert floor.value == pytest.approx(case.value(VUS_PR))


def test_tables_are_means_of_the_values_of_each_episode(make):
    answers = [ranking("b"), ranking("a", "b"), ranking("a", "c", "b")]
    rows = [make.row(make.truth(f"e{i}"), ranking=answer) for i, answer in enumerate(answers)]
    rows.append(make.row(make.healthy(), status="no_alarm"))
    done = Evaluation(rows=tuple(rows))
    (table,) = done.tables
    values = done.episode_values("localization")
    assert values.query("metric == 'ac3'").set_index("episode")["value"].to_dict() == {"e0": 1, "e1": 1, "e2": 1}
    assert values.query("metric == 'correct_abstentions'")["episode"].tolist() == ["h1"]
    means = values.groupby("metric")["value"].mean()
    for name in ("ac1", "avg5", "mrr", "hit5", "exact_set", "correct_abstentions"):
        assert table.entries[0].metrics[name].value == pytest.approx(means[name])
