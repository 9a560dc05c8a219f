"""What faults of an operator and its custom resource show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import RecordedEpisode, assert_untouched

pytestmark = pytest.mark.slow


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
