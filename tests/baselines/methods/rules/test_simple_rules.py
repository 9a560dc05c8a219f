"""Controls, single signs and rules on what clients saw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from faultset.baselines.api.contract import Labelled
from faultset.baselines.features.series_scores import rank_by_series
from faultset.baselines.methods.controls.evidence_free import (
    AlwaysNo,
    AlwaysYes,
    Clock,
    MostFrequent,
    RandomDetector,
    RandomRanking,
)
from faultset.baselines.methods.controls.single_indicators import LoudestLog, SeriesStopped
from faultset.baselines.methods.rules.deviation_rankings import Baro, NSigma
from faultset.baselines.methods.rules.ksigma import KSigma
from faultset.baselines.methods.rules.max_z import MaxZ
from faultset.baselines.methods.rules.sli_rules import SLIRule, SLIRuleDetector, classify_requests, depths, ochiai
from faultset.baselines.stats.scaling import deviations, mean_and_sd, median_and_iqr, sustained
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000
PATTERN = np.array([0, 2, 1, -1, 0, 2, 1, -1], dtype=float)
CALM = np.array([0, 0, 1, -1, 0, 0, 1, -1], dtype=float)
REFERENCE = np.stack([10 + PATTERN, 50 + CALM, 20 + PATTERN, 100 + PATTERN], axis=1)
VALUES = np.array([(10, 30, 31, 30), (50, 50, 51, 49), (21, 21, 40, 41), (100, 10, 9, 10)], dtype=float).T
THERE = np.zeros(VALUES.shape, dtype=bool)


def test_two_sided_n_sigma_finds_the_series_that_drops() -> None:
    z = deviations(VALUES, *mean_and_sd(REFERENCE), THERE)
    # The signed maximum of published code does not see what drops.
    assert z.max(axis=0) == pytest.approx([18.3358, 1.4142, 18.3358, -0.4472], abs=1e-4)
    assert np.abs(z).max(axis=0)[3] == pytest.approx(81.8401, abs=1e-4)


def test_two_sided_baro_finds_the_series_that_drops() -> None:
    z = np.abs(deviations(VALUES, *median_and_iqr(REFERENCE), THERE)).max(axis=0)
    assert z[[0, 2, 3]] == pytest.approx([13.6667, 13.6667, 61.0], abs=1e-4)


def test_services_stand_where_their_first_series_stands() -> None:
    series = (("cart", "cpu"), ("cart", "mem"), ("front", "lat"), ("db", "rps"))
    ranking = rank_by_series(np.array([18.3, 1.4, 18.2, 81.8]), series, ("cart", "db", "front"), detail="z")
    assert ranking.ordered == ("db", "cart", "front")
    assert [item.subject for item in ranking.evidence] == ["rps", "cpu", "lat", "mem"]


def test_a_spike_is_not_sustained() -> None:
    z = np.array([[9.0, 9], [0, -9], [9, 9], [9, 9]])
    np.testing.assert_array_equal(sustained(z, 3), [[0, 0], [0, 0], [0, 9], [0, 9]])


@pytest.mark.parametrize("ranker", [NSigma, Baro, MaxZ])
def test_deviation_rankers_find_the_target_of_the_example(ranker, example, faulty) -> None:
    label = example.label(faulty)
    ranking = ranker().localize(example.view(faulty), int(label.inject_start_ns) + 4 * SECOND)
    assert ranking.ordered[0] == label.targets[0]


def test_k_sigma_names_series_that_rose_or_stopped(example, faulty, alter) -> None:
    label = example.label(faulty)
    found = KSigma().detect(example.view(faulty))
    assert found.evidence[0].detail.endswith("up")

    def silence(rows: pa.Table) -> pa.Table:
        late = rows["time"].cast("int64").to_numpy() >= label.inject_start_ns
        gone = np.array([name == "rate" for name in rows["service"].to_pylist()])
        return rows.filter(pa.array(~(late & gone)))

    healthy = next(episode for episode in example.episodes if not example.label(episode).fault)
    onset = example.view(healthy).reference[1] + 20 * SECOND
    label = replace(label, inject_start_ns=onset)
    view = alter(healthy, {"metrics": silence})
    found = KSigma().detect(view)
    assert found.alarm_ns is not None
    assert found.alarm_ns > onset
    assert {(item.service, item.detail) for item in found.evidence} == {("rate", "series stopped")}
    stopped = SeriesStopped().localize(view, found.alarm_ns)
    assert stopped.ordered == ("rate",)
    assert stopped.scores["rate"] > 0.9


def test_loudest_log_hears_levels_and_words(example, faulty) -> None:
    label = example.label(faulty)
    ranking = LoudestLog().localize(example.view(faulty), int(label.inject_start_ns) + 4 * SECOND)
    assert ranking.ordered == (label.targets[0],)
    assert len(ranking.pods) == 1
    assert next(iter(ranking.pods)).startswith(f"{label.targets[0]}-")


def labelled(view: EpisodeView, **truth: Any) -> Labelled:
    return Labelled(view=view, service=None, system_level=None, fault_type=None, **truth)


def test_constants_are_constant(example) -> None:
    for episode in example.episodes:
        view = example.view(episode)
        yes = AlwaysYes().detect(view)
        assert yes.alarm_ns == yes.times_ns[0]
        assert AlwaysNo().detect(view).alarm_ns is None


def test_the_clock_alarms_at_the_latest_onset_of_its_training_episodes(example, faulty) -> None:
    view = example.view(faulty)
    start, end = view.view
    assert Clock().detect(view).alarm_ns == start + 60 * SECOND
    assert Clock(share=0.75).detect(view).alarm_ns == start + 90 * SECOND
    onsets = [start + round(share * (end - start)) for share in (0.6, 0.7)]
    training = [labelled(view, onset_ns=onset) for onset in (onsets[0], None, onsets[1])]
    assert Clock().fit(training).detect(view).alarm_ns == onsets[1]


def test_random_detector_alarms_as_often_as_told(example, faulty) -> None:
    view = example.view(faulty)
    alarms = [RandomDetector(seed=seed).detect(view).alarm_ns for seed in range(60)]
    assert 15 < sum(alarm is not None for alarm in alarms) < 45
    assert len(set(alarms)) > 10
    assert all(RandomDetector(probability=0.0, seed=seed).detect(view).alarm_ns is None for seed in range(9))
    assert all(RandomDetector(probability=1.0, seed=seed).detect(view).alarm_ns for seed in range(9))


def test_random_ranking_depends_on_seed_and_episode_but_not_on_order(example) -> None:
    one, two = (example.view(episode) for episode in example.episodes[:2])
    orders = {RandomRanking(seed=seed).localize(one, 0).ordered for seed in range(8)}
    assert len(orders) > 4
    assert RandomRanking().localize(one, 0).ordered != RandomRanking().localize(two, 0).ordered
    assert set(next(iter(orders))) == set(one.services)


def test_most_frequent_counts_the_causes_of_its_training_episodes(example, faulty) -> None:
    view = example.view(faulty)
    assert MostFrequent().localize(view, 0).abstains
    causes = [("rate", "geo"), ("geo",), (), ("elsewhere",), ("elsewhere",), ("elsewhere",)]
    fitted = MostFrequent().fit([labelled(view, causes=found) for found in causes])
    assert fitted.localize(view, 0).scores == {"geo": 2.0, "rate": 1.0}


def test_depth_is_the_longest_way_from_the_entry_and_cycles_end() -> None:
    calls = [("front", "search"), ("search", "geo"), ("front", "geo"), ("geo", "front")]
    assert depths(calls, "front") == {"front": 0, "search": 1, "geo": 2}


def test_ochiai_of_the_worked_example() -> None:
    assert ochiai(4, 4, 1) == pytest.approx(0.8944, abs=1e-4)
    assert ochiai(4, 4, 6) == pytest.approx(0.6325, abs=1e-4)
    assert ochiai(1, 4, 3) == pytest.approx(0.25, abs=1e-4)
    assert ochiai(0, 0, 3) == 0.0


def nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def requests(rows: list[tuple[float, str, float | None, str]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["scheduled", "endpoint", "latency_ns", "outcome"])
    frame["scheduled"] = (frame["scheduled"] * SECOND).astype("int64")
    frame["latency_ns"] = frame["latency_ns"].astype(float)
    return frame


def test_a_late_request_is_bad_when_its_time_is_up() -> None:
    healthy = [(second, "GET /", 1e8, "ok") for second in range(10)]
    late = [(10, "GET /", 5e9, "ok"), (11, "GET /", None, "timeout"), (12, "GET /", 1e7, "http_error")]
    classified = classify_requests(requests([*healthy, *late, (13, "GET /", 1.4e8, "ok")]), 10 * SECOND)
    assert classified.bad.tolist() == [False] * 10 + [True] * 3 + [False]
    assert classified.known_ns[10:] / SECOND == pytest.approx([10.15, 11.15, 12.01, 13.14])


def test_sli_detector_alarms_on_failures_only(example) -> None:
    verdicts = {}
    for episode in example.episodes:
        verdicts.setdefault(bool(example.label(episode).fault), []).append(
            SLIRuleDetector().detect(example.view(episode)).alarm_ns
        )
    assert verdicts[False] == [None] * 3
    assert sum(alarm is not None for alarm in verdicts[True]) >= 2


def test_sli_rule_blames_what_only_failing_endpoints_use(example, faulty, alter) -> None:
    start = example.view(faulty).view[0]

    def traces(rows: pa.Table) -> pa.Table:
        found = []
        for number in range(100):
            operation, callees = (("GET /a", ["geo"]), ("GET /b", ["rate"]))[number % 2]
            for place, service in enumerate(["frontend", "search", *callees]):
                found.append({
                    "episode": "e", "time": start + number * SECOND // 4, "trace_id": f"t{number}",
                    "span_id": f"s{number}-{place}", "parent_span_id": None if place == 0 else f"s{number}-0",
                    "service": service, "operation": operation if place == 0 else "x", "duration_ns": 5,
                })  # fmt: skip
        return pa.Table.from_pylist(found, schema=nullable(rows.schema))

    def clients(rows: pa.Table) -> pa.Table:
        found = []
        for number in range(480):
            at = start + number * SECOND // 4
            bad = number % 2 == 0 and number > 280
            found.append({
                "episode": "e", "scheduled": at, "sent": at, "endpoint": ("GET /a", "GET /b")[number % 2],
                "latency_ns": 10**7, "status": 500 if bad else 200, "outcome": "http_error" if bad else "ok",
            })  # fmt: skip
        return pa.Table.from_pylist(found, schema=nullable(rows.schema))

    view = alter(faulty, {"spans": traces, "requests": clients})
    ranking = SLIRule().localize(view, start + 75 * SECOND)
    assert ranking.ordered[:3] == ("geo", "search", "frontend")
    assert "rate" not in ranking.scores
