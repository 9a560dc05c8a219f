"""Claims and volumes find each other, and are protected while in use."""

from __future__ import annotations

import pytest


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
