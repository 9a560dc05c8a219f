"""Both variants of Nezha on requests with explicit events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.contract import Ranking
from faultset.baselines.features.events import (
    CALL,
    RETURN,
    build_code_events,
    build_span_events,
    find_client_spans,
    read_log_events,
)
from faultset.baselines.features.metric_alarms import MetricAlarm
from faultset.baselines.features.spans import read_spans
from faultset.baselines.methods.localization.nezha import follows_lost, measure_depths_of_spans
from faultset.baselines.registry import get_baseline
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000
MS = 1_000_000
BOTH = ("nezha", "nezha-patterns")
Step = str | tuple[Any, ...]
"""A log line, or a call: service and what happens in it."""


Requests = Callable[[int], Sequence[Step]]
Acted = Callable[..., EpisodeView]


class Act:
    """Builds the spans and log lines of requests with a clock."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.logs: list[dict[str, Any]] = []

    def request(self, number: int, at_ns: int, steps: Sequence[Any], pace: dict[str, int] | bool | None) -> None:
        self.number, self.clock, self.count = number, at_ns, 0
        self.pace: dict[str, int] = pace if isinstance(pace, dict) else {}
        self._run("frontend", "GET /", None, steps, "server", None)

    def _run(
        self, service: str, operation: str, parent: str | None, steps: Sequence[Any], kind: str, peer: Any
    ) -> None:
        self.count += 1
        span = f"{self.number:010x}{self.count:06x}"
        start = self.clock
        status = "unset"
        for step in steps:
            if kind != "client":
                self.clock += self.pace.get(service, 1) * MS
            if isinstance(step, str):
                if step == "!":
                    status = "error"
                    continue
                self.logs.append({"time": self.clock, "service": service, "message": step, "span_id": span})
            elif kind == "client" or step[0] == service:
                self._run(step[0], f"{step[0]}.work", span, step[1:], "server", None)
            else:
                self._run(service, f"to {step[0]}", span, [] if step[1:] == ("gone",) else [step], "client", step[0])
        self.clock += MS // 10
        self.spans.append({
            "time": start,
            "trace_id": f"{self.number:032x}",
            "span_id": span,
            "parent_span_id": parent,
            "service": service,
            "reported_service": service,
            "pod": f"{service}-{self.number % 2}",
            "peer_service": peer,
            "operation": operation,
            "kind": kind,
            "duration_ns": self.clock - start,
            "status": status,
            "attributes": "{}",
        })  # fmt: skip


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = TABLES[name]
    usual = {"episode": "e", "pod": "p", "container": "c", "message": ""}
    plain = [{field.name: None for field in schema} | usual | row for row in rows]
    return pa.table({field.name: pa.array([row[field.name] for row in plain], field.type) for field in schema})


@pytest.fixture
def acted(faulty, example, alter) -> Acted:
    """Build a view with two requests per second, which may differ from `ALARM_S` on."""
    start_ns = example.view(faulty).window[0]

    def build(healthy: Requests, suffering: Requests, pace: dict[str, int] | None = None, **others: Any) -> EpisodeView:
        act = Act()
        for number in range(230):
            bad = number >= 2 * ALARM_S
            act.request(number, start_ns + number * SECOND // 2, (suffering if bad else healthy)(number), bad and pace)
        edits = {"spans": lambda rows: table("spans", act.spans), "logs": lambda rows: table("logs", act.logs)}
        return alter(faulty, {"metrics": lambda rows: rows.slice(0, 0), **edits, **others})

    return build


ALARM_S = 60


def asked(method: str, view: EpisodeView) -> Ranking:
    return get_baseline(method).build().localize(view, view.window[0] + ALARM_S * SECOND)  # type: ignore[union-attr]


def usual(number: int) -> Sequence[Any]:
    """Return a request of search to geo, which has an internal span; every third request also reads a profile."""
    geo = ("geo", "geo.go:1 > in", ("geo", "db.go:5 > query"), "geo.go:9 > out")
    profile = [("profile", "profile.go:1 > read")] if number % 3 == 0 else []
    return [("search", "search.go:1 > asked", geo, "search.go:2 > found"), *profile, "front.go:7 > served"]


def with_geo(*steps: Any) -> Requests:
    return lambda number: [
        ("search", "search.go:1 > asked", ("geo", *steps), "search.go:2 > found"),
        *usual(number)[1:],
    ]


CHANGES = {
    "a line that is gone": with_geo("geo.go:1 > in", ("geo", "db.go:5 > query")),
    "another line instead": with_geo("geo.go:1 > in", ("geo", "db.go:5 > query"), "geo.go:12 > nothing near"),
    "work that is left out": with_geo("geo.go:1 > in", "geo.go:9 > out"),
    "an early end with an error": with_geo("geo.go:1 > in", "!"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_service_whose_events_follow_otherwise_is_first(change: str, acted) -> None:
    assert asked("nezha-patterns", acted(usual, CHANGES[change])).ordered[0] == "geo"


@pytest.mark.parametrize("change", ["a line that is gone", "another line instead"])
def test_nezha_locates_a_lost_pattern(change: str, acted) -> None:
    assert asked("nezha", acted(usual, CHANGES[change])).ordered[0] == "geo"


def test_the_answer_names_the_pattern_and_what_was_usual(acted) -> None:
    ranking = asked("nezha-patterns", acted(usual, CHANGES["another line instead"])).evidence[0]
    assert ranking.service == "geo"
    assert ranking.subject == "log geo.go:1 -> log geo.go:12, usually log geo.go:9"
    assert ranking.detail == "0 of 96 times in the reference, 110 of 110 since the alarm"


@pytest.mark.parametrize("method", BOTH)
def test_the_method_abstains_without_a_change(method: str, acted) -> None:
    assert asked(method, acted(usual, usual)).abstains


def test_the_pod_with_changed_events_ranks_above_its_replica(acted) -> None:
    def half(number: int) -> Sequence[Any]:
        return (CHANGES["another line instead"] if number % 2 else usual)(number)

    ranking = asked("nezha-patterns", acted(usual, half))
    assert ranking.ordered[0] == "geo"
    assert set(ranking.pods) == {"geo-1"}
    assert ranking.pods["geo-1"] == pytest.approx(ranking.scores["geo"])


@pytest.mark.parametrize("method", BOTH)
def test_other_requests_are_no_change_of_what_called_services_do(method: str, acted) -> None:
    def others(number: int) -> Sequence[Any]:
        profile = ("profile", "profile.go:1 > read")
        return [profile, "front.go:7 > served"] if number % 10 else usual(number)

    assert set(asked(method, acted(usual, others)).ordered) <= {"frontend"}


def test_who_only_reacts_counts_less_than_who_changed_first(acted) -> None:
    def failing(number: int) -> Sequence[Any]:
        return [("search", "search.go:1 > asked", ("geo", "geo.go:1 > in", "!"), "search.go:4 > no answer", "!"), "!"]

    scores = asked("nezha-patterns", acted(usual, failing)).scores
    assert scores["geo"] > 5 * scores.get("search", 0.0)
    assert scores["geo"] > 5 * scores.get("frontend", 0.0)


def test_a_service_that_does_not_answer_is_blamed_though_it_sends_nothing(acted) -> None:
    def lost(number: int) -> Sequence[Any]:
        return [("search", "search.go:1 > asked", ("geo", "gone"), "search.go:2 > found"), *usual(number)[1:]]

    ranking = asked("nezha-patterns", acted(usual, lost))
    assert ranking.ordered == ("geo",)
    assert "response from geo geo.work with an error" in ranking.evidence[0].subject


@pytest.mark.parametrize("slow", ["geo", "search", "profile"])
def test_slow_code_differs_from_waiting_for_it(slow: str, acted) -> None:
    ranking = asked("nezha-patterns", acted(usual, usual, pace={slow: 50}))
    assert ranking.ordered == (slow,)
    assert ranking.evidence[0].subject == "slow code"


def test_a_metric_far_from_its_reference_speaks_against_its_service(acted, faulty, example) -> None:
    start_ns = example.view(faulty).window[0]

    def raise_cpu(rows: pa.Table) -> pa.Table:
        time = rows["time"].cast("int64").to_numpy()
        service = np.array(rows["service"].to_pylist(), dtype=object)
        metric = np.array(rows["metric"].to_pylist(), dtype=object)
        hit = (service == "rate") & (metric == "container_cpu_usage_seconds_total")
        late = np.maximum(0, time - start_ns - ALARM_S * SECOND) / SECOND
        value = np.where(hit, time / SECOND % 1e6 * 0.1 + 3 * late, 1.0)
        keep = metric == "container_cpu_usage_seconds_total"
        index = rows.schema.get_field_index("value")
        return rows.set_column(index, "value", pa.array(value)).filter(pa.array(keep))

    ranking = asked("nezha-patterns", acted(usual, usual, metrics=raise_cpu))
    assert ranking.ordered == ("rate",)
    assert set(ranking.metrics) == {("rate", "container_cpu_usage_seconds_total")}
    assert ranking.pods == {}


def test_a_metric_of_a_service_speaks_against_its_pods_alike(acted, monkeypatch) -> None:
    alarm = MetricAlarm(service="geo", metric="cpu", share=1.0, z=9.0)
    monkeypatch.setattr(
        "faultset.baselines.methods.localization.nezha.find_metric_alarms", lambda episode, alarm_ns: [alarm]
    )
    ranking = asked("nezha-patterns", acted(usual, usual))
    assert ranking.ordered == ("geo",)
    assert ranking.pods == dict.fromkeys(("geo-0", "geo-1"), pytest.approx(ranking.scores["geo"] / 2))


def test_events_of_calls_carry_the_name_that_the_called_service_uses(acted) -> None:
    view = acted(usual, usual)
    spans = read_spans(view)
    logs = read_log_events(view, spans)
    clients = find_client_spans(spans, logs)
    assert clients.is_client.sum() == (np.array(spans.operations)[spans.operation] == "to geo").sum() * 2 + sum(
        number % 3 == 0 for number in range(230)
    )
    events = build_code_events(spans, logs, clients)
    texts = {events.text(int(row)) for row in np.flatnonzero(np.isin(events.kind, (CALL, RETURN)))}
    assert "call geo geo.work" in texts
    assert "response from search search.work" in texts
    assert not any(" to " in text for text in texts)


def test_events_of_a_span_are_in_order_and_end_last(acted) -> None:
    view = acted(usual, usual)
    spans = read_spans(view)
    events = build_span_events(spans, read_log_events(view, spans))
    assert len(events) == 2 * len(spans) + len(view.logs())
    same = np.diff(events.span) == 0
    assert (np.diff(events.time_ns)[same] >= 0).all()
    assert measure_depths_of_spans(spans).max() == 5


def test_lost_patterns_that_follow_on_a_lost_one_are_left_out() -> None:
    source, target = np.array([1, 2, 3]), np.array([2, 3, 4])
    assert follows_lost(source, target, np.array([0.8, 1.0, 1.0])).tolist() == [False, False, True]
