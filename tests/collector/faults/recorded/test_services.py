"""What faults of Services and probes show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import assert_untouched

pytestmark = pytest.mark.slow


def test_what_target_port_shows(recorded: Recorded) -> None:
    for e in recorded("target-port"):
        _, server_after = e.calls_of("server")
        assert server_after.empty, "the callee is idle once pooled connections have retired"
        assert e.most_restarts(e.target) == 0, "the callee is healthy"
        if e.spans_tell_outcome:
            _, client_after = e.calls_of("client")
            assert e.is_error(client_after).all()
            assert client_after["attributes"].str.contains("connection refused").any()
        assert e.errors_at_client() > 0
        ports = [port for state in e.states("Service", e.target) for port in state["ports"]]
        assert e.parameters["target_port"] in {port["targetPort"] for port in ports}


def test_what_wrong_selector_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-selector"):
        assert_untouched(e)
        assert e.calls_of("server")[1].empty, "the callee is idle once pooled connections have retired"
        assert any(state["ready"] == 0 for state in e.states("Endpoints", e.target))
        assert any(e.parameters["label"] in state["selector"] for state in e.states("Service", e.target))
        assert e.errors_at_client() > 0


def test_what_missing_service_shows(recorded: Recorded) -> None:
    for e in recorded("missing-service"):
        assert_untouched(e)
        assert e.calls_of("server")[1].empty
        assert e.errors_at_client() > 0


def test_what_failing_readiness_probe_shows(recorded: Recorded) -> None:
    for e in recorded("failing-readiness-probe"):
        assert e.most_restarts(e.target) == 0
        about = e.events[(e.events["service"] == e.target) & (e.events["reason"] == "Unhealthy")]
        assert about["message"].str.startswith("Readiness probe failed").any()
        assert any(pod["phase"] == "Running" and not pod["ready"] for pod in e.states("Pod", e.target))
        assert e.calls_of("server")[1].empty
        assert e.errors_at_client() > 0


def test_what_killing_liveness_probe_shows(recorded: Recorded) -> None:
    for e in recorded("killing-liveness-probe"):
        about = e.events[e.events["service"] == e.target]
        assert about["message"].str.contains("failed liveness probe, will be restarted").any()
        assert e.most_restarts(e.target) >= 1
        assert e.errors_at_client() > 0
