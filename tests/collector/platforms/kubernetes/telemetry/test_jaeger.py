"""Spans from a server that answers as Jaeger does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from faultset.collector.platforms.kubernetes.telemetry.endpoints import TruncatedResponse, UrlEndpoint
from faultset.collector.platforms.kubernetes.telemetry.jaeger import JaegerSource, KnownTraces
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.spans import read_jaeger_spans, read_spans

MAX_TRACES = 100


def _make_trace(number: int, spans: int = 2, text: str = "") -> dict[str, Any]:
    name = f"{number:032x}"
    return {
        "traceID": name,
        "spans": [{"traceID": name, "spanID": f"{span:016x}", "operationName": text} for span in range(spans)],
        "processes": {"p1": {"serviceName": "geo", "tags": []}},
        "warnings": None,
    }


def _body(*traces: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"data": traces, "total": 0, "errors": None} | rest, separators=(",", ":")).encode()


def test_traces_that_came_before_are_left_out_except_the_last_of_an_answer() -> None:
    answers = KnownTraces()
    first = [_make_trace(number) for number in range(5)]
    assert answers.new_traces(_body(*first), "Jaeger", fewer_than=MAX_TRACES) == (5, first)
    count, found = answers.new_traces(_body(*first[:3], _make_trace(7), first[3]), "Jaeger", fewer_than=MAX_TRACES)
    assert count == 5
    assert found == [_make_trace(7), first[3]]


def test_a_trace_that_has_grown_is_new() -> None:
    answers = KnownTraces()
    answers.new_traces(_body(_make_trace(1), _make_trace(2)), "Jaeger", fewer_than=MAX_TRACES)
    grown = _make_trace(1, spans=3)
    assert answers.new_traces(_body(grown, _make_trace(2)), "Jaeger", fewer_than=MAX_TRACES) == (
        2,
        [grown, _make_trace(2)],
    )


def test_traces_of_an_answer_that_was_too_full_or_cut_are_still_new() -> None:
    answers = KnownTraces()
    traces = [_make_trace(number) for number in range(4)]
    body = _body(*traces)
    assert answers.new_traces(body, "Jaeger", fewer_than=4) == (4, [])
    with pytest.raises(TruncatedResponse):
        answers.new_traces(body[:-20], "Jaeger", fewer_than=MAX_TRACES)
    assert answers.new_traces(body, "Jaeger", fewer_than=MAX_TRACES) == (4, traces)


def test_an_answer_in_another_format_is_parsed_whole_each_time() -> None:
    answers = KnownTraces()
    traces = [_make_trace(number) for number in range(3)]
    body = json.dumps({"data": traces}, indent=1).encode()
    for _ in range(2):
        assert answers.new_traces(body, "Jaeger", fewer_than=MAX_TRACES) == (3, traces)
    assert answers.new_traces(body, "Jaeger", fewer_than=3) == (3, [])


def test_text_of_a_span_that_looks_like_a_trace_is_no_trace() -> None:
    answers = KnownTraces()
    hostile = _make_trace(1, text='{"traceID":"00","spans":[')
    assert answers.new_traces(_body(hostile, _make_trace(2)), "Jaeger", fewer_than=MAX_TRACES) == (
        2,
        [hostile, _make_trace(2)],
    )
    assert answers.new_traces(_body(hostile, _make_trace(3)), "Jaeger", fewer_than=MAX_TRACES) == (2, [_make_trace(3)])


def test_an_empty_answer_holds_no_trace_and_a_refusal_is_said() -> None:
    assert KnownTraces().new_traces(_body(), "Jaeger", fewer_than=MAX_TRACES) == (0, [])
    with pytest.raises(PlatformError, match=r"Jaeger rejected the request for traces: .*closed"):
        KnownTraces().new_traces(_body(errors=[{"code": 500, "msg": "closed"}]), "Jaeger", fewer_than=MAX_TRACES)


T0 = 1_700_000_000
SECOND = 1_000_000_000
MINE = {"frontend": "frontend-5f-aaaaa", "geo": "geo-6d-bbbbb"}
OTHERS = {"frontend": "frontend-77-zzzzz", "geo": "geo-88-zzzzz"}


def _tag(key: str, value: Any) -> dict[str, Any]:
    kind = {bool: "bool", int: "int64", float: "float64"}.get(type(value), "string")
    return {"key": key, "type": kind, "value": value}


def _span(number: int, at_s: float, process: str, *, parent: Any = None, **tags: Any) -> dict[str, Any]:
    trace = f"{number // 10:032x}"
    references = [] if parent is None else [{"refType": "CHILD_OF", "traceID": trace, "spanID": f"{parent:016x}"}]
    return {
        "traceID": trace,
        "spanID": f"{number:016x}",
        "operationName": "/geo.Geo/Nearby",
        "references": references,
        "startTime": round((T0 + at_s) * 1e6),
        "duration": 1500,
        "tags": [_tag(key, value) for key, value in tags.items()],
        "logs": [],
        "processID": process,
        "warnings": None,
    }


def _trace(number: int, at_s: float, pods: dict[str, str], **place: str) -> dict[str, Any]:
    """Return a trace of the frontend's span and geo's below it; its spans are numbered from ten times `number`."""
    processes = {
        service: {
            "serviceName": service,
            "tags": [_tag(key.replace("_", "."), value) for key, value in place.items()]
            + ([_tag("k8s.pod.name", pods[service])] if service in pods else []),
        }
        for service in ("frontend", "geo")
    }
    spans = [
        _span(10 * number, at_s, "frontend", **{"span.kind": "server"}),
        _span(10 * number + 1, at_s + 0.001, "geo", parent=10 * number, **{"span.kind": "server"}),
    ]
    return {"traceID": f"{number:032x}", "spans": spans, "processes": processes}


@pytest.fixture
def source(serve, jaeger) -> Callable[..., JaegerSource]:
    def make(**options: Any) -> JaegerSource:
        owners = {pod: service for service, pod in MINE.items()}
        return JaegerSource(
            UrlEndpoint(serve(jaeger).url, kind="Jaeger", retry_timeout_s=0.0),
            "shop",
            ("frontend", "geo"),
            service_of_pod=owners.get,
            service_of_reported=lambda name: name if name in MINE else None,
            sleep=lambda seconds: None,
            **options,
        )

    return make


def _rows(source: JaegerSource, start_s: float = 0, end_s: float = 600) -> list[dict[str, Any]]:
    start_ns, end_ns = round((T0 + start_s) * SECOND), round((T0 + end_s) * SECOND)
    return [row for batch in source.snapshot(start_ns, end_ns) for row in batch.to_pylist()]


def test_every_span_comes_once_though_a_trace_comes_with_each_of_its_services(source, jaeger) -> None:
    jaeger.traces = [_trace(number, number, MINE) for number in range(1, 51)]
    rows = _rows(source())
    assert len({row["span_id"] for row in rows}) == len(rows) == 100
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert {(row["service"], row["pod"]) for row in rows} == set(MINE.items())


def test_full_pages_are_read_again_in_smaller_windows(source, jaeger) -> None:
    jaeger.traces = [_trace(number, 3 + number / 100, MINE) for number in range(1, 101)]
    assert len(_rows(source(traces_per_page=7))) == 200


def test_more_traces_in_an_instant_than_a_page_holds_are_refused(source, jaeger) -> None:
    jaeger.traces = [_trace(number, 3, MINE) for number in range(1, 11)]
    with pytest.raises(PlatformError, match="within a microsecond"):
        _rows(source(traces_per_page=10), 0, 10)


@pytest.mark.parametrize("place", [2, 4], ids=["first-question", "first-page"])
def test_a_page_that_breaks_off_is_read_again_in_smaller_windows(source, jaeger, broken, place) -> None:
    jaeger.traces = [_trace(number, number, MINE) for number in range(1, 31)]
    asked: list[str] = []

    def cut_once(path: str) -> None:
        asked.append(path)
        if len(asked) == place:
            raise broken(b'{"data":[{"traceID":"00')

    jaeger.before_answer = cut_once
    assert len(_rows(source())) == 60
    assert asked[place - 1] == "/api/traces"


def test_the_window_has_its_start_but_not_its_end(source, jaeger) -> None:
    jaeger.traces = [_trace(1, 0, MINE), _trace(2, 9.9995, MINE), _trace(3, 10, MINE)]
    assert [row["span_id"][-2:] for row in _rows(source(), 0, 10)] == ["0a", "0b", "14"]


def _read_early(source: JaegerSource, healthy_until_s: float) -> None:
    source.read_early(T0 * SECOND, (T0 + 600) * SECOND, round((T0 + healthy_until_s) * SECOND))


def test_what_was_read_early_is_not_asked_for_again(source, jaeger) -> None:
    jaeger.traces = [_trace(number, number, MINE, k8s_namespace_name="shop") for number in range(1, 601)]
    whole = _rows(source())
    made = source()
    _read_early(made, 300)
    assert made._early.wait()
    jaeger.traces = jaeger.traces[280:]
    assert _rows(made) == whole
    assert len(_rows(made)) < len(whole)


def test_a_long_span_that_was_sent_after_the_early_reading_comes_too(source, jaeger) -> None:
    jaeger.traces = [_trace(number, number, MINE) for number in range(1, 601)]
    long = _trace(700, 250, MINE)
    long["spans"][0]["duration"] = 200_000_000
    made = source()
    _read_early(made, 300)
    assert made._early.wait()
    jaeger.traces.append(long)
    jaeger.traces[100]["spans"].append(_span(9999, 299.0, "geo", **{"span.kind": "client"}))
    jaeger.traces[100]["spans"][-1]["traceID"] = jaeger.traces[100]["traceID"]
    found = {row["span_id"] for row in _rows(made)}
    assert {f"{7000:016x}", f"{7001:016x}", f"{9999:016x}"} <= found
    assert len(found) == 2 * 599 + 3


def test_a_snapshot_of_another_window_does_not_use_what_was_read_early(source, jaeger) -> None:
    jaeger.traces = [_trace(number, number, MINE) for number in range(1, 101)]
    made = source()
    _read_early(made, 300)
    assert len(_rows(made, 0, 50)) == 98


def test_a_snapshot_reads_everything_itself_where_the_early_reading_failed(source, jaeger) -> None:
    jaeger.traces = [_trace(number, number, MINE) for number in range(1, 101)]
    jaeger.errors = ["storage is closed"]
    made = source()
    _read_early(made, 300)
    assert not made._early.wait()
    jaeger.errors = []
    assert len(_rows(made)) == 200


def test_unfinished_traces_are_kept(source, jaeger) -> None:
    orphan = _trace(1, 1, MINE)
    del orphan["spans"][0]
    jaeger.traces = [orphan]
    [row] = _rows(source())
    assert (row["service"], row["parent_span_id"]) == ("geo", f"{10:016x}")


def test_another_episode_with_the_same_services_is_left_out_by_its_pods(source, jaeger) -> None:
    jaeger.traces = [_trace(number, number, MINE if number % 2 else OTHERS) for number in range(1, 21)]
    made = source()
    rows = _rows(made)
    assert {row["pod"] for row in rows} == set(MINE.values())
    assert len(rows) == 20
    assert made.notes == ()


def test_another_episode_is_left_out_at_the_server_where_spans_name_their_namespace(serve, jaeger) -> None:
    jaeger.traces = [
        _trace(number, number, MINE, k8s_namespace_name="shop" if number % 2 else "shop-2") for number in range(1, 21)
    ]
    server = serve(jaeger)
    made = JaegerSource(
        UrlEndpoint(server.url, kind="Jaeger", retry_timeout_s=0.0),
        "shop",
        ("frontend", "geo"),
        service_of_pod=lambda pod: None,
        service_of_reported=lambda name: name,
    )
    rows = _rows(made)
    assert sorted({int(row["trace_id"], 16) % 2 for row in rows}) == [1]
    assert len(rows) == 20
    pages = [params for path, params in server.requests if path == "/api/traces" and params["limit"] == ["1000"]]
    assert {tuple(params["tags"]) for params in pages} == {('{"k8s.namespace.name": "shop"}',)}


def test_a_service_of_strangers_is_asked_for_twice_and_no_more(serve, source, jaeger) -> None:
    jaeger.traces = [_trace(number, number, OTHERS, k8s_namespace_name="shop-2") for number in range(1, 21)]
    asked: list[str] = []
    jaeger.before_answer = asked.append
    assert _rows(source()) == []
    assert asked == ["/api/services", *["/api/traces"] * 4]


def test_spans_that_name_no_place_are_told_apart_by_their_service_and_that_is_said(source, jaeger) -> None:
    stranger = _trace(2, 2, {})
    for process in stranger["processes"].values():
        process["serviceName"] = "billing"
    jaeger.traces = [_trace(1, 1, {}), stranger]
    made = source()
    rows = _rows(made)
    assert [(row["service"], row["pod"]) for row in rows] == [("frontend", None), ("geo", None)]
    assert "spans of frontend, geo have neither pod nor namespace" in made.notes[0]


def test_the_host_name_is_the_pod_where_an_old_client_says_nothing_else(source, jaeger) -> None:
    trace = _trace(1, 1, {})
    trace["processes"]["geo"]["tags"] = [_tag("hostname", MINE["geo"]), _tag("ip", "10.0.0.3")]
    trace["processes"]["frontend"]["tags"] = [_tag("hostname", OTHERS["frontend"])]
    jaeger.traces = [trace]
    assert [(row["service"], row["pod"]) for row in _rows(source())] == [("geo", MINE["geo"])]


def test_spans_that_are_still_on_their_way_are_waited_for(source, jaeger) -> None:
    now = time.time()
    first, late = _trace(1, now - T0 - 5, MINE), _trace(2, now - T0 - 4, MINE)
    jaeger.traces = [first]
    rounds: list[str] = []

    def arrive(path: str) -> None:
        rounds.append(path)
        if rounds.count("/api/services") == 3:
            jaeger.traces = [first, late]

    jaeger.before_answer = arrive
    assert len(_rows(source(), now - T0 - 300, now - T0)) == 4


def test_a_window_long_past_is_read_once(serve, source, jaeger) -> None:
    jaeger.traces = [_trace(1, 1, MINE)]
    asked: list[str] = []
    jaeger.before_answer = asked.append
    _rows(source())
    assert asked.count("/api/services") == 1


def test_a_jaeger_that_knows_nothing_gives_no_rows(source) -> None:
    assert _rows(source()) == []


def test_what_jaeger_refuses_is_said(source, jaeger) -> None:
    jaeger.traces = [_trace(1, 1, MINE)]
    jaeger.errors = [{"code": 500, "msg": "storage is closed"}]
    with pytest.raises(PlatformError, match=r"rejected the request for traces: .*storage is closed"):
        _rows(source())


def test_times_that_jaeger_has_moved_are_said(source, jaeger) -> None:
    jaeger.traces = [_trace(1, 1, MINE)]
    jaeger.traces[0]["spans"][1]["warnings"] = ["clock skew adjustment: -3 ms"]
    made = source()
    _rows(made)
    assert "has shifted the times of 1 span " in made.notes[0]


def _by_otlp(kind: Any, status: Any, message: str, attributes: dict[str, Any]) -> Any:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    for key, value in {"service.name": "geo", "k8s.pod.name": MINE["geo"]}.items():
        group.resource.attributes.add(key=key).value.string_value = value
    span = group.scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.parent_span_id = (1).to_bytes(16), (11).to_bytes(8), (10).to_bytes(8)
    span.name, span.kind = "/geo.Geo/Nearby", kind
    span.start_time_unix_nano, span.end_time_unix_nano = T0 * SECOND, T0 * SECOND + 1_500_000
    span.status.code, span.status.message = status, message
    for key, value in attributes.items():
        field = {bool: "bool_value", int: "int_value", float: "double_value"}.get(type(value), "string_value")
        setattr(span.attributes.add(key=key).value, field, value)
    return next(read_spans(request.SerializeToString()))


@pytest.mark.parametrize(
    ("otlp", "tags"),
    [
        ((2, 0, "", {"http.status_code": 200}), {"span.kind": "server", "http.status_code": 200}),
        (
            (3, 2, "refused", {"peer.service": "geo", "rpc.grpc.status_code": 14, "retry": True, "share": 0.5}),
            {
                "span.kind": "client",
                "otel.status_code": "ERROR",
                "error": True,
                "otel.status_description": "refused",
                "peer.service": "geo",
                "rpc.grpc.status_code": 14,
                "retry": True,
                "share": 0.5,
            },
        ),
        ((2, 1, "", {}), {"span.kind": "server", "otel.status_code": "OK", "otel.scope.name": "faultset"}),
        ((1, 0, "", {"component": "gRPC"}), {"component": "gRPC", "internal.span.format": "otlp"}),
        ((4, 0, "", {}), {"span.kind": "producer", "w3c.tracestate": "a=b"}),
    ],
    ids=["server", "failed-client", "ok", "internal", "producer"],
)
def test_a_span_by_way_of_jaeger_is_the_span_that_was_sent(otlp, tags) -> None:
    trace = _trace(1, 0, MINE)
    trace["spans"] = [_span(11, 0, "geo", parent=10, **tags)]
    [sent] = read_jaeger_spans([trace])
    assert sent.row == _by_otlp(*otlp)


def test_an_error_that_an_old_client_marks_is_an_error() -> None:
    trace = _trace(1, 0, MINE)
    trace["spans"] = [_span(11, 0, "geo", error=True, **{"http.status_code": "500"})]
    [sent] = read_jaeger_spans([trace])
    assert (sent.row.status, sent.row.status_code, sent.row.attributes) == ("error", 500, "{}")


def test_ids_without_their_leading_zeros_are_whole_again() -> None:
    trace = _trace(1, 0, MINE)
    span = _span(11, 0, "geo")
    trace["spans"] = [span | {"traceID": "abc", "spanID": "1f"}]
    [sent] = read_jaeger_spans([trace])
    assert sent.row.trace_id.hex() == "abc".zfill(32)
    assert sent.row.span_id.hex() == "1f".zfill(16)


def test_the_parent_is_the_one_in_the_same_trace_and_child_of_before_follows_from() -> None:
    trace = _trace(1, 0, MINE)
    span = _span(11, 0, "geo")
    here, other = span["traceID"], f"{9:032x}"
    span["references"] = [
        {"refType": "CHILD_OF", "traceID": other, "spanID": f"{1:016x}"},
        {"refType": "FOLLOWS_FROM", "traceID": here, "spanID": f"{2:016x}"},
        {"refType": "CHILD_OF", "traceID": here, "spanID": f"{3:016x}"},
    ]
    trace["spans"] = [span]
    [sent] = read_jaeger_spans([trace])
    assert sent.row.parent_span_id == (3).to_bytes(8)


def test_a_process_within_its_span_is_read_too() -> None:
    span = _span(11, 0, "") | {"process": {"serviceName": "geo", "tags": [_tag("k8s.pod.name", MINE["geo"])]}}
    [sent] = read_jaeger_spans([{"traceID": "1", "spans": [span]}])
    assert (sent.row.reported_service, sent.row.pod) == ("geo", MINE["geo"])


def test_attributes_are_canonical_json() -> None:
    trace = _trace(1, 0, MINE)
    trace["spans"] = [_span(11, 0, "geo", b=2, a="x", c=float("inf"))]
    [sent] = read_jaeger_spans([trace])
    assert sent.row.attributes == json.dumps({"a": "x", "b": 2, "c": "inf"}, separators=(",", ":"))
