"""Fetching telemetry of a past window from monitoring servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from faultset.collector.monitoring import servers
from faultset.collector.monitoring.servers import (
    Selection,
    Servers,
    check_window,
    fetch_answers,
    fetch_jaeger_traces,
    fetch_log_lines,
    fetch_metrics,
    fetch_objects,
    fetch_tempo_traces,
)
from faultset.collector.monitoring.spool import Spool, SpooledEndpoint
from faultset.collector.platforms.kubernetes.telemetry import endpoints
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, UrlEndpoint
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.datasets import open_dataset, verify
from faultset.datasets.imports.telemetry.run import TelemetryOptions, import_telemetry
from tests.collector.platforms.kubernetes.conftest import Broken, Refused

ReadAnswers = Callable[[Spool, str], list[Any]]
T0 = 1_700_000_000


def _nothing(share: float) -> None:
    assert 0 <= share <= 1


def _lines(answers: list[Any]) -> list[str]:
    return sorted(line for answer in answers for stream in answer["data"]["result"] for _, line in stream["values"])


def test_pages_of_log_lines_hold_each_line_once(
    endpoint: Any, spool: Spool, selection: Selection, read_answers: ReadAnswers, sample_view: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(servers, "LINES_PER_PAGE", 300)
    count = fetch_log_lines(SpooledEndpoint(endpoint, spool), selection, _nothing)
    assert count == len(sample_view.logs())
    assert _lines(read_answers(spool, "logs")) == sorted(sample_view.logs()["message"])


def test_more_lines_in_an_instant_than_a_page_holds_are_refused(
    endpoint: Any, spool: Spool, selection: Selection, monkeypatch: Any
) -> None:
    monkeypatch.setattr(servers, "LINES_PER_PAGE", 1)
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


_MS = 1_000_000


def _rows(frame: pd.DataFrame, columns: list[str]) -> list[Any]:
    return sorted(frame[columns].astype(object).where(frame[columns].notna(), None).itertuples(index=False), key=str)


def test_a_served_episode_is_recorded_as_it_was(
    endpoint: Any, spool: Spool, selection: Selection, sample_view: Any, tmp_path: Path
) -> None:
    spooled = SpooledEndpoint(endpoint, spool)
    for fetch in (fetch_metrics, fetch_jaeger_traces, fetch_log_lines):
        fetch(spooled, selection, lambda share: None)
    options = TelemetryOptions(window=sample_view.window, redact=False)
    import_telemetry(spool.data_folders, tmp_path / "out", options, workers=1)
    assert not [finding for finding in verify(tmp_path / "out") if finding.severity == "error"]
    dataset = open_dataset(tmp_path / "out")
    view = dataset[dataset.episodes[0]].view
    assert view.window == sample_view.window
    metrics = ["time", "service", "pod", "container", "metric", "labels", "kind", "value"]
    assert _rows(view.metrics(), metrics) == _rows(sample_view.metrics(), metrics)
    ours, theirs = view.spans(), sample_view.spans()
    for frame in (ours, theirs):
        # Jaeger counts microseconds
        frame["time"] = frame["time"].dt.floor("us")
        frame["duration_ns"] = frame["duration_ns"] // 1000
    spans = ["time", "trace_id", "span_id", "parent_span_id", "service", "pod", "peer_service", "operation", "kind"]
    spans += ["duration_ns", "status", "status_code", "attributes"]
    assert _rows(ours, spans) == _rows(theirs, spans)
    logs = ["time", "service", "pod", "container", "level", "message", "trace_id", "span_id"]
    assert _rows(view.logs(), logs) == _rows(sample_view.logs(), logs)


@pytest.fixture(autouse=True)
def _short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "FIRST_RETRY_TIMEOUT_S", 1.5)


def _fetch(folder: Path, url: str, **options: Any) -> Any:
    selection = Selection(start_ns=10**18, end_ns=10**18 + 60 * 10**9, log_selector='{app="x"}')
    return fetch_answers(Servers(loki=url), selection, folder, requests_per_s=1000, **options)


def _answers(*answers: Any) -> Callable[..., Any]:
    """Return a handler that returns or raises one response after another, then empty ones."""
    remaining = list(answers)

    def answer(method: str, path: str, params: Any, body: bytes) -> Any:
        if path == "/loki/api/v1/labels":
            return {"status": "success", "data": ["app"]}
        item = remaining.pop(0) if remaining else {"status": "success", "data": {"resultType": "streams", "result": []}}
        if isinstance(item, Exception):
            raise item
        return item

    return answer


_LINE = {"status": "success", "data": {"resultType": "streams", "result": [{"stream": {}, "values": [["1", "x"]]}]}}


@pytest.mark.parametrize("refusal", [Refused(429, b"slow down"), Refused(500, b"oops"), Refused(503, b"starting")])
def test_busy_servers_are_asked_again(serve: Any, tmp_path: Path, refusal: Exception) -> None:
    server = serve(_answers(refusal, _LINE))
    assert [folder.name for folder in _fetch(tmp_path / "answers", server.url)] == ["logs"]


def test_half_an_answer_is_requested_again_in_parts(serve: Any, tmp_path: Path) -> None:
    server = serve(_answers(Broken(b'{"status":"success","data":{'), _LINE))
    _fetch(tmp_path / "answers", server.url)
    windows = [int(params["end"][0]) - int(params["start"][0]) for path, params in server.requests if "query" in path]
    assert windows[:2] == [60 * 10**9, 30 * 10**9]


def test_a_login_page_is_named(serve: Any, tmp_path: Path) -> None:
    server = serve(_answers(*[Refused(200, b"<html>login</html>")] * 50))
    with pytest.raises(PlatformError, match=r"Loki at .* sent a web page for .*'<html>login</html>'.*login"):
        _fetch(tmp_path / "answers", server.url)


def test_servers_that_stay_busy_are_named(serve: Any, tmp_path: Path) -> None:
    server = serve(_answers(*[Refused(429, b"slow down")] * 50))
    with pytest.raises(PlatformError, match=r"Loki at http://127.0.0.1:\d+ responded to .* with status 429: slow down"):
        _fetch(tmp_path / "answers", server.url)


def test_wrong_credentials_name_the_remedy(serve: Any, tmp_path: Path) -> None:
    server = serve(_answers(Refused(401, b"no")))
    with pytest.raises(PlatformError, match=r"rejects the credentials.*FAULTSET_LOKI_TOKEN"):
        _fetch(tmp_path / "answers", server.url)


def test_credentials_and_tenant_are_sent_but_not_written(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(_answers(_LINE))
    monkeypatch.setenv("FAULTSET_LOKI_TOKEN", "secret-token")
    selection = Selection(start_ns=10**18, end_ns=10**18 + 10**9)
    url = server.url.replace("://", "://user:password@")
    fetch_answers(Servers(loki=url, tenant="t1"), selection, tmp_path / "answers", requests_per_s=1000)
    assert server.headers[0]["Authorization"] == "Bearer secret-token"
    assert server.headers[0]["X-Scope-OrgID"] == "t1"
    request = json.loads((tmp_path / "answers" / "request.json").read_text())
    assert request["servers"]["loki"] == server.url


def test_the_rate_limits_repetitions_too(serve: Any, tmp_path: Path) -> None:
    server = serve(_answers(Refused(429, b"slow"), _LINE))
    selection = Selection(start_ns=10**18, end_ns=10**18 + 10**9)
    started_s = time.monotonic()
    fetch_answers(Servers(loki=server.url), selection, tmp_path / "answers", requests_per_s=10)
    assert time.monotonic() - started_s >= (len(server.requests) - 1) / 10
    assert len(server.requests) >= 3


def test_an_empty_window_is_an_error(serve: Any, tmp_path: Path) -> None:
    server = serve(_answers())
    with pytest.raises(DataError, match=r"no telemetry \(0 log lines at Loki at .*check the times"):
        _fetch(tmp_path / "answers", server.url)


@pytest.mark.parametrize(
    ("window", "message"),
    [((5, 5), "--to must be after"), ((5, 99), "in the future"), ((0, 40 * 86_400 * 10**9), "at most 31 days")],
)
def test_impossible_windows_are_refused(window: tuple[int, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_window(*window, now_ns=50 if window[1] < 100 else 10**18)


def test_addresses_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to record from"):
        fetch_answers(Servers(), Selection(start_ns=0, end_ns=1), tmp_path / "a", requests_per_s=1)
    with pytest.raises(UsageError, match="--loki must be a URL"):
        fetch_answers(Servers(loki="x/y:1"), Selection(start_ns=0, end_ns=1), tmp_path / "b", requests_per_s=1)
    with pytest.raises(UsageError, match="must be a URL such as"):
        UrlEndpoint("ftp://x", kind="Loki")
