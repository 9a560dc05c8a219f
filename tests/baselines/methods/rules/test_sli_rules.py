"""Rules on client requests."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from faultset.baselines.methods.rules.sli_rules import (
    SLIRule,
    SLIRuleDetector,
    classify_requests,
    measure_depths,
    ochiai,
)

SECOND = 1_000_000_000


def test_depth_is_the_longest_way_from_the_entry_and_cycles_end() -> None:
    calls = [("front", "search"), ("search", "geo"), ("front", "geo"), ("geo", "front")]
    assert measure_depths(calls, "front") == {"front": 0, "search": 1, "geo": 2}


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
    start = example.view(faulty).window[0]

    def traces(rows: pa.Table) -> pa.Table:
        result = []
        for number in range(100):
            operation, callees = (("GET /a", ["geo"]), ("GET /b", ["rate"]))[number % 2]
            for place, service in enumerate(["frontend", "search", *callees]):
                result.append({
                    "episode": "e", "time": start + number * SECOND // 4, "trace_id": f"t{number}",
                    "span_id": f"s{number}-{place}", "parent_span_id": None if place == 0 else f"s{number}-0",
                    "service": service, "operation": operation if place == 0 else "x", "duration_ns": 5,
                })  # fmt: skip
        return pa.Table.from_pylist(result, schema=nullable(rows.schema))

    def clients(rows: pa.Table) -> pa.Table:
        result = []
        for number in range(480):
            at = start + number * SECOND // 4
            bad = number % 2 == 0 and number > 280
            result.append({
                "episode": "e", "scheduled": at, "sent": at, "endpoint": ("GET /a", "GET /b")[number % 2],
                "latency_ns": 10**7, "status": 500 if bad else 200, "outcome": "http_error" if bad else "ok",
            })  # fmt: skip
        return pa.Table.from_pylist(result, schema=nullable(rows.schema))

    view = alter(faulty, {"spans": traces, "requests": clients})
    ranking = SLIRule().localize(view, start + 75 * SECOND)
    assert ranking.ordered[:3] == ("geo", "search", "frontend")
    assert "rate" not in ranking.scores
