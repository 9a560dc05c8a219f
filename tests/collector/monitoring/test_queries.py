"""Everything in the window is fetched once, in pages, and an interrupted recording continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from faultset.collector.monitoring import queries
from faultset.collector.monitoring.queries import (
    Selection,
    fetch_jaeger_traces,
    fetch_log_lines,
    fetch_metrics,
    fetch_objects,
    fetch_tempo_traces,
)
from faultset.collector.monitoring.spool import Spool, SpooledEndpoint
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.core.errors import PlatformError

ReadAnswers = Callable[[Spool, str], list[Any]]
T0 = 1_700_000_000


def _nothing(share: float) -> None:
    assert 0 <= share <= 1


def _lines(answers: list[Any]) -> list[str]:
    return sorted(line for answer in answers for stream in answer["data"]["result"] for _, line in stream["values"])


def test_pages_of_log_lines_hold_each_line_once(
    endpoint: Any, spool: Spool, selection: Selection, read_answers: ReadAnswers, sample_view: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(queries, "LINES_PER_PAGE", 300)
    count = fetch_log_lines(SpooledEndpoint(endpoint, spool), selection, _nothing)
    assert count == len(sample_view.logs())
    assert _lines(read_answers(spool, "logs")) == sorted(sample_view.logs()["message"])


def test_more_lines_in_an_instant_than_a_page_holds_are_refused(
    endpoint: Any, spool: Spool, selection: Selection, monkeypatch: Any
) -> None:
    monkeypatch.setattr(queries, "LINES_PER_PAGE", 1)
    with pytest.raises(PlatformError, match="within a nanosecond"):
        fetch_log_lines(SpooledEndpoint(endpoint, spool), selection, _nothing)


def test_without_a_namespace_all_streams_are_fetched(
    endpoint: Any, spool: Spool, selection: Selection, sample_view: Any
) -> None:
    everything = replace(selection, namespace=None)
    assert fetch_log_lines(SpooledEndpoint(endpoint, spool), everything, _nothing) == len(sample_view.logs())
    assert fetch_log_lines(SpooledEndpoint(endpoint, spool), replace(selection, namespace="x"), _nothing) == 0


def test_metrics_are_chosen_by_role_and_matchers(
    endpoint: Any, spool: Spool, selection: Selection, read_answers: ReadAnswers
) -> None:
    chosen = replace(selection, roles=("cpu",), matchers='service="geo"')
    assert fetch_metrics(SpooledEndpoint(endpoint, spool), chosen, _nothing) > 2
    series = [
        row["metric"]
        for answer in read_answers(spool, "metrics")
        if "result" in answer["data"]
        for row in answer["data"]["result"]
    ]
    assert {labels["service"] for labels in series} == {"geo"}
    assert all("cpu" in labels["__name__"] for labels in series)


def test_an_interrupted_recording_continues_with_the_next_answer(
    endpoint: Any, spool: Spool, selection: Selection, read_answers: ReadAnswers
) -> None:
    def fetch(until: int | None) -> None:
        endpoint.requests.clear()

        def die(path: str) -> None:
            if until is not None and len(endpoint.requests) > until:
                raise KeyboardInterrupt

        endpoint.before_answer = die
        fetch_jaeger_traces(SpooledEndpoint(endpoint, spool), selection, _nothing)

    with pytest.raises(KeyboardInterrupt):
        fetch(7)
    fetch(None)
    rest = len(endpoint.requests)
    whole = Spool(spool.folder.with_name("whole"), {})
    endpoint.requests.clear()
    fetch_jaeger_traces(SpooledEndpoint(endpoint, whole), selection, _nothing)
    assert rest == len(endpoint.requests) - 7
    assert read_answers(spool, "traces") == read_answers(whole, "traces")


class _Pages(Endpoint):
    """Answers from a function of path and parameters."""

    name = "a server"

    def __init__(self, answer: Callable[[str, Any], Any]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, Any]] = []

    def body(self, path: str, params: Any = None) -> bytes:
        self.requests.append((path, params))
        return json.dumps(self.answer(path, params)).encode()


def test_tempo_is_searched_in_windows_below_its_limit(spool: Spool, read_answers: ReadAnswers) -> None:
    traces = {f"{number:032x}": T0 + number // 30 for number in range(1800)}

    def answer(path: str, params: Any) -> Any:
        if path == "/api/search":
            assert params["q"] == '{resource.k8s.namespace.name="shop"}'
            inside = [key for key, at in traces.items() if int(params["start"]) <= at < int(params["end"])]
            return {"traces": [{"traceID": key} for key in inside[: int(params["limit"])]]}
        return {"batches": [], "id": path.rpartition("/")[2]}

    selection = Selection(start_ns=T0 * 10**9, end_ns=(T0 + 60) * 10**9, namespace="shop")
    assert fetch_tempo_traces(SpooledEndpoint(_Pages(answer), spool), selection, _nothing) == 1800
    assert {item["id"] for item in read_answers(spool, "traces")} == set(traces)
    crowded = dict.fromkeys(traces, T0)
    traces.update(crowded)
    with pytest.raises(PlatformError, match="within a second"):
        fetch_tempo_traces(_Pages(answer), selection, _nothing)


def test_objects_and_events_are_fetched_page_by_page(spool: Spool, read_answers: ReadAnswers) -> None:
    def answer(path: str, params: Any) -> Any:
        is_first = path.endswith("pods") and "continue" not in params
        return {"kind": "List", "items": [{"path": path}], "metadata": {"continue": "next" if is_first else ""}}

    server = _Pages(answer)
    selection = Selection(start_ns=0, end_ns=1, namespace="shop")
    count = fetch_objects(SpooledEndpoint(server, spool, folder="kubernetes"), selection, _nothing)
    assert count == len(read_answers(spool, "kubernetes")) == 8
    assert all("/namespaces/shop/" in path for path, _ in server.requests)
