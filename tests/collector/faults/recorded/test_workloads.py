"""What faults of workloads, Services, builds and operators show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import RecordedEpisode, assert_untouched

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


def test_what_buggy_image_shows(recorded: Recorded) -> None:
    for e in recorded("buggy-image"):
        assert "no reachable servers" in e.messages(e.target)
        assert e.retries_logins or 2 in e.exit_codes(e.target)
        assert any(c["image"].endswith(e.parameters["image"]) for c in e.containers(e.target))
        assert "ScalingReplicaSet" in e.reasons(e.target)


def test_what_wrong_binary_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-binary"):
        running = [pod for pod in e.states("Pod", e.target) if pod["phase"] == "Running"]
        assert running
        assert e.most_restarts(e.target) == 0
        spans = e.after(e.spans, 7)
        reported = set(spans[spans["service"] == e.target]["reported_service"].astype(str))
        assert e.target not in reported
        program = e.parameters["program"]
        assert any(f"{said}{program}" in e.messages(e.target) for said in ("srv-", "Starting the "))
        assert e.errors_at_client() > 0


def test_what_slow_build_shows(recorded: Recorded) -> None:
    for e in recorded("slow-build"):
        assert e.most_restarts(e.target) == 0
        before, after = e.calls_of("server")
        assert after["duration_ns"].quantile(0.9) > max(8e7, 3 * before["duration_ns"].quantile(0.9))


def test_what_failing_build_shows(recorded: Recorded) -> None:
    for e in recorded("failing-build"):
        assert e.most_restarts(e.target) == 0
        if e.spans_tell_outcome:
            assert 0 < e.is_error(e.calls_of("server")[1]).mean() < 0.8
        assert 0 < e.error_share_at_client() < 0.8


def test_what_connection_pool_exhausted_shows(recorded: Recorded) -> None:
    for e in recorded("connection-pool-exhausted"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")]
        before, after = e.before(calls), e.after(calls, 10)
        assert after["duration_ns"].quantile(0.9) > 2 * before["duration_ns"].quantile(0.9)


def test_what_one_bad_replica_shows(recorded: Recorded) -> None:
    for e in recorded("one-bad-replica"):
        images = {c["image"].rpartition(":")[2] for c in e.containers(e.target)}
        assert e.parameters["image"].rpartition(":")[2] in images
        assert len(images) > 1, "good pods run beside the bad one"
        assert e.most_restarts(e.target) == 1, "the image of one pod was changed in place"
        _, after = e.calls_of("server")
        slow = after["duration_ns"] > 8e7
        if e.spans_tell_outcome:
            assert 0 < (e.is_error(after) | slow).mean() < 0.8
        else:
            assert 0 < max(e.error_share_at_client(), slow.mean()) < 0.8


def test_what_memory_leak_shows(recorded: Recorded) -> None:
    for e in recorded("memory-leak"):
        assert 137 in e.exit_codes(e.target)
        assert "OOMKilled" in {c.get("reason") for c in e.containers(e.target)}
        before, after = e.series(e.target, "container_memory_working_set_bytes")
        assert after.max() > 1.5 * before.max()


_NO_ROOM = "Insufficient cpu|Insufficient memory|Too many pods|pod topology spread constraints"
"""The last where the pods of a component share a place of limited size, as on a cluster."""


def assert_clients_feel_nothing(e: RecordedEpisode) -> None:
    assert e.errors_at_client() == 0
    # a rollout beside the fault may be felt, and nobody can tell then what was
    assert e.label.verdict != "manifest" or e.rolled_out_services


def assert_resource_is_the_cause(e: RecordedEpisode) -> None:
    (cause,) = e.label.root_causes
    assert (cause.kind, cause.name) == ("TidbCluster", "basic")
    assert {cause.service, "basic", "tidbclusters"} == set(cause.accepted)


def assert_update_is_refused(e: RecordedEpisode, words: str) -> None:
    assert_resource_is_the_cause(e)
    assert_clients_feel_nothing(e)
    assert_untouched(e)
    told = e.events[e.events["kind"] == "TidbCluster"]
    assert (told["type"] == "Warning").all()
    assert told["reason"].str.fullmatch("FailedUpdate(PD|TiKV|TiDB)STS").all()
    assert told["message"].str.contains(words, regex=False).all()
    assert words in e.messages("tidb-operator")
    before, after = e.series("tidb-operator", "tidb_operator_cluster_update_errors")
    assert before.max() == 0 < after.max()


def test_what_overload_replicas_shows(recorded: Recorded) -> None:
    for e in recorded("overload-replicas"):
        assert_resource_is_the_cause(e)
        assert e.parameters["replicas"] in {state["replicas"] for state in e.states("StatefulSet", e.target)}
        _, wanted = e.series(e.target, "kube_statefulset_replicas")
        assert wanted.max() == e.parameters["replicas"]
        _, ready = e.series(e.target, "kube_statefulset_status_replicas_ready")
        assert 2 <= ready.max() < 20
        said = e.events.loc[e.events["reason"] == "FailedScheduling", "message"]
        assert said.str.contains(_NO_ROOM).any()


def test_what_invalid_toleration_shows(recorded: Recorded) -> None:
    for e in recorded("invalid-toleration"):
        assert_update_is_refused(e, 'Unsupported value: "TAKE_SOME_EFFECT"')


def test_what_invalid_security_context_shows(recorded: Recorded) -> None:
    for e in recorded("invalid-security-context"):
        assert_update_is_refused(e, "runAsUser: Invalid value: -1")


def test_unknown_update_strategy_shows_nothing(recorded: Recorded) -> None:
    for e in recorded("unknown-update-strategy"):
        assert_resource_is_the_cause(e)
        assert_clients_feel_nothing(e)
        assert_untouched(e)
        warnings = e.events[e.events["type"] == "Warning"]
        assert set(warnings["service"].dropna().astype(str)) <= e.rolled_out_services


def test_what_nonexistent_storage_class_shows(recorded: Recorded) -> None:
    for e in recorded("nonexistent-storage-class"):
        assert_resource_is_the_cause(e)
        assert any(state["phase"] == "Pending" for state in e.states("PersistentVolumeClaim", e.target))
        assert e.events["reason"].eq("ProvisioningFailed").any()
        said = e.events.loc[e.events["reason"] == "FailedScheduling", "message"]
        assert said.str.contains("unbound immediate PersistentVolumeClaims").any()
        assert "pdRPC backoffer.maxSleep 8000ms is exceeded" in e.messages("tidb")
        assert e.errors_at_client() > 0


def test_what_wrong_operator_image_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-operator-image"):
        assert_clients_feel_nothing(e)
        assert {"Failed", "BackOff"} <= e.reasons(e.target)
        assert {"ErrImagePull", "ImagePullBackOff"} & {c.get("reason") for c in e.containers(e.target)}
