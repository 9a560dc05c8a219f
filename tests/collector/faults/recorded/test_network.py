"""What faults of the network, of requests and of resources show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import RecordedEpisode, assert_untouched, runs_on

pytestmark = pytest.mark.slow


def calls_of_caller(e: RecordedEpisode) -> pd.DataFrame:
    """Spans of the calls that the fault concerns, at their caller, after the onset."""
    _, client = e.calls_of("client", 0)
    return client[client["service"] == e.parameters["caller"]]


def test_what_network_loss_shows(recorded: Recorded) -> None:
    for e in recorded("network-loss"):
        goes_on = runs_on(e)
        dropped = "container_network_transmit_packets_dropped_total"
        if (e.target, dropped) in e.view.wide().columns:
            before, after = e.series(e.target, dropped)
            assert before.iloc[:-1].max() == 0, "the last second before the onset is measured in the one after it"
            assert after.sum() > 0
        else:
            assert e.view.context.platform == "kubernetes", "only a cluster's cAdvisor may have no network"
        client_before, client_after = e.calls_of("client", 0)
        # of several pods one loses packets
        share = 1 - 0.1 / e.replicas
        slower = client_after["duration_ns"].quantile(share) / client_before["duration_ns"].quantile(share)
        assert slower > 3 or not goes_on


def test_what_network_delay_shows(recorded: Recorded) -> None:
    for e in recorded("network-delay"):
        if not runs_on(e):
            continue
        _, client = e.calls_of("client", 0)
        _, server = e.calls_of("server", 0)
        latency_ns = e.parameters["latency_s"] * 1e9
        # of several pods one is slow
        assert client["duration_ns"].quantile(1 - 0.5 / e.replicas) > 0.8 * latency_ns, "client spans are long"
        if not e.app.services[e.target].calls and not e.app.services[e.target].stores:
            assert server["duration_ns"].median() < 0.2 * latency_ns, "server spans are short"


def test_what_network_partition_shows(recorded: Recorded) -> None:
    for e in recorded("network-partition"):
        runs_on(e)
        assert e.spans_of_hit_pod(e.calls_of("server", 5)[1]).empty
        hanging = e.after(e.requests, 0, "scheduled")["outcome"].isin(["unfinished", "timeout"])
        # a program that gives up on its cache panics
        ended = [c for c in e.consumers if e.most_restarts(c) and "timeout" in e.messages(c)]
        # of several pods one is cut off, and its callers ask the others
        assert hanging.any() or ended or e.replicas > 1


def test_what_http_abort_shows(recorded: Recorded) -> None:
    for e in recorded("http-abort"):
        assert_untouched(e)
        # a call in the background may be repeated before anybody misses it
        assert e.errors_at_client() > 0 or e.label.verdict != "manifest"
        if e.spans_tell_outcome:
            calls = calls_of_caller(e)
            assert e.is_error(calls).any() or (calls.empty and e.label.verdict != "manifest")
            _, others = e.calls_of("client", 0)
            assert not e.is_error(others[others["service"] != e.parameters["caller"]]).any()


def test_what_connection_reset_shows(recorded: Recorded) -> None:
    for e in recorded("connection-reset"):
        assert_untouched(e)
        assert e.is_error(calls_of_caller(e)).any() if e.spans_tell_outcome else e.errors_at_client() > 0


def test_what_slow_answers_shows(recorded: Recorded) -> None:
    for e in recorded("slow-answers"):
        assert_untouched(e)
        client, (_, server) = calls_of_caller(e), e.calls_of("server", 0)
        assert client["duration_ns"].max() > 0.9e9 * e.parameters["latency_s"]
        if not e.app.services[e.target].calls and not e.app.services[e.target].stores:
            assert server["duration_ns"].median() < 0.2e9 * e.parameters["latency_s"], "the callee itself is quick"


def test_what_bandwidth_limit_shows(recorded: Recorded) -> None:
    for e in recorded("bandwidth-limit"):
        assert_untouched(e)
        _, sent = e.series(e.target, "container_network_transmit_bytes_total")
        if e.replicas == 1:
            assert sent.median() <= 1.3 * e.parameters["bytes_per_s"]
        else:
            before, after = (e.spans_of_hit_pod(calls) for calls in e.calls_of("server"))
            assert len(after) < len(before), "the pod serves less"


def test_what_network_jitter_shows(recorded: Recorded) -> None:
    for e in recorded("network-jitter"):
        if not runs_on(e):
            continue
        before, after = e.calls_of("client", 0)
        assert after["duration_ns"].std() > 3 * before["duration_ns"].std()


def test_what_slow_store_shows(recorded: Recorded) -> None:
    for e in recorded("slow-store"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["peer_service"] == e.target) & (e.spans["kind"] == "client")]
        assert e.after(calls)["duration_ns"].median() > 3 * e.before(calls)["duration_ns"].median()


def test_what_cpu_throttle_shows(recorded: Recorded) -> None:
    for e in recorded("cpu-throttle"):
        assert_untouched(e)
        before, after = e.series(e.target, "container_cpu_cfs_throttled_periods_total")
        assert after.mean() > max(0.5, 5 * before.mean())


def test_what_cpu_hog_shows(recorded: Recorded) -> None:
    for e in recorded("cpu-hog"):
        assert_untouched(e)
        before, after = e.series(e.target, "container_cpu_usage_seconds_total")
        assert after.median() > 3 * before.median()
        assert after.quantile(0.9) <= 1.25 * e.app.services[e.target].cpu_limit, "it stays inside the pod's limit"


def test_what_memory_limit_shows(recorded: Recorded) -> None:
    for e in recorded("memory-limit"):
        assert "OOMKilled" in {c.get("reason") for c in e.containers(e.target)}
        assert e.most_restarts(e.target) >= 1
