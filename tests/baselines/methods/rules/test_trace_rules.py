"""Rules on spans: percentiles, failures and missing calls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.features.role_streams import Steps, count_silent_steps, idle_share
from faultset.baselines.methods.rules.trace_rules import (
    CLASS_WIDTH,
    EndedSpans,
    MissingEdgeDetector,
    TraceErrorsDetector,
    TraceP95Detector,
    high_percentiles,
    read_calls,
    read_ended_spans,
    recent_percentiles,
)

SECOND = 1_000_000_000


def ended(ends: np.ndarray, durations: np.ndarray) -> EndedSpans:
    nothing = np.zeros(len(ends), dtype=np.int64)
    return EndedSpans(
        ends_ns=ends,
        durations_ns=durations,
        services=nothing,
        operations=nothing,
        names=(("a", "op"),),
        failed=nothing.astype(bool),
    )


def test_a_percentile_is_the_smallest_duration_that_enough_do_not_exceed() -> None:
    rng = np.random.default_rng(0)
    durations, kinds = rng.integers(1, 10**6, 500), rng.integers(0, 4, 500)
    result = high_percentiles(durations, kinds, 5)
    for kind in range(4):
        values = durations[kinds == kind]
        assert result[kind] == np.quantile(values, 0.95, method="inverted_cdf")
    assert np.isnan(result[4])


def test_latest_percentiles_are_those_of_the_last_twenty_spans_or_of_the_step() -> None:
    rng = np.random.default_rng(1)
    steps = Steps(start_ns=0, step_ns=10, recorded=np.arange(12), healthy=6, view_end_ns=120)
    ends = np.sort(np.concatenate([rng.integers(0, 120, 60), np.full(50, 75)]))
    durations = rng.lognormal(12, 1, len(ends)).astype(np.int64)
    usual = np.array([durations.mean()])
    result = recent_percentiles(steps, ended(ends, durations), usual)[:, 0]
    for step in range(12):
        expected = ends < 10 * (step + 1)
        first = step
        while first > 0 and ((ends >= 10 * first) & expected).sum() < 20:
            first -= 1
        window = durations[(ends >= 10 * first) & expected]
        if len(window) < 20:
            assert result[step] == 0.0
        else:
            exact = np.log(np.quantile(window, 0.95, method="inverted_cdf") / usual[0])
            assert result[step] == pytest.approx(exact, abs=CLASS_WIDTH / 2 + 1e-9)


def test_one_slow_span_in_twenty_is_not_a_change() -> None:
    steps = Steps(start_ns=0, step_ns=10, recorded=np.arange(4), healthy=2, view_end_ns=40)
    durations = np.full(80, 1000)
    durations[45] = 100_000
    result = recent_percentiles(steps, ended(np.arange(80) // 2, durations), np.array([1000.0]))
    assert not result.any()


def test_silence_is_counted_in_steps() -> None:
    counts = np.array([[0, 1], [0, 1], [2, 0], [0, 0]])
    assert count_silent_steps(counts).T.tolist() == [[1, 2, 0, 1], [0, 0, 1, 2]]
    assert idle_share(counts) == pytest.approx([3.5 / 5, 2.5 / 5])


def slower(factor: float, service: str, cut: int):
    def edit(rows: pa.Table) -> pa.Table:
        hit = (rows["time"].cast("int64").to_numpy() >= cut) & (np.array(rows["service"].to_pylist()) == service)
        durations = rows["duration_ns"].to_numpy()
        changed = pa.array(np.where(hit, (durations * factor).astype(np.int64), durations))
        return rows.set_column(rows.schema.get_field_index("duration_ns"), "duration_ns", changed)

    return edit


@pytest.fixture(scope="module")
def healthy(example) -> str:
    return next(episode for episode in example.episodes if not example.label(episode).fault)


@pytest.mark.parametrize("factor", [8.0, 1 / 8])
def test_an_operation_that_becomes_slow_or_fast_is_reported(factor: float, example, alter, healthy) -> None:
    view = example.view(healthy)
    assert TraceP95Detector().detect(view).alarm_ns is None
    cut = view.reference[1] + 10 * SECOND
    detection = TraceP95Detector().detect(alter(healthy, {"spans": slower(factor, "search", cut)}))
    assert detection.alarm_ns is not None
    assert detection.alarm_ns > cut
    assert detection.evidence[0].service == "search"


def test_calls_are_derived_from_parents_of_spans(example, healthy) -> None:
    view = example.view(healthy)
    names = sorted(view.services)
    edges = np.unique(read_calls(view).edges)
    assert {(names[edge // len(names)], names[edge % len(names)]) for edge in edges} == set(view.calls)
    spans = read_ended_spans(view)
    assert {service for service, _ in spans.names} == set(names)


def test_a_call_that_names_its_peer_is_counted_once(alter, healthy, example) -> None:
    def named(rows: pa.Table) -> pa.Table:
        """Set the peer of each span to the service of its child."""
        service = dict(zip(rows["span_id"].to_pylist(), rows["service"].to_pylist(), strict=True))
        child = dict(zip(rows["parent_span_id"].to_pylist(), rows["service"].to_pylist(), strict=True))
        peers = pa.array([child.get(span) for span in service], pa.string())
        return rows.set_column(rows.schema.get_field_index("peer_service"), "peer_service", peers)

    by_parent = read_calls(example.view(healthy))
    by_peer = read_calls(alter(healthy, {"spans": named}))
    assert len(by_peer.edges) <= len(by_parent.edges)
    assert set(np.unique(by_peer.edges)) == set(np.unique(by_parent.edges))


def test_a_missing_call_is_detected(example, alter, healthy) -> None:
    view = example.view(healthy)
    cut = view.reference[1] + 10 * SECOND

    def stopped(rows: pa.Table) -> pa.Table:
        mine = np.array(rows["service"].to_pylist()) == "geo"
        return rows.filter(pa.array((rows["time"].cast("int64").to_numpy() < cut) | ~mine))

    detector = MissingEdgeDetector()
    assert detector.detect(view).alarm_ns is None
    detection = detector.detect(alter(healthy, {"spans": stopped}))
    assert detection.alarm_ns is not None
    assert cut < detection.alarm_ns < cut + 15 * SECOND
    assert (detection.evidence[0].service, detection.evidence[0].subject) == ("search", "calls to geo")


def test_failures_beyond_the_healthy_share_are_reported(example, faulty) -> None:
    detection = TraceErrorsDetector().detect(example.view(faulty))
    label = example.label(faulty)
    assert detection.alarm_ns is not None
    assert detection.alarm_ns > label.inject_start_ns
    assert detection.evidence[0].service == label.targets[0]


@pytest.mark.parametrize(("seconds", "expected"), [(1, False), (3, False), (5, True)])
def test_failures_within_three_seconds_raise_no_alarm_and_those_of_more_do(
    example, alter, healthy, seconds: int, expected: bool
) -> None:
    view = example.view(healthy)
    assert view.context.resolution_s == 1.0
    start = view.window[0] + 70 * SECOND
    service = sorted(view.services)[0]

    def failing(rows: pa.Table) -> pa.Table:
        ended = rows["time"].cast("int64").to_numpy() + rows["duration_ns"].to_numpy()
        hit = (ended >= start) & (ended < start + seconds * SECOND)
        hit &= np.array(rows["service"].to_pylist()) == service
        assert hit.sum() >= 2 * seconds
        states = np.where(hit, "error", np.array(rows["status"].to_pylist(), dtype=object))
        position = rows.schema.get_field_index("status")
        return rows.set_column(
            position, rows.schema.field(position), pa.array(states.tolist(), rows.schema.field(position).type)
        )

    detection = TraceErrorsDetector().detect(alter(healthy, {"spans": failing}))
    assert (detection.alarm_ns is not None) is expected
    if detection.alarm_ns is not None:
        assert detection.alarm_ns == start + 5 * SECOND
        assert detection.evidence[0].service == service
