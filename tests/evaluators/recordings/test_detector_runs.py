"""Alarms against incidents, decoys and void stretches, without telemetry."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from faultset.evaluators.recordings.detector_runs import DetectorRun, RecordingFacts, ScoredIncident
from faultset.evaluators.recordings.tables import DetectorRuns, build_recording_tables, estimate_metrics
from tests.evaluators.conftest import SECOND, START, make_healthy, make_row

Times = list[tuple[int, int]]


def times(*ranges: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple((START + start * SECOND, START + end * SECOND) for start, end in ranges)


def scored(name: str, start: int, end: int, **changes: Any) -> ScoredIncident:
    ((start_ns, end_ns),) = times((start, end))
    values = {"cluster": ("shop", name, "b"), "headline": True, "scored": True, **changes}
    return ScoredIncident(incident=name, recording="r", title=name, start_ns=start_ns, end_ns=end_ns, **values)


FACTS = RecordingFacts(
    recording="r",
    app="shop",
    start_ns=START,
    end_ns=START + 1000 * SECOND,
    watched=times((100, 1000)),
    incidents=(
        scored("i1", 200, 300),
        scored("i2", 500, 560),
        scored("unnoticed", 600, 640, headline=False),
        scored("unscored", 900, 960, scored=False),
    ),
    decoys=times((400, 460)),
    voids=times((700, 720), (930, 940)),
    step_ns=5 * SECOND,
    reference_s=100,
)


def run(*alarms: tuple[int, int], seed: int = 0, status: Any = "ok") -> DetectorRun:
    """One window from second 100 to 1000, flagged in these ranges of seconds."""
    truth = make_healthy(
        "w", view_start_ns=START, reference_end_ns=START + 100 * SECOND, view_end_ns=START + 1000 * SECOND
    )
    ends = range(105, 1001, 5)
    flags = [any(start <= second < end for start, end in alarms) for second in ends]
    answer = {
        "times_ns": [START + second * SECOND for second in ends],
        "scores": [2.0 * flag for flag in flags],
        "flags": "".join("01"[flag] for flag in flags),
        "threshold": 1.0,
        "consecutive": 1,
    }
    alarm_ns = answer["times_ns"][flags.index(True)] if any(flags) else None
    row = make_row(truth, task="detection", seed=seed, alarm_ns=alarm_ns, answer=answer, status=status)
    return DetectorRun(facts=FACTS, seed=seed, rows=(row,))


def outcomes(of: DetectorRun) -> list[str]:
    return [alarm.outcome for alarm in of.alarms]


@pytest.mark.parametrize(
    ("alarm", "outcome"),
    [
        ((205, 230), "true"),
        ((605, 630), "other"),
        ((405, 420), "decoy"),
        ((705, 715), "void"),
        ((905, 915), "void"),
        ((800, 820), "false"),
        ((150, 260), "false"),
    ],
)
def test_the_start_of_an_alarm_decides_its_outcome(alarm: tuple[int, int], outcome: str) -> None:
    assert outcomes(run(alarm)) == [outcome]


def test_alarms_within_30_seconds_are_one_and_later_ones_are_repeated() -> None:
    assert outcomes(run((205, 210), (225, 230), (270, 280))) == ["true", "repeated"]


def test_delays_count_from_the_start_of_the_incident_and_a_miss_is_infinite() -> None:
    assert run((210, 220)).compute_delays_s() == {"i1": 10.0, "i2": math.inf, "unnoticed": math.inf}


def test_the_chance_of_random_alarms_is_the_share_of_shifts_that_hit() -> None:
    assert run((800, 805)).compute_chances() == {"i1": pytest.approx(100 / 900), "i2": pytest.approx(60 / 900)}
    both = run((300, 305), (800, 805)).compute_chances()
    assert both == {"i1": pytest.approx(200 / 900), "i2": pytest.approx(120 / 900)}
    assert run().compute_chances() == {"i1": 0, "i2": 0}


def test_metrics_by_hand() -> None:
    values = estimate_metrics(DetectorRuns(runs=(run((210, 220), (260, 270), (410, 420), (800, 820)),)))
    assert (values["recall"].k, values["recall"].n) == (1, 2)
    assert values["precision"].value == 2 / 4
    assert values["decoys_alarmed"].value == 1
    assert values["alarms_per_incident"].value == 2
    assert values["recall_unnoticed"].value == 0
    quiet_s = 900 - 100 - 60 - 40 - 60 - 60 - 20
    assert values["false_alarms_per_day"].value == pytest.approx(86_400 / quiet_s)
    assert math.isinf(values["ttd_median"].value)


def test_a_failed_answer_raises_no_alarm_and_has_no_area() -> None:
    failed = run((210, 220), status="timeout")
    assert outcomes(failed) == []
    assert failed.volumes == (0.0, 0.0)


def test_seeds_are_averaged() -> None:
    values = estimate_metrics(DetectorRuns(runs=(run((210, 220)), run(seed=1))))
    assert values["recall"].k == 0.5
    assert values["precision"].value == 1


def test_scores_rank_samples_of_incidents_and_ignore_others() -> None:
    perfect = run((205, 301), (505, 561), (605, 641), (905, 961), (700, 720))
    assert perfect.volumes.pr == pytest.approx(1, abs=0.05)
    assert perfect.volumes.roc > 0.98


def test_incidents_without_a_recording_of_clients_have_no_headline() -> None:
    facts = dataclasses.replace(FACTS, incidents=(scored("u", 200, 300, headline=False),))
    row = run((205, 230)).rows[0]
    values = estimate_metrics(DetectorRuns(runs=(DetectorRun(facts=facts, seed=0, rows=(row,)),)))
    assert not values["recall"].known
    assert values["recall_unnoticed"].value == 1
    assert not values["vus_pr"].known


def test_a_detector_with_other_settings_has_one_entry_with_the_range_of_its_recall() -> None:
    both, none, first = [run((205, 210), (505, 510))], [run()], [run((205, 210))]
    runs = {"mksmc": first, "mksmc[k=2]": both, "mksmc[k=4]": none, "spot": first, "alone[k=2]": both}
    (table,) = build_recording_tables(runs, 0, "reference", {}, ["mksmc"])
    by_name = {entry.baseline: entry for entry in table.entries}
    assert by_name.keys() == {"mksmc", "spot", "alone[k=2]"}
    assert by_name["mksmc"].metrics["recall"].value == 0.5
    assert by_name["mksmc"].kind_text.endswith("reconstruction 0.00 to 1.00 over 3 settings")
    assert "reconstruction" not in by_name["spot"].kind_text
