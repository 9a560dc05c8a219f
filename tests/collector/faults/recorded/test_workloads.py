"""What faults of workloads show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.collector.faults.conftest import Recorded

pytestmark = pytest.mark.slow


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


def test_what_missing_image_shows(recorded: Recorded) -> None:
    for e in recorded("missing-image"):
        assert {"Failed", "BackOff"} <= e.reasons(e.target)
        assert {"ErrImagePull", "ImagePullBackOff"} & {c.get("reason") for c in e.containers(e.target)}
        assert e.calls_of("server")[1].empty
        assert e.errors_at_client() > 0
