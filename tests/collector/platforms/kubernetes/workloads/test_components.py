"""What a custom resource asks for on a shared cluster."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from object_server import ObjectServer

from faultset.collector.apps import load_app
from faultset.collector.apps.tidb.stateful_sets import stateful_set
from faultset.collector.faults.operator import has_field
from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.api.objects import Objects
from faultset.collector.platforms.kubernetes.workloads.cluster_manifests import placed
from faultset.collector.platforms.kubernetes.workloads.components import component_volumes, lacks_storage_class
from faultset.collector.platforms.observation.quantities import quantity
from faultset.collector.spec.manifests import manifests

TIDB, HOTEL = load_app("tidb"), load_app("hotel")
COMPONENTS = ("pd", "tikv", "tidb")


def objects(*, own_volumes: bool) -> dict[tuple[str, str], dict[str, Any]]:
    wanted = manifests(TIDB, telemetry_endpoint="http://t")
    made = placed(wanted, TIDB, "tidb-1", repository="r.example/faultset/app", own_volumes=own_volumes)
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


def workload(component: str, *, own_volumes: bool = False) -> dict[str, Any]:
    """Return the StatefulSet that the operator makes of the custom resource."""
    return stateful_set(TIDB, objects(own_volumes=own_volumes)["TidbCluster", "basic"], component, "http://t")


def test_the_pods_of_all_components_fit_on_a_small_node() -> None:
    used = {"cpu": 0.0, "memory": 0.0}
    for component in COMPONENTS:
        spec = workload(component)["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == TIDB.services[component].resources()["limits"]
        for key in used:
            used[key] += spec["replicas"] * quantity(container["resources"]["requests"][key])
    assert used["cpu"] < 0.31
    assert used["memory"] <= 512 * 2**20


def test_pods_come_from_the_users_repository_and_know_their_namespace() -> None:
    (container,) = workload("tikv")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "r.example/faultset/app:1.0.0"
    assert [one["name"] for one in container["env"]].count("POD_NAMESPACE") == 1


def test_pods_run_as_an_ordinary_user_without_a_token_and_a_fault_of_the_user_still_shows() -> None:
    pod = workload("tikv")["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsUser"], pod["automountServiceAccountToken"]) == (1000, False)
    resource = objects(own_volumes=False)["TidbCluster", "basic"]
    platform: Any = SimpleNamespace(app=TIDB, get=lambda kind, name: resource)
    wanted = {"podSecurityContext": {"runAsUser": -1}}
    assert not has_field(platform, "tikv", wanted)
    resource["spec"]["tikv"]["podSecurityContext"]["runAsUser"] = -1
    assert has_field(platform, "tikv", wanted)


def test_a_component_without_volumes_has_room_for_a_few_pods_more_on_all_nodes_together() -> None:
    (room,) = workload("tidb")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert (room["maxSkew"], room["topologyKey"], room["whenUnsatisfiable"]) == (5, "kubernetes.io/os", "DoNotSchedule")
    assert room["minDomains"] > 2, "so that an empty place counts as the least filled one"
    assert room["labelSelector"]["matchLabels"] == workload("tidb")["spec"]["selector"]["matchLabels"]
    assert "topologySpreadConstraints" not in workload("tikv")["spec"]["template"]["spec"]


def test_claims_are_bound_to_volumes_of_ours_where_the_cluster_makes_none() -> None:
    store = Objects(None, "tidb-1", own_volumes=True)  # type: ignore[arg-type]
    volumes = [store.stored(one) for one in placed(component_volumes(TIDB), TIDB, "tidb-1", repository="faultset/app")]
    for component in ("pd", "tikv"):
        stateful = workload(component, own_volumes=True)["spec"]
        (claim,) = stateful["volumeClaimTemplates"]
        bound = [one for one in volumes if one["spec"]["storageClassName"] == claim["spec"]["storageClassName"]]
        assert len(bound) == 2 * stateful["replicas"], "each can be replaced once"
        assert {one["spec"]["capacity"]["storage"] for one in bound} == {
            claim["spec"]["resources"]["requests"]["storage"]
        }
        assert all(one["spec"]["hostPath"]["path"].startswith("/var/lib/faultset/tidb-1/") for one in bound)
    assert "storageClassName" not in workload("pd")["spec"]["volumeClaimTemplates"][0]["spec"]


@pytest.mark.parametrize(("default", "lacks"), [("true", False), ("false", True), (None, True)])
def test_volumes_of_ours_are_needed_without_a_default_storage_class(
    default: str | None, lacks: bool, object_server: ObjectServer, connect: Callable[..., Api]
) -> None:
    marks = {} if default is None else {"storageclass.kubernetes.io/is-default-class": default}
    object_server.put("storageclasses", {"metadata": {"name": "standard", "annotations": marks}})
    api = connect(object_server)
    assert lacks_storage_class(api, TIDB) is lacks
    assert not lacks_storage_class(api, HOTEL)
    assert not lacks_storage_class(api, load_app("tidb-pingcap"))


def test_the_operators_pod_has_the_account_that_its_role_is_bound_to() -> None:
    made = objects(own_volumes=False)
    assert not [kind for kind, _ in made if kind == "CustomResourceDefinition"]
    pod = made["Deployment", "tidb-operator"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"]
    assert [one["name"] for one in pod["containers"][0]["env"]].count("POD_NAMESPACE") == 1
    binding = made["RoleBinding", "tidb-operator"]
    subject = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": "tidb-1"}
    assert binding["subjects"] == [subject]
    assert binding["roleRef"]["name"] == made["Role", "tidb-operator"]["metadata"]["name"]
    assert not made["Deployment", "tikv-engine"]["spec"]["template"]["spec"]["automountServiceAccountToken"]
