"""The object store behaves as an API server does."""

from __future__ import annotations

import random

import pytest

from faultset.collector.platforms.cluster.object_store import (
    InvalidObject,
    ObjectNotFound,
    ObjectStore,
    check_object,
    owner_reference,
)
from faultset.core.errors import PlatformError

SECOND = 1_000_000_000


@pytest.fixture
def store():
    return ObjectStore(clock=lambda: 1_800_000_000 * SECOND, rng=random.Random(1), namespace="shop")


def config(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_a_created_object_gets_what_the_server_owns(store):
    made = store.create(config("c", a="1"))
    assert made["metadata"]["namespace"] == "shop"
    assert made["metadata"]["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert made["metadata"]["generation"] == 1
    assert len(made["metadata"]["uid"]) == 36


def test_what_is_returned_is_a_copy(store):
    store.create(config("c", a="1"))
    store.get("ConfigMap", "c")["data"]["a"] = "2"
    assert store.get("ConfigMap", "c")["data"] == {"a": "1"}


def test_a_merge_patch_removes_what_is_null_and_keeps_the_rest(store):
    store.create(config("c", a="1", b="2"))
    store.patch("ConfigMap", "c", {"data": {"a": None, "c": "3"}})
    assert store.get("ConfigMap", "c")["data"] == {"b": "2", "c": "3"}


def test_the_generation_counts_changes_of_the_spec_only(store, manifest):
    store.create(manifest.deployment("geo"))
    store.patch("Deployment", "geo", {"metadata": {"labels": {"x": "y"}}})
    assert store.get("Deployment", "geo")["metadata"]["generation"] == 1
    store.patch("Deployment", "geo", {"spec": {"replicas": 3}})
    assert store.get("Deployment", "geo")["metadata"]["generation"] == 2


def test_a_patch_that_changes_nothing_is_no_new_version(store):
    before = store.create(config("c", a="1"))["metadata"]["resourceVersion"]
    assert store.patch("ConfigMap", "c", {"data": {"a": "1"}})["metadata"]["resourceVersion"] == before


def test_apply_replaces_the_data_and_keeps_uid_and_status(store, manifest):
    uid = store.create(manifest.deployment("geo"))["metadata"]["uid"]
    store.set_status("Deployment", "geo", {"replicas": 1})
    store.apply(manifest.deployment("geo", replicas=2))
    found = store.get("Deployment", "geo")
    assert (found["metadata"]["uid"], found["spec"]["replicas"], found["status"]) == (uid, 2, {"replicas": 1})


def test_a_name_is_taken_once(store):
    store.create(config("c"))
    with pytest.raises(PlatformError, match='ConfigMap "c" already exists'):
        store.create(config("c"))


def test_an_unknown_object_is_named(store):
    with pytest.raises(ObjectNotFound, match='Service "geo" not found'):
        store.get("Service", "geo")


def test_objects_are_selected_by_labels(store, manifest):
    store.create(manifest.service("geo"))
    store.create(manifest.service("rate"))
    assert [found["metadata"]["name"] for found in store.list("Service", {"app": "rate"})] == ["rate"]


def test_what_an_object_owns_goes_with_it(store):
    owner = store.create(config("owner"))
    for name in ("first", "second"):
        dependent = config(name)
        dependent["metadata"]["ownerReferences"] = [owner_reference(owner)]
        store.create(dependent)
    store.create(config("stranger"))
    store.delete("ConfigMap", "owner")
    assert [found["metadata"]["name"] for found in store.list("ConfigMap")] == ["stranger"]


def test_listeners_hear_of_every_change(store):
    heard = []
    store.listen(lambda kind, name, found: heard.append((kind, name, found is not None)))
    store.create(config("c"))
    store.delete("ConfigMap", "c")
    assert heard == [("ConfigMap", "c", True), ("ConfigMap", "c", False)]


def workload(kind="StatefulSet", pod=None, **spec):
    made = {"template": {"spec": {"containers": [{"name": "main"}], **(pod or {})}}, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "tidb"}, "spec": made}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            workload(pod={"tolerations": [{"key": "a", "effect": "TAKE_SOME_EFFECT"}]}),
            'StatefulSet.apps "tidb" is invalid: spec.template.spec.tolerations[0].effect: Unsupported value: '
            '"TAKE_SOME_EFFECT": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        ),
        (
            workload(pod={"securityContext": {"runAsUser": -1}}),
            'StatefulSet.apps "tidb" is invalid: spec.template.spec.securityContext.runAsUser: Invalid value: -1: '
            "must be between 0 and 2147483647, inclusive",
        ),
        (
            workload(updateStrategy={"type": "Whatever"}),
            'StatefulSet.apps "tidb" is invalid: spec.updateStrategy: Invalid value: "Whatever": '
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
        (
            workload("Deployment", replicas=-1),
            'Deployment.apps "tidb" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
        ),
    ],
)
def test_unsupported_values_are_refused(made, text):
    with pytest.raises(InvalidObject) as refused:
        check_object(made)
    assert str(refused.value) == text


def test_a_class_of_storage_must_have_a_name_that_an_object_can_have():
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    check_object({**claim, "spec": {"storageClassName": "nonexistent-storage-class"}})
    with pytest.raises(
        InvalidObject, match=r'PersistentVolumeClaim "data" is invalid: spec\.storageClassName: Invalid'
    ):
        check_object({**claim, "spec": {"storageClassName": "ThisIsAStorageClass"}})


def test_several_faults_are_listed():
    made = workload(pod={"securityContext": {"runAsUser": -1}}, replicas=-1)
    with pytest.raises(InvalidObject, match=r"is invalid: \[spec.replicas: .*, spec.template"):
        check_object(made)


def test_what_is_right_passes():
    tolerations = [
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3},
        {"operator": "Exists"},
    ]
    check_object(workload(pod={"tolerations": tolerations, "securityContext": {"runAsUser": 1000}}, replicas=100_000))


def named(store, **labels):
    return [resource["metadata"]["name"] for resource in store.each("ConfigMap", labels)]


def test_objects_are_selected_by_their_current_labels_oldest_first(store):
    for name in "abc":
        store.create(config(name) | {"metadata": {"name": name, "labels": {"app": "geo", "of": name}}})
    store.patch("ConfigMap", "a", {"metadata": {"labels": {"app": "rate"}}})
    assert (named(store, app="geo"), named(store, app="rate")) == (["b", "c"], ["a"])
    assert named(store, app="rate", of="b") == []
    store.patch("ConfigMap", "a", {"metadata": {"labels": {"app": "geo"}}})
    assert named(store, app="geo") == ["a", "b", "c"]
    store.remove("ConfigMap", "b")
    store.patch("ConfigMap", "c", {"metadata": {"labels": None}})
    assert (named(store, app="geo"), named(store, of="c"), named(store)) == (["a"], [], ["a", "c"])
