"""PDiagnose against values computed by hand, in the recommended and in the published form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from faultset.baselines.features.kpi_flags import (
    kde_tail,
    kpi_flags,
    queue_features,
    reference_density,
    triggers,
    wma_residuals,
)
from faultset.baselines.features.windows import cut
from faultset.baselines.logs.keywords import log_excess
from faultset.baselines.methods.localization.multimodal import pdiagnose
from faultset.baselines.methods.localization.multimodal.pdiagnose import PDiagnose, PDiagnoseTrigger, vote
from faultset.baselines.methods.localization.multimodal.pdiagnose_rcaeval import (
    log_counts,
    metric_counts,
    slow_count,
    totals,
    upper_limits,
)
from faultset.baselines.traces.slow_spans import exclusive_durations, parent_rows, slow_spans
from faultset.core.times import SECOND_NS

PATTERN = np.array([0, 2, 1, -1, 0, 2, 1, -1], dtype=float)
CALM = np.array([0, 0, 1, -1, 0, 0, 1, -1], dtype=float)
REFERENCE = np.stack([10 + PATTERN, 50 + CALM, 20 + PATTERN, 100 + PATTERN], axis=1)
VALUES = np.array([(10, 30, 31, 30), (50, 50, 51, 49), (21, 21, 40, 41), (100, 10, 9, 10)], dtype=float).T
SERVICES = ["cart", "cart", "front", "db"]
CART, FRONT, DB = 10 + PATTERN, 30 + PATTERN, np.full(8, 5.0)
SLOW = {"cart": [50.0, 55, 11], "front": [70.0, 75, 31], "db": [5.0, 5, 5]}


def spans_of(usual: np.ndarray, service: str) -> tuple[np.ndarray, np.ndarray]:
    durations = np.concatenate([usual, SLOW[service]])
    return durations, np.arange(len(durations)) < len(usual)


def test_published_form_counts_raw_exceedances() -> None:
    assert upper_limits(REFERENCE)[[0, 2, 3]] == pytest.approx([14.0857, 24.0857, 104.0857], abs=1e-4)
    assert upper_limits(FRONT[:, None]) == pytest.approx([34.0857], abs=1e-4)
    metric = metric_counts(REFERENCE, VALUES, SERVICES)
    assert metric == {"cart": 3, "front": 2, "db": 0}
    lines = [
        ("front", "error: slow client"),
        ("cart", "connection error"),
        ("cart", "request failed"),
        ("front", "ERROR upstream timeout"),
        ("db", "ok"),
    ]
    log = log_counts(*(list(column) for column in zip(*lines, strict=True)))
    assert log == {"front": 1, "cart": 2, "db": 0}
    trace = {
        service: slow_count(*spans_of(usual, service))
        for service, usual in (("cart", CART), ("front", FRONT), ("db", DB))
    }
    assert trace == {"cart": 2, "front": 2, "db": 3}
    assert totals([metric, log, trace]) == {"cart": 35, "front": 25, "db": 15}


def test_kde_tail_of_the_worked_example() -> None:
    assert kde_tail(REFERENCE, VALUES)[0, 0] == pytest.approx(0.7528, abs=1e-4)
    found = kde_tail(REFERENCE[:, :1], np.array([[13.0], [14.0], [15.0]])).ravel()
    assert found == pytest.approx([0.05402, 0.00284, 0.000036], abs=5e-6)


def test_flags_and_trigger_of_the_worked_example() -> None:
    flags = kpi_flags(REFERENCE, VALUES, window=4)
    assert flags.T.astype(int).tolist() == [[0, 1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]]
    features = queue_features(flags, SERVICES)
    assert features.distinct.tolist() == [0, 2, 3, 3]
    assert features.length.tolist() == [0, 2, 5, 8]
    assert features.services.tolist() == [0, 2, 3, 3]
    assert int(triggers(features, 0.0).argmax()) + 1 == 2


def test_votes_of_the_worked_example() -> None:
    flags = kpi_flags(REFERENCE, VALUES, window=4).sum(axis=0)
    metric = {"cart": float(flags[0] + flags[1]), "front": float(flags[2]), "db": float(flags[3])}
    assert metric == {"cart": 3, "front": 2, "db": 3}
    log = log_excess({"cart": 2, "front": 1, "db": 0}, {"front": 1}, 0.5)
    assert log == {"cart": 2, "front": 0.5, "db": 0}
    exclusive = {"cart": slow(CART, "cart"), "front": slow(np.full(8, 20.0), "front", own=20), "db": slow(DB, "db")}
    assert exclusive == {"cart": 2, "front": 0, "db": 0}
    assert vote([metric, log, exclusive]) == pytest.approx({"cart": 2.175, "front": 0.450, "db": 0.375})
    inclusive = {"cart": slow(CART, "cart"), "front": slow(FRONT, "front"), "db": slow(DB, "db")}
    assert vote([metric, log, inclusive]) == pytest.approx({"cart": 1.675, "front": 0.950, "db": 0.375})


def slow(usual: np.ndarray, service: str, own: float | None = None) -> int:
    durations, healthy = spans_of(usual, service)
    if own is not None:
        durations = np.full(len(durations), float(own))
    return int((slow_spans(np.zeros(len(durations), dtype=np.int64), durations, healthy) & ~healthy).sum())


def test_a_source_without_counts_has_no_say() -> None:
    assert vote([{"a": 0.0, "b": 0.0}, {"a": 1.0}]) == {"a": 1.0, "b": 0.0}


def test_moving_average_weighs_the_newest_value_most() -> None:
    series = np.array([[1.0], [2.0], [3.0], [10.0]])
    found = wma_residuals(series, 3)
    assert np.isnan(found[:3]).all()
    assert found[3, 0] == pytest.approx(10 - (3 * 3 + 2 * 2 + 1) / 6)


def test_a_jump_within_the_usual_range_of_a_trend_is_flagged() -> None:
    trend = np.linspace(0, 100, 60)[:, None]
    values = np.array([[101.7], [50.0], [105.0]])
    assert kpi_flags(trend, values, window=4)[:, 0].tolist() == [False, True, True]
    assert not kpi_flags(trend, values, window=4, combine="and")[1, 0]


def test_queue_forgets_what_is_older_than_its_window() -> None:
    flags = np.zeros((30, 2), dtype=bool)
    flags[3] = True
    length = queue_features(flags, ["a", "b"], 10).length
    assert length.tolist() == [0] * 3 + [2] * 10 + [0] * 17


def test_healthy_density_is_low_for_healthy_data() -> None:
    rng = np.random.default_rng(0)
    limit = reference_density(rng.normal(10, 1, (60, 20)), ["a"] * 20, window=4)
    assert 0 <= limit < 0.1


def test_exclusive_time_leaves_out_children_once() -> None:
    starts = np.array([0, 10, 30, 90, 500])
    durations = np.array([100, 40, 40, 50, 7])
    parents = np.array([-1, 0, 0, 0, -1])
    assert exclusive_durations(starts, durations, parents).tolist() == [100 - 60 - 10, 40, 40, 50, 7]


def test_exclusive_time_keeps_families_apart() -> None:
    starts = np.array([0, 0, 5, 1_000, 1_000])
    durations = np.array([10, 4, 3, 10, 10])
    parents = np.array([-1, 0, 0, -1, 3])
    assert exclusive_durations(starts, durations, parents).tolist() == [3, 4, 3, 0, 10]


def test_parents_are_found_within_their_trace() -> None:
    traces, spans = np.array(["t", "t", "u"], dtype=object), np.array(["a", "b", "a"], dtype=object)
    parents = np.array([None, "a", "b"], dtype=object)
    assert parent_rows(traces, spans, parents).tolist() == [-1, 0, -1]


def test_constant_operation_is_not_slow_by_being_constant() -> None:
    durations = np.array([5.0, 5, 5, 5, 5.7, 5.8])
    found = slow_spans(np.zeros(6, dtype=np.int64), durations, np.arange(6) < 4)
    assert found.tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("span_time", ["exclusive", "inclusive"])
def test_all_sources_point_at_the_target_of_the_example(span_time, example, faulty) -> None:
    label = example.label(faulty)
    ranking = PDiagnose(span_time=span_time).localize(example.view(faulty), int(label.inject_start_ns) + 4_000_000_000)
    assert ranking.ordered[0] == label.targets[0]
    assert {"anomalous samples", "slow or failed spans"} <= {item.detail for item in ranking.evidence}


def test_trigger_names_the_series_in_its_queue(example, faulty) -> None:
    found = PDiagnoseTrigger().detect(example.view(faulty))
    assert found.alarm_ns is not None
    assert example.label(faulty).targets[0] in {item.service for item in found.evidence}


def test_the_moving_average_at_the_alarm_follows_the_samples_right_before_it(monkeypatch) -> None:
    # a trend that goes on as before: no jump, however far the alarm lies behind the reference
    steps = pd.date_range("2025-01-01", periods=120, freq="1s", tz="UTC")
    trend = np.arange(120.0)[:, None]
    frame = pd.DataFrame(trend, index=steps, columns=pd.MultiIndex.from_tuples([("geo", "rss")]))
    start_ns = steps.as_unit("ns").asi8[0]
    since_reference, since_alarm = (
        cut(
            frame,
            step_ns=SECOND_NS,
            reference_end_ns=start_ns + 60 * SECOND_NS,
            values_start_ns=start_ns + at * SECOND_NS,
        )
        for at in (60, 100)
    )
    monkeypatch.setattr(pdiagnose, "detection_windows", lambda episode: since_reference)
    flags = pdiagnose._flags_since(None, since_alarm, "and")  # type: ignore[arg-type]
    assert flags.shape == since_alarm.values.shape
    assert not flags.any()
    torn = kpi_flags(since_alarm.reference, since_alarm.values, window=10, combine="and")
    assert torn[:10].any()
