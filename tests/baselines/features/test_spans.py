"""Calls between services, with and without missing spans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.features.abnormal_traces import span_limits
from faultset.baselines.features.spans import (
    Spans,
    _build_spans,
    attribute_spans,
    exclusive_durations,
)
from faultset.datasets.format.schemas import TABLES

SECOND = 1_000_000_000
REQUEST = (
    ("front", "GET /", None),
    ("front", "to geo", "GET /"),
    ("geo", "near", "to geo"),
    ("geo", "query", "near"),
)
"""(service, operation, operation of the parent)"""


def request(number: int, missing: str | None = None) -> list[dict[str, Any]]:
    """Return the spans of a request without those of one operation."""
    return [
        {
            "time": number * SECOND + place,
            "trace_id": f"{number:032x}",
            "span_id": f"{number}-{operation}",
            "parent_span_id": None if above is None else f"{number}-{above}",
            "service": service,
            "operation": operation,
            "duration_ns": 10 - place,
        }
        for place, (service, operation, above) in enumerate(REQUEST)
        if operation != missing
    ]


def spans_of(rows: list[dict[str, Any]]) -> Spans:
    schema = TABLES["spans"]
    table = pa.table({field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema})
    return _build_spans(table, ("front", "geo"), lambda: table["attributes"])


def calls_of(rows: list[dict[str, Any]]) -> list[tuple[str | None, str, str]]:
    """Return (caller, called service, operation) of each call of the last request."""
    spans = spans_of(rows)
    calls = spans.calls
    return sorted(
        (spans.names[caller] if caller >= 0 else "", spans.names[callee], spans.operations[operation])
        for row, caller, callee, operation in zip(calls.row, calls.caller, calls.callee, calls.operation, strict=True)
        if spans.trace[row] == spans.traces - 1
    )


def test_a_child_of_a_missing_span_is_a_call_only_if_such_spans_usually_are() -> None:
    complete = [row for number in range(5) for row in request(number)]
    whole = [("", "front", "GET /"), ("front", "geo", "near")]
    assert calls_of(complete) == whole
    # A query never enters geo.
    assert calls_of([*complete, *request(5, "near")]) == [("", "front", "GET /")]
    # The usual grandparent is the caller.
    assert calls_of([*complete, *request(5, "to geo")]) == whole
    assert calls_of(request(5, "to geo")) == [("", "front", "GET /")]
    assert calls_of([*complete, *request(5, "GET /")]) == [("front", "geo", "near")]


@pytest.mark.parametrize(
    "attributes",
    ['{"net.peer.name": "geo.shop.svc:8083"}', '{"rpc.service": "hotel.Geo"}', '{"url.full": "http://geo:80/near"}'],
)
def test_the_attributes_of_an_unanswered_call_name_the_called_service(attributes: str) -> None:
    front, call, *_ = request(0)
    assert calls_of([front, {**call, "kind": "client", "attributes": attributes}]) == [
        ("", "front", "GET /"),
        ("front", "geo", "to geo"),
    ]


def test_an_unanswered_call_goes_where_all_calls_by_that_operation_go() -> None:
    answered: list[dict[str, Any]] = [
        row | {"kind": "client" if row["operation"] == "to geo" else None} for row in request(0)
    ]
    unanswered = [row | {"time": row["time"] + SECOND, "trace_id": "f" * 32} for row in answered[:2]]
    for row in unanswered:
        row["span_id"] += "f"
        row["parent_span_id"] = row["parent_span_id"] and row["parent_span_id"] + "f"
    assert calls_of([*answered, *unanswered]) == [("", "front", "GET /"), ("front", "geo", "near")]


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


def test_parents_are_looked_up_within_their_trace() -> None:
    parent, stranger = {**request(0)[0], "span_id": "a"}, {**request(1)[0], "span_id": "b"}
    child = {**request(0)[1], "parent_span_id": "a"}
    lost = {**request(1)[1], "parent_span_id": "a"}
    assert spans_of([parent, child, stranger, lost]).parent.tolist() == [-1, 0, -1, -1]


def test_a_call_without_an_answer_is_about_the_service_that_was_called() -> None:
    calls = [{**row, "peer_service": "geo" if row["operation"] == "to geo" else None} for row in request(0)]
    answered, alone = spans_of(calls), spans_of(calls[:2])
    assert [answered.names[code] for code in attribute_spans(answered)] == ["front", "front", "geo", "geo"]
    assert [alone.names[code] for code in attribute_spans(alone)] == ["front", "geo"]


def test_constant_operation_is_not_slow_by_being_constant() -> None:
    durations = np.array([5.0, 5, 5, 5, 5.7, 5.8])
    result = durations > span_limits(np.zeros(6, dtype=np.int64), durations, np.arange(6) < 4, sigmas=3.0)
    assert result.tolist() == [False] * 5 + [True]


def test_a_lost_span_adds_nothing_to_the_time_that_the_span_above_it_spends_itself() -> None:
    complete = [row for number in range(5) for row in request(number)]
    own_ns = {}
    for missing in (None, "to geo"):
        spans = spans_of([*complete, *request(5, missing)])
        own_ns[missing] = spans.own_ns[(spans.trace == 5) & (spans.service == 0)][0]
    assert own_ns[None] <= own_ns["to geo"] <= own_ns[None] + 1


def test_a_span_of_another_branch_does_not_adopt_a_span_without_a_parent() -> None:
    complete = [row for number in range(5) for row in request(number)]
    other = request(5, "to geo")
    other.append(
        {**other[0], "span_id": "5-other", "operation": "other", "time": other[0]["time"] + 1, "duration_ns": 9}
    )
    spans = spans_of([*complete, *other])
    (near,) = [row for row in range(len(spans)) if spans.trace[row] == 5 and spans.orphan[row]]
    assert spans.operations[spans.operation[spans.parent[near]]] == "GET /"
