"""Kinds of Kubernetes objects under all the names that kubectl takes."""

from __future__ import annotations

from typing import NamedTuple


class ObjectKind(NamedTuple):
    """One kind as kubectl lists it."""

    kind: str
    plural: str
    short: tuple[str, ...]
    api_version: str
    namespaced: bool


KINDS = (
    ObjectKind("Pod", "pods", ("po",), "v1", True),
    ObjectKind("Deployment", "deployments", ("deploy",), "apps/v1", True),
    ObjectKind("ReplicaSet", "replicasets", ("rs",), "apps/v1", True),
    ObjectKind("Service", "services", ("svc",), "v1", True),
    ObjectKind("Endpoints", "endpoints", ("ep",), "v1", True),
    ObjectKind("PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",), "v1", True),
    ObjectKind("PersistentVolume", "persistentvolumes", ("pv",), "v1", False),
    ObjectKind("ConfigMap", "configmaps", ("cm",), "v1", True),
    ObjectKind("Event", "events", ("ev",), "v1", True),
    ObjectKind("Namespace", "namespaces", ("ns",), "v1", False),
    ObjectKind("Node", "nodes", ("no",), "v1", False),
    ObjectKind("Secret", "secrets", (), "v1", True),
    ObjectKind("ServiceAccount", "serviceaccounts", ("sa",), "v1", True),
    ObjectKind("StatefulSet", "statefulsets", ("sts",), "apps/v1", True),
    ObjectKind("DaemonSet", "daemonsets", ("ds",), "apps/v1", True),
    ObjectKind("Job", "jobs", (), "batch/v1", True),
    ObjectKind("CronJob", "cronjobs", ("cj",), "batch/v1", True),
    ObjectKind("HorizontalPodAutoscaler", "horizontalpodautoscalers", ("hpa",), "autoscaling/v2", True),
    ObjectKind("Ingress", "ingresses", ("ing",), "networking.k8s.io/v1", True),
    ObjectKind("NetworkPolicy", "networkpolicies", ("netpol",), "networking.k8s.io/v1", True),
    ObjectKind("EndpointSlice", "endpointslices", (), "discovery.k8s.io/v1", True),
    ObjectKind("ResourceQuota", "resourcequotas", ("quota",), "v1", True),
    ObjectKind("StorageClass", "storageclasses", ("sc",), "storage.k8s.io/v1", False),
    ObjectKind("CustomResourceDefinition", "customresourcedefinitions", ("crd",), "apiextensions.k8s.io/v1", False),
)  # fmt: skip
_NAMES = {
    name: kind for kind in KINDS for name in (kind.kind.lower(), kind.plural, *kind.short)
}  # fmt: skip
ALL: tuple[str, ...] = ("Pod", "Service", "Deployment", "ReplicaSet")
"""What `kubectl get all` lists of the kinds that are recorded, in its order."""
INJECTOR_KINDS = (
    "podchaos", "networkchaos", "stresschaos", "iochaos", "httpchaos", "timechaos", "dnschaos", "kernelchaos",
    "jvmchaos", "physicalmachinechaos", "schedule", "schedules", "workflow", "workflows", "chaosengine", "chaosengines",
    "chaosexperiment", "chaosexperiments", "chaosresult", "chaosresults",
)  # fmt: skip
"""Kinds of fault injectors; asking for them is asking for the answer."""
INJECTOR_NAMESPACES = ("chaos-mesh", "chaos-testing", "litmus", "chaosblade")


def object_kind(name: str) -> ObjectKind | None:
    """Return a kind by any of its names, with or without an API group; None for one that is not known.

    >>> object_kind("deployments.apps").kind
    'Deployment'
    """
    return _NAMES.get(name.strip().lower().partition(".")[0])


def canonical_kind(name: str) -> str | None:
    """Return the name of a kind as objects carry it."""
    kind = object_kind(name)
    return None if kind is None else kind.kind
