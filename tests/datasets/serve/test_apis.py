"""The APIs return what the tables hold, up to the current time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from faultset.datasets.serve.jaeger_api import JaegerApi
from faultset.datasets.serve.loki_api import LokiApi
from faultset.datasets.serve.prometheus_api import PrometheusApi
from faultset.datasets.serve.telemetry import ServedTelemetry

START_S = 1_760_000_000
SECOND = 1_000_000_000


def _get(api: Any, resource: str, **parameters: Any) -> Any:
    status, document = api.answer(
        resource, {name.replace("match", "match[]"): [str(value)] for name, value in parameters.items()}
    )
    assert status == 200, document
    return document["data"]


@pytest.fixture
def folder(write_episode: Any, sample: Any, log: Any) -> Any:
    """An episode with three samples, two traces and four lines."""

    def span(trace: int, number: int, at_s: float, service: str, parent: int | None = None, **more: Any) -> Any:
        return {
            "time": START_S * SECOND + round(at_s * SECOND),
            "trace_id": f"{trace:032x}",
            "span_id": f"{number:016x}",
            "parent_span_id": None if parent is None else f"{parent:016x}",
            "service": service,
            "reported_service": service,
            "pod": f"{service}-1",
            "operation": f"GET /{service}",
            "kind": "server",
            "duration_ns": 2 * SECOND,
            "status": "unset",
            "attributes": '{"http.method":"GET","retries":2}',
        } | more

    return write_episode(
        metrics=[sample("up", at_s, 1.0) for at_s in (1, 50, 90)] + [sample("rpc_total", 50, 3.0, "counter")],
        spans=[
            span(1, 1, 10, "front"),
            span(1, 2, 10.5, "geo", parent=1, status="error", status_code=500, duration_ns=SECOND),
            span(2, 3, 60, "front", status_code=0, peer_service="geo"),
        ],
        logs=[
            log(1, "started", level="info"),
            log(20, "GET /geo failed: timeout", level="error", trace_id="ab", span_id="cd"),
            log(20.0000004, "retry", level="error"),
            log(70, "stopped", level="info", pod="geo-2"),
        ],
    )


def test_samples_carry_the_labels_of_pods(folder: Any, served_view: Callable[..., ServedTelemetry]) -> None:
    api = PrometheusApi(served_view(folder))
    labels = {"namespace": "bare", "service": "geo", "pod": "geo-1", "container": "geo"}
    assert _get(api, "query", query="up", time=START_S + 91)["result"] == [
        {
            "metric": {"__name__": "up", **labels, "job": "geo", "instance": "geo-1"},
            "value": [START_S + 91.0, "1"],
        }
    ]
    assert _get(api, "label/__name__/values") == ["rpc_total", "up"]
    assert _get(api, "label/__name__/values", start=START_S, end=START_S + 10) == ["up"]
    assert _get(api, "series", match='{__name__=~"rpc.*"}')[0]["__name__"] == "rpc_total"
    assert _get(api, "metadata")["rpc_total"][0]["type"] == "counter"
    assert _get(api, "targets")["activeTargets"][0]["labels"]["pod"] == "geo-1"


def test_rows_after_the_current_time_are_hidden(folder: Any, served_view: Callable[..., ServedTelemetry]) -> None:
    early = served_view(folder, now_s=15.0)
    assert _get(PrometheusApi(early), "label/__name__/values") == ["up"]
    assert len(_get(PrometheusApi(early), "query", query="up[100s]")["result"][0]["values"]) == 1
    assert [trace["traceID"] for trace in _get(JaegerApi(early), "traces", service="front")] == [f"{1:032x}"]
    assert _get(LokiApi(early), "query_range", query='{app="geo"}')["result"][0]["values"][0][1] == "started"
    assert _get(LokiApi(early), "label/pod/values") == ["geo-1"]
    assert _get(JaegerApi(served_view(folder, now_s=11.8)), "services") == ["geo"]


def test_a_live_episode_is_shifted_to_the_present(folder: Any, served_view: Callable[..., ServedTelemetry]) -> None:
    wall = [2_000_000_000 * SECOND]
    live = served_view(folder, now_s=52.0, live_since_ns=wall[0], wall_ns=lambda: wall[0])
    api = PrometheusApi(live)
    assert _get(api, "query", query="timestamp(rpc_total)")["result"][0]["value"] == [2e9, str(2_000_000_000 - 2)]
    assert len(_get(api, "query", query="up[100s]")["result"][0]["values"]) == 2
    wall[0] += 40 * SECOND
    assert len(_get(api, "query", query="up[100s]")["result"][0]["values"]) == 3
    assert len(_get(JaegerApi(live), "traces", service="front")) == 2


def test_traces_are_whole_and_carry_the_outcome_of_spans(
    folder: Any, served_view: Callable[..., ServedTelemetry]
) -> None:
    api = JaegerApi(served_view(folder))
    trace = _get(api, f"traces/{1:x}")[0]
    parent, child = trace["spans"]
    assert child["references"] == [{"refType": "CHILD_OF", "traceID": f"{1:032x}", "spanID": parent["spanID"]}]
    assert (child["startTime"], child["duration"]) == (START_S * 1_000_000 + 10_500_000, 1_000_000)
    tags = {tag["key"]: tag["value"] for tag in child["tags"]}
    assert tags == {
        "http.method": "GET", "retries": 2, "span.kind": "server", "http.response.status_code": 500,
        "otel.status_code": "ERROR", "error": True,
    }  # fmt: skip
    process = trace["processes"][child["processID"]]
    assert process["serviceName"] == "geo"
    assert {tag["key"]: tag["value"] for tag in process["tags"]} == {
        "k8s.namespace.name": "bare",
        "k8s.pod.name": "geo-1",
    }


@pytest.mark.parametrize(
    ("search", "traces"),
    [
        ({"service": "front"}, [2, 1]),
        ({"service": "front", "limit": 1}, [2]),
        ({"service": "front", "start": (START_S + 5) * 10**6, "end": (START_S + 30) * 10**6}, [1]),
        ({"service": "geo", "tags": json.dumps({"error": "true"})}, [1]),
        ({"service": "front", "tag": "error:true"}, []),
        ({"service": "front", "tags": json.dumps({"k8s.pod.name": "front-1"})}, [2, 1]),
        ({"service": "geo", "operation": "GET /front"}, []),
        ({"service": "front", "minDuration": "3s"}, []),
        ({"service": "geo", "maxDuration": "1s"}, [1]),
        ({"traceID": f"{2:032x}"}, [2]),
    ],
)
def test_traces_are_found_by_what_one_span_has(
    folder: Any, served_view: Callable[..., ServedTelemetry], search: dict[str, Any], traces: list[int]
) -> None:
    documents = _get(JaegerApi(served_view(folder)), "traces", **search)
    assert [int(document["traceID"], 16) for document in documents] == traces


def test_operations_and_calls_are_listed(folder: Any, served_view: Callable[..., ServedTelemetry]) -> None:
    api = JaegerApi(served_view(folder))
    assert _get(api, "services/front/operations") == ["GET /front"]
    assert _get(api, "operations", service="geo") == [{"name": "GET /geo", "spanKind": "server"}]
    assert _get(api, "dependencies") == [{"parent": "front", "child": "geo", "callCount": 1}]


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ('{app="geo"}', ["stopped", "retry", "GET /geo failed: timeout", "started"]),
        ('{service_name="geo", level=~"err.*"}', ["retry", "GET /geo failed: timeout"]),
        ('{app="geo"} |= "e" != "retry"', ["stopped", "GET /geo failed: timeout", "started"]),
        ('{app="geo"} |= "retry" or "stop"', ["stopped", "retry"]),
        ("{app=`geo`} |~ `GET /\\w+ failed`", ["GET /geo failed: timeout"]),
        ('{app="geo"} !~ "^st" |= "\\u0072etry"', ["retry"]),
        ('{app="geo"} | level="error" |= "e"', ["retry", "GET /geo failed: timeout"]),
        ('{app="geo"} | level!="error" |= `` | drop __error__', ["stopped", "started"]),
        ('{app="front"}', []),
    ],
)
def test_lines_are_found_by_stream_and_content(
    folder: Any, served_view: Callable[..., ServedTelemetry], query: str, lines: list[str]
) -> None:
    streams = _get(LokiApi(served_view(folder)), "query_range", query=query)["result"]
    values = sorted((value for stream in streams for value in stream["values"]), reverse=True)
    assert [line for _, line in values] == lines


def test_streams_carry_labels_and_the_ids_of_spans(folder: Any, served_view: Callable[..., ServedTelemetry]) -> None:
    api = LokiApi(served_view(folder))
    streams = _get(api, "query_range", query='{app="geo"} |= "failed"')["result"]
    assert streams == [
        {
            "stream": {
                "app": "geo", "container": "geo", "level": "error", "namespace": "bare", "pod": "geo-1",
                "service_name": "geo", "span_id": "cd", "trace_id": "ab",
            },
            "values": [[str((START_S + 20) * SECOND), "GET /geo failed: timeout"]],
        }
    ]  # fmt: skip
    oldest = _get(api, "query_range", query='{app="geo"}', direction="forward", limit=1)["result"]
    assert oldest[0]["values"][0][1] == "started"
    assert _get(api, "labels") == ["app", "container", "level", "namespace", "pod", "service_name"]
    assert len(_get(api, "series", match='{level="error"}')) == 1


def test_lines_are_counted_even_within_a_millisecond(folder: Any, served_view: Callable[..., ServedTelemetry]) -> None:
    api = LokiApi(served_view(folder))
    query = 'sum by (level, detected_level) (count_over_time({app="geo"} !~ "x" | drop __error__[100s]))'
    counts = {row["metric"]["level"]: row["value"][1] for row in _get(api, "query", query=query)["result"]}
    assert counts == {"error": "2", "info": "2"}
    rate = _get(api, "query", query='sum(rate({app="geo"} |= "retry" [100s])) + sum(bytes_rate({app="geo"}[100s]))')
    assert float(rate["result"][0]["value"][1]) == pytest.approx(
        0.01 + len("startedGET /geo failed: timeoutretrystopped") / 100
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('{app="geo"} | json', "is invalid or not supported"),
        ("{app=}", "invalid PromQL"),
        ('sum(count_over_time({app="geo"} | json [5m]))', "is invalid or not supported"),
        ('{app="geo"} |~ "["', "regular expression"),
    ],
)
def test_unsupported_logql_is_refused(
    folder: Any, served_view: Callable[..., ServedTelemetry], query: str, message: str
) -> None:
    status, text = LokiApi(served_view(folder)).answer("query_range", {"query": [query]})
    assert status == 400
    assert message in text


@pytest.mark.parametrize(
    ("api", "resource", "parameters", "message"),
    [
        (PrometheusApi, "query", {"query": "up", "time": "yesterday"}, '"time" must be seconds since 1970'),
        (PrometheusApi, "query_range", {"query": "up", "start": "1", "end": "0", "step": "1"}, '"end" must not be'),
        (PrometheusApi, "query_range", {"query": "up", "start": "1", "end": "2", "step": "x"}, '"step" must be'),
        (PrometheusApi, "query", {"query": "up", "time": "2025-10-09T08:53:20"}, "time zone"),
        (JaegerApi, "traces", {"service": "geo", "limit": "0"}, '"limit" must be from 1'),
        (JaegerApi, "traces", {"service": "geo", "tags": "["}, '"tags" must be a JSON object'),
        (JaegerApi, "traces", {"service": "geo", "start": "1.5"}, '"start" must be an integer'),
        (LokiApi, "query_range", {"query": "{a=`b`}", "limit": "6000"}, '"limit" must be from 1'),
        (LokiApi, "query_range", {"query": "{a=`b`}", "direction": "up"}, '"direction" must be'),
    ],
)
def test_wrong_parameters_are_refused(
    telemetry: ServedTelemetry, api: Any, resource: str, parameters: dict[str, str], message: str
) -> None:
    status, document = api(telemetry).answer(resource, {name: [value] for name, value in parameters.items()})
    assert status == 400
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False).replace('\\"', '"')
    assert message in text
