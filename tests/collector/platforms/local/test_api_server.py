"""An operator's client and the embedded API server understand each other."""

from __future__ import annotations

import threading

import pytest

from faultset.collector.platforms.local.api_server import ApiHttpServer, ObjectApi
from faultset.collector.runtime.cluster_api import ApiRefusal, ResourceType, cluster_api
from faultset.core.errors import PlatformError

SETS, SERVICES, EVENTS = (
    ResourceType("apps/v1", "statefulsets"),
    ResourceType("v1", "services"),
    ResourceType("v1", "events"),
)
CLUSTERS = ResourceType("pingcap.com/v1alpha1", "tidbclusters")
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "tidbclusters.pingcap.com"},
    "spec": {
        "group": "pingcap.com",
        "names": {"kind": "TidbCluster", "plural": "tidbclusters"},
        "versions": [{"name": "v1alpha1"}],
    },
}
CLUSTER = {
    "apiVersion": "pingcap.com/v1alpha1",
    "kind": "TidbCluster",
    "metadata": {"name": "basic"},
    "spec": {"pd": {}},
}


@pytest.fixture
def api(bench, tmp_path):
    front = ApiHttpServer(tmp_path / "a" / "api.sock", bench.store, bench.cluster.events, threading.RLock())
    yield cluster_api({"FAULTSET_API": str(tmp_path / "a" / "api.sock"), "POD_NAMESPACE": "shop"})
    front.close()


def test_objects_are_created_read_patched_and_deleted(api, bench, manifest):
    assert api.get(SETS, "pd") is None
    made = {**manifest.deployment("pd"), "kind": "StatefulSet"}
    assert api.create(SETS, made)["metadata"]["namespace"] == "shop"
    api.patch(SETS, "pd", {"spec": {"replicas": 2}})
    assert bench.store.get("StatefulSet", "pd")["spec"]["replicas"] == 2
    assert [one["metadata"]["name"] for one in api.list(SETS, {"app": "pd"})] == ["pd"]
    assert api.list(SETS, {"app": "other"}) == []
    api.delete(SETS, "pd")
    api.delete(SETS, "pd")
    assert bench.store.find("StatefulSet", "pd") is None


def test_a_custom_resource_is_there_once_it_is_defined_and_its_status_is_set_apart(api, bench):
    with pytest.raises(ApiRefusal, match="could not find the requested resource"):
        api.create(CLUSTERS, CLUSTER)
    bench.apply(DEFINITION, CLUSTER)
    found = api.get(CLUSTERS, "basic")
    api.set_status(CLUSTERS, {**found, "spec": {"pd": {"replicas": 9}}}, {"pd": {"phase": "Normal"}})
    after = api.get(CLUSTERS, "basic")
    assert (after["spec"], after["status"]) == ({"pd": {}}, {"pd": {"phase": "Normal"}})
    assert after["metadata"]["generation"] == 1


def test_what_is_invalid_is_refused_with_the_servers_words(api, manifest):
    wrong = {**manifest.deployment("pd", pod={"securityContext": {"runAsUser": -1}}), "kind": "StatefulSet"}
    with pytest.raises(ApiRefusal, match="runAsUser: Invalid value: -1") as refused:
        api.create(SETS, wrong)
    assert refused.value.status == 422


def test_an_event_is_recorded_about_its_object(api, bench):
    bench.apply(DEFINITION, CLUSTER)
    about = {"kind": "TidbCluster", "name": "basic"}
    api.create(
        EVENTS, {"kind": "Event", "involvedObject": about, "type": "Warning", "reason": "Failed", "message": "no"}
    )
    (seen,) = [one for one in bench.cluster.events.events if one.kind == "TidbCluster"]
    assert (seen.type, seen.reason, seen.message) == ("Warning", "Failed", "no")


def test_another_namespace_and_half_an_object_are_refused(bench):
    answer = ObjectApi(bench.store, bench.cluster.events).respond
    assert answer("GET", "/api/v1/namespaces/other/services/pd")[0] == 403
    assert answer("POST", "/api/v1/namespaces/shop/services", {"kind": "Service"})[0] == 400
    assert answer("DELETE", "/api/v1/namespaces/shop/services")[0] == 405
    assert answer("GET", "/apis/nothing")[0] == 404


def test_a_pod_without_an_account_is_told_what_it_lacks():
    with pytest.raises(PlatformError, match=r"the API server is not reachable: .*; run this in a pod with the account"):
        cluster_api({})


def test_only_pods_with_an_account_learn_where_the_api_server_is(bench, manifest):
    bench.cluster.context.api_socket = "/run/api.sock"
    bench.apply(manifest.deployment("geo"), manifest.deployment("operator", pod={"serviceAccountName": "operator"}))
    found = {start.service: start.env.get("FAULTSET_API") for start in bench.starts()}
    assert found == {"geo": None, "operator": "/run/api.sock"}
