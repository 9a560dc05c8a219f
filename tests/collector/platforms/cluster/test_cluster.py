"""Addresses and endpoints of Services."""

from __future__ import annotations

import pytest


def test_every_service_and_pod_has_an_address_of_its_own(bench, manifest):
    for name in ("geo", "rate"):
        bench.apply(manifest.deployment(name), manifest.service(name))
    services = {bench.store.get("Service", name)["spec"]["clusterIP"] for name in ("geo", "rate")}
    pods = {bench.pod(name)["status"]["podIP"] for name in ("geo", "rate")}
    assert len(services) == len(pods) == 2


def test_endpoints_follow_the_target_port(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo", 8083))
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert [port["port"] for port in subset["ports"]] == [8083]
    bench.patch("Service", "geo", {"spec": {"ports": [{"port": 8083, "targetPort": 9999}]}})
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert [port["port"] for port in subset["ports"]] == [9999]
    assert [found["targetRef"]["name"] for found in subset["addresses"]] == [bench.name("geo")]


def test_a_named_target_port_is_looked_up_in_the_pod(bench, manifest):
    ports = [{"name": "http", "containerPort": 8083}]
    bench.apply(manifest.deployment("geo", container={"ports": ports}), manifest.service("geo", 80, "http"))
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert subset["ports"][0]["port"] == 8083


def test_a_selector_that_matches_nothing_leaves_no_endpoints(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    bench.patch("Service", "geo", {"spec": {"selector": {"other": "label"}}})
    assert bench.store.get("Endpoints", "geo")["subsets"] == []


def test_a_deleted_service_takes_its_endpoints_along(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    bench.delete("Service", "geo")
    assert bench.store.list("Endpoints") == []


SELECTOR = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-77"}}}}}


def test_a_pod_for_an_unknown_node_stays_pending_and_says_why(bench, manifest):
    bench.apply(manifest.deployment("geo", strategy={"type": "Recreate"}))
    bench.patch("Deployment", "geo", SELECTOR)
    pod = bench.pod("geo")
    assert pod["status"]["phase"] == "Pending"
    assert "nodeName" not in pod["spec"]
    (message,) = bench.messages("FailedScheduling")
    assert message.startswith(
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption:"
    )


def test_scheduling_is_tried_again_at_growing_intervals(bench, manifest):
    bench.apply(manifest.deployment("geo", pod={"nodeSelector": {"kubernetes.io/hostname": "moon"}}))
    start = bench.now_ns
    bench.advance(400)
    seen = [found for found in bench.cluster.events.events if found.reason == "FailedScheduling"]
    assert [(found.time_ns - start) // 10**9 for found in seen] == [0, 30, 90, 210]
    assert [found.count for found in seen] == [1, 2, 3, 4]


def test_the_pod_runs_as_soon_as_the_selector_is_gone(bench, manifest):
    bench.apply(manifest.deployment("geo", strategy={"type": "Recreate"}))
    bench.patch("Deployment", "geo", SELECTOR)
    bench.patch("Deployment", "geo", {"spec": {"template": {"spec": {"nodeSelector": None}}}})
    assert bench.pod("geo")["status"]["phase"] == "Running"


def test_a_pod_that_asks_for_more_than_the_node_has_stays_pending(bench, manifest):
    bench.apply(manifest.deployment("geo", container={"resources": {"requests": {"memory": "900Gi"}}}))
    assert bench.pod("geo")["status"]["phase"] == "Pending"
    assert "1 Insufficient memory" in bench.messages("FailedScheduling")[0]


@pytest.fixture
def stateful(bench, manifest):
    """A store with its claim and volume."""
    bench.apply(manifest.volume("geo"), manifest.claim("geo"), manifest.claiming("geo"))
    return bench


def phase(bench, kind, name):
    return bench.store.get(kind, name)["status"]["phase"]


def replace_claim(bench, manifest):
    bench.patch("Deployment", "geo", {"spec": {"replicas": 0}})
    bench.delete("PersistentVolumeClaim", "geo-pvc")
    bench.apply(manifest.claim("geo"))
    bench.patch("Deployment", "geo", {"spec": {"replicas": 1}})


def test_a_claim_binds_a_volume_of_its_class(stateful):
    assert phase(stateful, "PersistentVolumeClaim", "geo-pvc") == "Bound"
    assert phase(stateful, "PersistentVolume", "geo-pv") == "Bound"
    assert stateful.pod("geo")["status"]["phase"] == "Running"
    (started,) = stateful.starts()
    assert [mount.volume for mount in started.mounts] == ["geo-pv"]


def test_a_released_volume_does_not_bind_a_new_claim(stateful, manifest):
    replace_claim(stateful, manifest)
    assert phase(stateful, "PersistentVolume", "geo-pv") == "Released"
    assert phase(stateful, "PersistentVolumeClaim", "geo-pvc") == "Pending"
    assert stateful.pod("geo")["status"]["phase"] == "Pending"
    assert stateful.messages("ProvisioningFailed") == ['storageclass.storage.k8s.io "geo-storage" not found']
    assert "pod has unbound immediate PersistentVolumeClaims" in stateful.messages("FailedScheduling")[-1]


def test_a_volume_without_its_claim_reference_binds_again(stateful, manifest):
    replace_claim(stateful, manifest)
    stateful.patch("PersistentVolume", "geo-pv", {"spec": {"claimRef": None}})
    assert phase(stateful, "PersistentVolume", "geo-pv") == "Bound"
    assert stateful.pod("geo")["status"]["phase"] == "Running"


def test_a_claim_in_use_is_deleted_only_when_its_pod_is_gone(stateful):
    stateful.delete("PersistentVolumeClaim", "geo-pvc")
    assert stateful.store.get("PersistentVolumeClaim", "geo-pvc")["metadata"]["deletionTimestamp"]
    stateful.patch("Deployment", "geo", {"spec": {"replicas": 0}})
    assert stateful.store.list("PersistentVolumeClaim") == []


def test_a_claim_without_finalizers_is_not_protected(stateful):
    stateful.delete("PersistentVolumeClaim", "geo-pvc")
    stateful.patch("PersistentVolumeClaim", "geo-pvc", {"metadata": {"finalizers": None}})
    assert stateful.store.list("PersistentVolumeClaim") == []


def test_a_pod_without_its_claim_stays_pending(bench, manifest):
    bench.apply(manifest.claiming("geo"))
    assert 'persistentvolumeclaim "geo-pvc" not found' in bench.messages("FailedScheduling")[0]


def test_a_claim_does_not_bind_a_volume_that_is_too_small(bench, manifest):
    small = manifest.volume("geo")
    small["spec"]["capacity"]["storage"] = "10Mi"
    bench.apply(small, manifest.claim("geo"))
    assert phase(bench, "PersistentVolumeClaim", "geo-pvc") == "Pending"
    bench.advance(31)
    assert [len(bench.messages("ProvisioningFailed"))] == [3]


def test_a_claim_of_the_clusters_own_class_gets_a_volume_that_ends_with_it(bench, manifest):
    made = manifest.claim("geo")
    del made["spec"]["storageClassName"]
    bench.apply(made)
    found = bench.store.get("PersistentVolumeClaim", "geo-pvc")
    assert (found["spec"]["storageClassName"], found["status"]["phase"]) == ("standard", "Bound")
    (volume,) = bench.store.list("PersistentVolume")
    assert volume["metadata"]["name"] == f"pvc-{found['metadata']['uid']}"
    bench.delete("PersistentVolumeClaim", "geo-pvc")
    assert bench.store.list("PersistentVolume") == []


def test_nobody_makes_a_volume_for_a_class_that_does_not_exist(bench, manifest):
    made = manifest.claim("geo")
    made["spec"]["storageClassName"] = "nonexistent-storage-class"
    bench.apply(made)
    assert phase(bench, "PersistentVolumeClaim", "geo-pvc") == "Pending"
    assert bench.messages("ProvisioningFailed") == ['storageclass.storage.k8s.io "nonexistent-storage-class" not found']
