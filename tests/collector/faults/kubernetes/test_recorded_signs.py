"""What faults of Kubernetes objects show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pandas as pd
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


def test_what_scale_to_zero_shows(recorded: Recorded) -> None:
    for e in recorded("scale-to-zero"):
        assert {"ScalingReplicaSet", "Killing"} <= e.reasons(e.target)
        scaled = e.events[(e.events["service"] == e.target) & (e.events["reason"] == "ScalingReplicaSet")]
        assert scaled["message"].str.contains("from 1 to 0|to 0 from 1").any()
        _, after = e.series(e.target, "container_cpu_usage_seconds_total")
        assert after.empty or after.index.max() < e.onset + pd.Timedelta(seconds=35), "its series end"
        assert e.calls_of("server")[1].empty
        assert e.errors_at_client() > 0


def test_what_nonexistent_node_shows(recorded: Recorded) -> None:
    for e in recorded("nonexistent-node"):
        assert "FailedScheduling" in e.reasons(e.target)
        said = e.events.loc[e.events["reason"] == "FailedScheduling", "message"]
        assert said.str.contains("didn't match Pod's node affinity/selector").any()
        assert any(pod["phase"] == "Pending" for pod in e.states("Pod", e.target))
        assert e.calls_of("server")[1].empty


def test_what_pod_failure_shows(recorded: Recorded) -> None:
    for e in recorded("pod-failure"):
        about = e.events[e.events["service"] == e.target]
        assert about["message"].str.contains("definition changed, will be restarted").any()
        assert e.most_restarts(e.target) == 1
        assert e.states("Pod", e.target)[-1]["phase"] == "Running"
        assert e.states("Pod", e.target)[-1]["ready"] is True
        assert e.calls_of("server")[1].empty
        assert e.errors_at_client() > 0


def test_what_container_kill_shows(recorded: Recorded) -> None:
    for e in recorded("container-kill"):
        assert 137 in e.exit_codes(e.target)
        assert e.most_restarts(e.target) >= 2
        assert "Started" in e.reasons(e.target)
        assert "OOMKilled" not in {c.get("reason") for c in e.containers(e.target)}


def test_what_pod_kill_shows(recorded: Recorded) -> None:
    for e in recorded("pod-kill"):
        objects = e.view.objects()
        names = set(objects[(objects["kind"] == "Pod") & (objects["service"] == e.target)]["name"])
        assert len(names) >= 3
        assert e.most_restarts(e.target) == 0


def test_what_redeploy_without_pv_shows(recorded: Recorded) -> None:
    for e in recorded("redeploy-without-pv"):
        assert any(state["phase"] == "Pending" for state in e.states("PersistentVolumeClaim", e.target))
        assert e.events["reason"].eq("ProvisioningFailed").any()
        said = e.events.loc[e.events["reason"] == "FailedScheduling", "message"]
        assert said.str.contains("unbound immediate PersistentVolumeClaims").any()
        complaining = [c for c in e.consumers if e.most_restarts(c) >= 1 or "no reachable servers" in e.messages(c)]
        assert complaining or e.errors_at_client() > 0


def test_what_wrong_selector_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-selector"):
        assert_untouched(e)
        assert e.calls_of("server")[1].empty, "the callee is idle once pooled connections have retired"
        assert any(state["ready"] == 0 for state in e.states("Endpoints", e.target))
        assert any(e.parameters["label"] in state["selector"] for state in e.states("Service", e.target))
        assert e.errors_at_client() > 0


def test_what_missing_image_shows(recorded: Recorded) -> None:
    for e in recorded("missing-image"):
        assert {"Failed", "BackOff"} <= e.reasons(e.target)
        assert {"ErrImagePull", "ImagePullBackOff"} & {c.get("reason") for c in e.containers(e.target)}
        assert e.calls_of("server")[1].empty
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


def test_what_one_bad_replica_shows(recorded: Recorded) -> None:
    for e in recorded("one-bad-replica"):
        images = {c["image"].rpartition(":")[2] for c in e.containers(e.target)}
        assert {e.parameters["image"].rpartition(":")[2], "1.0.0"} <= images, "good pods run beside the bad one"
        assert e.most_restarts(e.target) == 1, "the image of one pod was changed in place"
        _, after = e.calls_of("server")
        slow = after["duration_ns"] > 8e7
        if e.spans_tell_outcome:
            assert 0 < (e.is_error(after) | slow).mean() < 0.8
        else:
            assert 0 < max(e.error_share_at_client(), slow.mean()) < 0.8


def test_what_wrong_config_key_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-config-key"):
        waiting = {c["reason"] for c in e.containers(e.target) if c["state"] == "waiting"}
        if e.parameters["use"] == "variable":
            assert "CreateContainerConfigError" in waiting
            about = e.events[(e.events["service"] == e.target) & (e.events["reason"] == "Failed")]
            assert about["message"].str.contains(f"couldn't find key {e.parameters['key']}").any()
        maps = e.after(e.view.objects())
        texts = maps.loc[maps["name"] == e.parameters["config_map"], "data"].astype(str)
        assert texts.str.contains(e.parameters["renamed"], regex=False).any()
        assert e.errors_at_client() > 0
