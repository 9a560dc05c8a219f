"""Prometheus' text format as numbered series."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from faultset.collector.sources.exposition import ExpositionReader
from faultset.datasets.telemetry_formats.prometheus import canonical_labels


class Register:
    """Numbers series and remembers them."""

    def __init__(self) -> None:
        self.series: list[tuple[str, str, str]] = []

    def __call__(self, metric: str, labels: str, kind: str) -> int:
        self.series.append((metric, labels, kind))
        return len(self.series) - 1


def read(text: str) -> dict[tuple[str, str, str], float]:
    register = Register()
    numbers, values = ExpositionReader(register).read(text)
    return {register.series[number]: value for number, value in zip(numbers, values, strict=True)}


TEXT = """\
# HELP requests_total Requests so far.
# TYPE requests_total counter
requests_total{route="/a b",code="200"} 3
requests_total{route="say \\"hi\\"",code="500"} 4.5e3
# TYPE in_flight gauge
in_flight 7
# TYPE latency_seconds histogram
latency_seconds_bucket{le="0.1"} 1
latency_seconds_bucket{le="+Inf"} 2
latency_seconds_sum 0.3
latency_seconds_count 2
# TYPE size_bytes summary
size_bytes{quantile="0.5"} NaN
size_bytes_sum 10
size_bytes_count 4

unannounced{x="y"} -1
"""


def test_each_sample_has_its_metric_labels_and_kind() -> None:
    samples = read(TEXT)
    nan = samples.pop(("size_bytes", '{"quantile":"0.5"}', "gauge"))
    assert math.isnan(nan)
    assert samples == {
        ("requests_total", '{"code":"200","route":"/a b"}', "counter"): 3.0,
        ("requests_total", '{"code":"500","route":"say \\"hi\\""}', "counter"): 4500.0,
        ("in_flight", "{}", "gauge"): 7.0,
        ("latency_seconds_bucket", '{"le":"0.1"}', "bucket"): 1.0,
        ("latency_seconds_bucket", '{"le":"+Inf"}', "bucket"): 2.0,
        ("latency_seconds_sum", "{}", "sum"): 0.3,
        ("latency_seconds_count", "{}", "count"): 2.0,
        ("size_bytes_sum", "{}", "sum"): 10.0,
        ("size_bytes_count", "{}", "count"): 4.0,
        ("unannounced", '{"x":"y"}', "gauge"): -1.0,
    }


def test_a_series_is_registered_once_however_often_it_is_read() -> None:
    register = Register()
    reader = ExpositionReader(register)
    first = reader.read(TEXT)
    second = reader.read(TEXT.replace("in_flight 7", "in_flight 8"))
    assert first[0] == second[0]
    assert second[1][first[0].index(2)] == 8.0
    assert len(register.series) == 11


def test_series_may_come_and_go() -> None:
    register = Register()
    reader = ExpositionReader(register)
    assert reader.read("a 1\n")[0] == [0]
    assert reader.read("b 1\na 2\n") == ([1, 0], [1.0, 2.0])
    assert reader.read("b 1\n")[0] == [1]


def test_time_stamps_of_the_target_are_ignored() -> None:
    register = Register()
    reader = ExpositionReader(register)
    for time_ms in (1000, 2000):
        _, values = reader.read(f'a{{b="c d"}} 5 {time_ms}\n')
        assert values == [5.0]
    assert set(register.series) == {("a", '{"b":"c d"}', "gauge")}


@pytest.mark.parametrize("text", ["<html> no\n", 'a{b="c 1\n', "a one\n", "alone\n"])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        ExpositionReader(Register()).read(text)


def test_everything_that_the_client_library_writes_is_read_as_its_own_parser_reads_it() -> None:
    registry = CollectorRegistry()
    Counter("jobs", "x", ["kind"], registry=registry).labels('quo"te\n\\').inc(2)
    Gauge("free_bytes", "x", registry=registry).set(math.inf)
    Histogram("wait_seconds", "x", ["route"], registry=registry).labels("/").observe(0.2)
    Summary("size", "x", registry=registry).observe(3)
    text = generate_latest(registry).decode()
    expected = {
        (sample.name, canonical_labels(sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert {(metric, labels): value for (metric, labels, _), value in read(text).items()} == expected


def test_labels_that_name_the_place_are_dropped() -> None:
    labels = {"namespace": "n", "instance": "i", "id": "/x", "z": "1", "a": "ä"}
    assert canonical_labels(labels) == '{"a":"ä","z":"1"}'
