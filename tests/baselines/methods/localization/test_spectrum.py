"""Methods on traces, for requests with explicit spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.contract import Ranking
from faultset.baselines.features.abnormal_traces import classify_traces
from faultset.baselines.features.spans import read_spans
from faultset.baselines.methods.localization.spectrum import jaccard, measure_severities, spectrum_scores
from faultset.baselines.registry import get_baseline
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000
MS = 1_000_000
METHODS = ("spectrum", "microrank", "tracerca")
Call = Mapping[str, Any]
Traced = Callable[[list[Call], list[Call]], EpisodeView]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    schema = TABLES["spans"]
    usual = {"reported_service": "x", "kind": "server", "status": "unset", "attributes": "{}", "episode": "e"}
    plain = [{field.name: None for field in schema} | usual | row for row in rows]
    return pa.table({field.name: pa.array([row[field.name] for row in plain], field.type) for field in schema})


def request(number: int, at_ns: int, calls: list[Call]) -> list[dict[str, Any]]:
    """Return the spans of a request in which the frontend calls services in sequence."""
    rows, at = [], at_ns + MS
    for place, call in enumerate(calls):
        client = {"span_id": f"{number:08x}{place:04x}000c", "parent_span_id": f"{number:08x}ffff0000"}
        values = {
            "service": "frontend",
            "peer_service": call["to"],
            "kind": "client",
            "status": call.get("status", "unset"),
        }
        rows.append(client | values | {"time": at, "operation": call["to"], "duration_ns": call["ms"] * MS})
        if call.get("answers", True):
            rows.append({
                "span_id": f"{number:08x}{place:04x}000d",
                "parent_span_id": client["span_id"],
                "service": call["to"],
                "pod": call.get("pod", f"{call['to']}-1"),
                "time": at,
                "operation": f"serve {number}",
                "duration_ns": call["ms"] * MS,
                "status": call.get("status", "unset"),
            })  # fmt: skip
        at += call["ms"] * MS
    root = {"span_id": f"{number:08x}ffff0000", "service": "frontend", "time": at_ns, "operation": "GET /"}
    trace = [*rows, root | {"duration_ns": at + MS - at_ns}]
    return [{"pod": "frontend-1"} | row | {"trace_id": f"{number:032x}"} for row in trace]


@pytest.fixture
def traced(faulty, alter) -> Traced:
    """Build a view whose requests cycle through one list of calls when healthy and another since the alarm."""

    def build(healthy: list[Call], suffering: list[Call]) -> EpisodeView:
        def edit(rows: pa.Table) -> pa.Table:
            start = rows["time"].cast("int64").to_numpy().min() // SECOND * SECOND
            spans = []
            for number in range(200):
                calls = healthy if number < 100 else suffering
                jitter = number % 3
                each: list[Call] = [{**call, "ms": call["ms"] + jitter} for call in calls[number % 2 :: 2]]
                spans += request(number, int(start) + number * SECOND // 2, each)
            return table_of(spans)

        return alter(faulty, {"spans": edit})

    return build


def calls(**changed: Mapping[str, Any]) -> list[Call]:
    usual: list[Call] = [{"to": name, "ms": 20} for name in ("geo", "rate", "profile", "search")]
    return [call | changed.get(call["to"], {}) for call in usual]


def asked(view: EpisodeView, name: str) -> Ranking:
    onset = view.reference[1] + (view.window[1] - view.reference[1]) // 2
    return get_baseline(name).build().localize(view, onset)  # type: ignore[union-attr]


def first(view: EpisodeView, name: str) -> str:
    ranking = asked(view, name)
    return ranking.ordered[0] if ranking.ordered else ""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "changed",
    [{"ms": 400}, {"status": "error"}, {"status": "error", "answers": False}],
    ids=["slow", "failing", "without an answer"],
)
def test_the_service_whose_calls_go_wrong_is_first(method: str, changed: Mapping[str, Any], traced) -> None:
    assert first(traced(calls(), calls(geo=changed)), method) == "geo"
    assert first(traced(calls(), calls(rate=changed)), method) == "rate"


def replicas(**changed: Any) -> list[Call]:
    """Return requests that alternate between the two pods of geo."""
    return [
        {"to": "geo", "ms": 20, "pod": "geo-1"},
        {"to": "geo", "ms": 20, "pod": "geo-2", **changed},
        {"to": "rate", "ms": 20},
        {"to": "rate", "ms": 20},
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("changed", [{"ms": 400}, {"status": "error"}], ids=["slow", "failing"])
def test_the_faulty_pod_ranks_above_its_replica(method: str, changed: Mapping[str, Any], traced) -> None:
    ranking = asked(traced(replicas(), replicas(**changed)), method)
    assert max(ranking.pods, key=lambda pod: ranking.pods[pod]) == "geo-2"
    assert ranking.pods["geo-2"] > 1.5 * ranking.pods.get("geo-1", 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_pods_stand_where_their_services_do_if_each_has_but_one(method: str, traced) -> None:
    gone = {"status": "error", "answers": False}
    ranking = asked(traced(calls(), calls(geo=gone, rate={"ms": 60})), method)
    assert {pod.removesuffix("-1"): score for pod, score in ranking.pods.items()} == pytest.approx(ranking.scores)


def test_a_call_without_an_answer_speaks_against_no_pod_where_there_are_several(traced) -> None:
    gone = {"status": "error", "answers": False}
    ranking = asked(traced(replicas(), replicas(**gone)), "tracerca")
    assert ranking.ordered[0] == "geo"
    assert "geo-2" not in ranking.pods


@pytest.mark.parametrize("method", METHODS)
def test_the_method_abstains_without_a_change(method: str, traced) -> None:
    assert first(traced(calls(), calls()), method) == ""


@pytest.mark.parametrize("method", METHODS)
def test_a_usual_failure_does_not_count(method: str, traced) -> None:
    usual = {"status": "error"}
    assert first(traced(calls(profile=usual), calls(profile=usual, geo={"ms": 400})), method) == "geo"


def test_a_spectrum_without_counts_is_nought() -> None:
    nothing = np.zeros(2)
    for formula in ("ochiai", "dstar2"):
        assert spectrum_scores(nothing, nothing, nothing, formula).tolist() == [0, 0]


def test_calls_without_an_answer_count_for_the_service_called(traced) -> None:
    spans = read_spans(traced(calls(), calls(geo={"answers": False})))
    result = spans.calls
    geo = spans.names.index("geo")
    lost = (result.callee == geo) & (spans.service[result.row] != geo)
    assert lost.sum() == 50
    assert (spans.trace[result.row[lost]] >= 100).all()


def test_numbers_in_span_names_are_no_operations_of_their_own(traced) -> None:
    spans = read_spans(traced(calls(), calls()))
    assert "serve #" in spans.operations
    assert len(spans.operations) == 6


def test_a_trace_is_too_long_beyond_what_its_operations_explain(traced) -> None:
    view = traced(calls(), calls(search={"ms": 60}))
    spans = read_spans(view)
    health = classify_traces(spans, view.reference[1], int(spans.start_ns.min()) + 50 * SECOND)
    assert health.in_test_window.sum() == 100
    # Every second request calls search.
    assert health.abnormal.sum() == 50
    assert not (health.abnormal & ~health.in_test_window).any()


def test_jaccard_of_support_and_confidence_as_computed_by_hand() -> None:
    with_set, all_with = np.array([4.0, 4.0, 1.0]), np.array([5.0, 10.0, 4.0])
    support, confidence = with_set / 4, with_set / all_with
    harmonic = 2 * support * confidence / (support + confidence)
    np.testing.assert_allclose(harmonic, [0.8889, 0.5714, 0.25], atol=5e-5)
    np.testing.assert_allclose(jaccard(with_set, 4.0, all_with), harmonic / (2 - harmonic))
    np.testing.assert_allclose(jaccard(with_set, 4.0, all_with), [0.8, 0.4, 0.1429], atol=5e-5)


def test_a_drop_is_as_severe_as_a_rise() -> None:
    values = np.array([10.0, 12.0, 8.0, 10.0, 30.0, -10.0])
    result = measure_severities(values, np.zeros(6, dtype=int), np.arange(6) < 4)
    assert result[4] == pytest.approx(result[5])
    assert result[4] > 3


def test_a_constant_kind_of_call_does_not_fire_at_its_usual_value() -> None:
    result = measure_severities(np.full(5, 7.0), np.zeros(5, dtype=int), np.arange(5) < 3)
    assert result.tolist() == [0] * 5
