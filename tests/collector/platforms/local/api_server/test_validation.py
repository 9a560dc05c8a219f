"""What the API server refuses, in Kubernetes' words."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.local.api_server.object_store import InvalidObject, check_object


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
