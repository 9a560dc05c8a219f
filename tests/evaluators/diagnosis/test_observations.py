"""Observations name the telemetry that changed, with times and values."""

from __future__ import annotations

import json

import pytest

from faultset.datasets.views import EpisodeView
from faultset.evaluators.diagnosis.observations import MAX_OBSERVATIONS, observe_changes, select_observations
from faultset.evaluators.diagnosis.records import Observation
from tests.datasets.conftest import SECOND, START_NS

MOMENT_NS = START_NS + 50 * SECOND
"""08:54:10 UTC; the view starts at 08:53:20 and its reference ends at 08:54:00."""


def texts(folder, service="geo"):
    return [item.text for item in observe_changes(EpisodeView(folder), MOMENT_NS, ["front", "geo"])[service]]


def test_nothing_is_observed_about_a_service_that_did_not_change(write_episode, sample, log):
    metrics = [sample("container_memory_rss", at, 1e6 + at % 2) for at in range(100)]
    folder = write_episode(metrics=metrics, logs=[log(at, "handled request") for at in range(100)])
    assert texts(folder) == []


def test_a_metric_is_described_with_its_unit_values_time_and_usual_range(write_episode, sample):
    metrics = [sample("container_memory_rss", at, (2e6 if at >= 52 else 1e6) + 1e4 * (at % 2)) for at in range(100)]
    [text] = texts(write_episode(metrics=metrics))
    assert text.startswith("container_memory_rss rose from 1 MB to 2 MB at 08:54:12, ")
    assert text.endswith(" healthy spreads, at most 0.5 before")


def test_a_small_step_of_a_constant_size_is_shown_in_bytes(write_episode, sample):
    metrics = [sample("container_memory_rss", at, 12_400_000 if at < 52 else 11_600_000) for at in range(100)]
    [text] = texts(write_episode(metrics=metrics))
    assert text.startswith("container_memory_rss fell from 12,400,000 bytes to 11,600,000 bytes at 08:54:12, ")


def test_a_counter_is_a_rate_per_second(write_episode, sample):
    total, metrics = 0.0, []
    for at in range(100):
        total += (5 if at >= 52 else 1) + at % 2 / 10
        metrics.append(sample("container_cpu_usage_seconds_total", at, total, "counter"))
    [text] = texts(write_episode(metrics=metrics))
    assert text.startswith("container_cpu_usage_seconds_total rose from 1.05/s to 5.05/s at 08:54:1")


def test_metrics_that_stopped_are_one_observation(write_episode, sample):
    metrics = [sample(f"container_memory_{name}", at, at % 3) for name in ("rss", "cache") for at in range(60)]
    metrics += [sample("container_memory_rss", at, at % 3, service="front") for at in range(100)]
    [text] = texts(write_episode(metrics=metrics))
    assert text.startswith("2 of 2 metrics stopped by 08:54:")


def test_new_log_lines_count_from_the_first_one(write_episode, log):
    logs = [log(at, "handled request") for at in range(100)]
    logs += [log(55 + at, f"timeout after {at} ms", level="error") for at in range(20)]
    [text] = texts(write_episode(logs=logs))
    assert text == '20 error lines "timeout after <*> ms" since 08:54:15, none in the reference of 40 s'


def test_missing_log_lines_are_compared_with_the_reference(write_episode, log):
    [text] = texts(write_episode(logs=[log(at, "handled request") for at in range(50)]))
    assert text == "0 log lines since 08:54:10, where 50 were expected"


def span(at_s, duration_s=0.02, status="ok"):
    return {
        "time": START_NS + round(at_s * SECOND),
        "trace_id": f"{round(at_s * 10):032x}",
        "span_id": f"{round(at_s * 10):016x}",
        "service": "front",
        "reported_service": "front",
        "pod": "front-1",
        "attributes": "{}",
        "peer_service": "geo",
        "operation": "GET",
        "kind": "client",
        "duration_ns": round(duration_s * SECOND),
        "status": status,
    }


def test_failed_and_slow_calls_name_the_share_and_the_duration(write_episode):
    spans = [span(at / 2, status="error" if at >= 120 else "ok") for at in range(200)]
    assert texts(write_episode("failing", spans=spans)) == [
        "80 of 100 calls to it failed since 08:54:20, 0 of 80 in the reference"
    ]
    spans = [span(at / 2, 0.5 if at >= 104 else 0.02 + 0.001 * (at % 4)) for at in range(200)]
    [text] = texts(write_episode("slow", spans=spans))
    assert text.startswith("calls to it took 500 ms instead of 22 ms since 08:54:12, ")


def test_calls_that_stay_away_are_a_rate(write_episode):
    [text] = texts(write_episode(spans=[span(at / 2) for at in range(100)]))
    assert text == "0 calls to it per second since 08:54:10, 2 in the reference"


def states(kind, name, before, after, change_s=60):
    return [
        {
            "time": START_NS + at * SECOND,
            "kind": kind,
            "name": name,
            "service": "geo",
            "state": json.dumps(after if at >= change_s else before),
        }
        for at in range(0, 100, 10)
    ]


def test_a_changed_specification_names_fields_and_values(write_episode):
    ports = [{"port": 80, "targetPort": 8080}], [{"port": 80, "targetPort": 9999}]
    objects = states("Service", "geo", {"ports": ports[0]}, {"ports": ports[1]})
    assert texts(write_episode(objects=objects)) == ["Service/geo: ports.0.targetPort from 8080 to 9999 at 08:54:20"]


def test_signs_of_trouble_and_warnings_begin_when_first_seen(write_episode):
    objects = states("Pod", "geo-1", {"ready": True, "phase": "Running"}, {"ready": False, "phase": "Running"})
    event = {"type": "Warning", "kind": "Pod", "name": "geo-1", "service": "geo", "count": 1}
    events = [
        event | {"time": START_NS + at * SECOND, "reason": reason, "message": message}
        for at, reason, message in ((10, "Old", "usual"), (70, "BackOff", "restarting"), (80, "BackOff", "restarting"))
    ]
    assert texts(write_episode(objects=objects, events=events)) == [
        "Pod/geo-1: pod not ready since 08:54:20",
        "event BackOff (2 times since 08:54:30): restarting",
    ]


@pytest.mark.parametrize("text", ["\x1b[2Jgone", "line\nbreak"])
def test_control_characters_of_log_lines_are_escaped(write_episode, log, text):
    [found] = texts(write_episode(logs=[log(55 + at / 10, text, level="error") for at in range(40)]))
    assert found.isprintable()


def test_the_strongest_of_each_kind_come_first_and_are_shown_in_order_of_time():
    def item(kind, strength, time_ns):
        return Observation(
            service="geo", kind=kind, subject="", time_ns=time_ns, strength=strength, text=f"{kind} {strength}"
        )

    items = [item("metric", strength, 10 - strength) for strength in range(6)] + [item("calls", 0.1, 1)]
    chosen = select_observations(items)
    assert [entry.text for entry in chosen] == ["calls 0.1", "metric 5", "metric 4", "metric 3"]
    assert len(chosen) == MAX_OBSERVATIONS
