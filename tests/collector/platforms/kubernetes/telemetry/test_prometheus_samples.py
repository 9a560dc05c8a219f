"""Raw samples arrive whole, once and with their own times, whatever the server does."""

from __future__ import annotations

import base64
import threading
from typing import Any

import pytest

from faultset.collector.platforms.kubernetes.telemetry.endpoints import UrlEndpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus import SampleReader, match_any
from faultset.core.errors import PlatformError, UsageError

T0 = 1_700_000_000
SECOND = 1_000_000_000
MINE = 'namespace="shop"'


def _reader(server: Any, **options: Any) -> SampleReader:
    return SampleReader(UrlEndpoint(server.url, kind="Prometheus", retry_timeout_s=0.0), **options)


def _filled(prometheus: Any, families: int = 3, seconds: int = 100) -> None:
    for number in range(families):
        samples = [(T0 + at + 0.125, at) for at in range(seconds)]
        prometheus.add(f"metric_{number}", samples, namespace="shop")


def _read(
    reader: SampleReader, families: list[str], start_s: float, end_s: float
) -> dict[str, list[tuple[float, float]]]:
    found = reader.series(MINE, families, round((T0 + start_s) * SECOND), round((T0 + end_s) * SECOND))
    return {
        one.labels["__name__"]: list(
            zip(((one.times - T0 * SECOND) / SECOND).tolist(), one.values.tolist(), strict=True)
        )
        for one in found
    }


@pytest.mark.parametrize("closed", [False, True], ids=["ranges-open-left", "ranges-closed"])
def test_a_window_has_its_start_but_not_its_end_on_old_and_new_servers(serve, prometheus, closed) -> None:
    prometheus.closed_ranges = closed
    prometheus.add("m", [(T0 - 0.001, 1), (T0, 2), (T0 + 59.999, 3), (T0 + 60, 4), (T0 + 120, 5)], namespace="shop")
    found = _read(_reader(serve(prometheus)), ["m"], 0, 120)
    assert found == {"m": [(0.0, 2.0), (59.999, 3.0), (60.0, 4.0)]}


def test_bounds_that_are_no_whole_milliseconds_are_kept_to_the_nanosecond(serve, prometheus) -> None:
    prometheus.add("m", [(T0, 1), (T0 + 0.001, 2)], namespace="shop")
    reader = _reader(serve(prometheus))
    start_ns = T0 * SECOND + 400_000
    assert [one.values.tolist() for one in reader.series(MINE, ["m"], start_ns, start_ns + SECOND)] == [[2.0]]


def test_a_server_that_limits_samples_still_gives_all_of_them(serve, prometheus) -> None:
    _filled(prometheus)
    whole = _read(_reader(serve(prometheus)), ["metric_0", "metric_1", "metric_2"], 0, 100)
    prometheus.most_samples = 20
    server = serve(prometheus)
    assert _read(_reader(server), ["metric_0", "metric_1", "metric_2"], 0, 100) == whole
    assert sum(len(samples) for samples in whole.values()) == 300
    assert len(server.requests) > 15


def test_metrics_are_asked_for_one_by_one_where_a_second_of_all_is_too_much(serve, prometheus) -> None:
    _filled(prometheus, families=4, seconds=5)
    prometheus.most_samples = 2
    found = _read(_reader(serve(prometheus)), [f"metric_{number}" for number in range(4)], 0, 5)
    assert [len(samples) for samples in found.values()] == [5, 5, 5, 5]


def test_a_limit_below_one_second_of_one_metric_is_said(serve, prometheus) -> None:
    prometheus.add("m", [(T0, 1), (T0 + 0.5, 2)], namespace="shop")
    prometheus.most_samples = 1
    with pytest.raises(PlatformError, match=r"cannot return one second of m .*raise its limit"):
        _read(_reader(serve(prometheus)), ["m"], 0, 1)


def test_an_answer_that_breaks_off_is_asked_for_again_in_smaller_parts(serve, prometheus, broken) -> None:
    _filled(prometheus)
    whole = _read(_reader(serve(prometheus)), ["metric_0"], 0, 100)

    def cut(method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        if path == "/api/v1/query" and int(params["query"][0].rpartition("[")[2].removesuffix("ms]")) > 10_000:
            raise broken(b'{"status":"success","data":{"resultType":"matrix","res')
        return prometheus(method, path, params, body)

    assert _read(_reader(serve(cut)), ["metric_0"], 0, 100) == whole


def test_an_answer_from_a_part_of_the_data_is_no_answer(serve, prometheus) -> None:
    _filled(prometheus)
    prometheus.warnings = ["partial response: store 2 did not answer"]
    with pytest.raises(PlatformError, match=r"a partial response to .*: partial response"):
        _read(_reader(serve(prometheus)), ["metric_0"], 0, 100)


def test_answers_stay_near_the_wanted_size(serve, prometheus) -> None:
    _filled(prometheus, families=10, seconds=600)
    found = _read(_reader(serve(prometheus), samples_per_response=500), [f"metric_{n}" for n in range(10)], 0, 600)
    assert sum(len(samples) for samples in found.values()) == 6000
    assert prometheus.largest_answer <= 600


def test_markers_of_staleness_and_other_nan_are_left_out(serve, prometheus) -> None:
    prometheus.add("m", [(T0, 1), (T0 + 5, "NaN"), (T0 + 10, "+Inf")], namespace="shop")
    assert _read(_reader(serve(prometheus)), ["m"], 0, 60) == {"m": [(0.0, 1.0), (10.0, float("inf"))]}


def test_times_keep_their_milliseconds(serve, prometheus) -> None:
    prometheus.add("m", [(1795318248.206, 1), (1795318253.89, 2)], namespace="shop")
    [found] = _reader(serve(prometheus)).series(MINE, ["m"], 1795318240 * SECOND, 1795318300 * SECOND)
    assert found.times.tolist() == [1795318248206000000, 1795318253890000000]


def test_names_of_families_are_of_the_namespace_only(serve, prometheus) -> None:
    prometheus.add("m", [(T0, 1)], namespace="shop")
    prometheus.add("n", [(T0, 1)], namespace="other")
    assert _reader(serve(prometheus)).families([MINE], T0 * SECOND, (T0 + 1) * SECOND) == ["m"]


def test_many_families_are_asked_for_in_several_requests(serve, prometheus) -> None:
    names = [f"a_rather_long_name_of_a_metric_that_fills_the_query_{number:04d}" for number in range(200)]
    for name in names:
        prometheus.add(name, [(T0, 1)], namespace="shop")
    server = serve(prometheus)
    assert len(_read(_reader(server), names, 0, 1)) == 200
    assert max(len(params["query"][0]) for _, params in server.requests) < 5_000


def test_a_server_that_restarts_is_waited_for(serve, prometheus, refused) -> None:
    _filled(prometheus)
    failures = iter([True, True])

    def restarting(path: str) -> None:
        if next(failures, False):
            raise refused(503, b"Service Unavailable")

    prometheus.before_answer = restarting
    endpoint = UrlEndpoint(serve(prometheus).url, kind="Prometheus", retry_timeout_s=30.0)
    assert len(SampleReader(endpoint).series(MINE, ["metric_0"], T0 * SECOND, (T0 + 9) * SECOND)) == 1


def test_what_prometheus_itself_refuses_is_not_tried_again(serve, prometheus, refused) -> None:
    def timing_out(path: str) -> None:
        raise refused(503, {"status": "error", "errorType": "timeout", "error": "query timed out in expression"})

    prometheus.before_answer = timing_out
    server = serve(prometheus)
    with pytest.raises(PlatformError, match="with status 503"):
        UrlEndpoint(server.url, kind="Prometheus", retry_timeout_s=60.0).get("/api/v1/query", {"query": "x"})
    assert len(server.requests) == 1


def test_a_missing_server_is_named_in_one_sentence(serve, prometheus) -> None:
    server = serve(prometheus)
    server.close()
    with pytest.raises(PlatformError, match=r"cannot reach Prometheus at http://127.0.0.1:\d+ .*check the address"):
        UrlEndpoint(server.url, kind="Prometheus", retry_timeout_s=0.0).get("/api/v1/targets")


def test_a_page_of_another_server_is_no_answer(serve) -> None:
    server = serve(lambda *asked: "x")
    with pytest.raises(PlatformError, match="rejected /api/v1/query: not an object"):
        _reader(server).instant("time()")


def test_html_is_no_answer(serve, refused) -> None:
    def login(*asked: Any) -> Any:
        raise refused(200, b"<html>log in</html>")

    with pytest.raises(PlatformError, match=r"Jaeger at .* sent a web page for /api/services"):
        UrlEndpoint(serve(login).url, kind="Jaeger").get("/api/services")


def test_user_and_password_of_the_url_and_its_prefix_are_used(serve, prometheus) -> None:
    server = serve(lambda method, path, params, body: prometheus(method, path.removeprefix("/prom"), params, body))
    url = server.url.replace("http://", "http://anna:s%40crt@") + "/prom/"
    endpoint = UrlEndpoint(url, kind="Prometheus")
    endpoint.get("/api/v1/targets")
    assert server.requests[0][0] == "/prom/api/v1/targets"
    assert server.headers[0]["Authorization"] == "Basic " + base64.b64encode(b"anna:s@crt").decode()
    assert "s@crt" not in endpoint.name


def test_a_token_of_the_environment_is_used(serve, prometheus, monkeypatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "abc")
    server = serve(prometheus)
    UrlEndpoint(server.url, kind="Prometheus", token_variable="SOME_TOKEN").get("/api/v1/targets")
    assert server.headers[0]["Authorization"] == "Bearer abc"


def test_what_is_no_url_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"must be a URL such as http://jaeger\.example"):
        UrlEndpoint("jaeger:16686", kind="Jaeger")


def test_several_threads_may_ask_at_once(serve, prometheus) -> None:
    _filled(prometheus)
    reader = _reader(serve(prometheus))
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(len(_read(reader, ["metric_0"], 0, 100)["metric_0"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [100] * 4


def test_names_are_matched_as_they_are() -> None:
    assert match_any(["a.b", "c"]) == '"a\\\\.b|c"'
