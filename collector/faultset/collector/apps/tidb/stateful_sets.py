"""The StatefulSet of a component of a TidbCluster, and the component's status."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.manifests import workload

Manifest = dict[str, Any]

APPLIED = "pingcap.com/last-applied-configuration"
STORAGE_CLASS = "pingcap.com/storage-class"
_POD_FIELDS = {
    "tolerations": "tolerations",
    "affinity": "affinity",
    "topologySpreadConstraints": "topologySpreadConstraints",
    "podSecurityContext": "securityContext",
}
"""Fields of a component that are copied into its pods."""


def stateful_set(app: AppSpec, cluster: Mapping[str, Any], name: str, telemetry: str) -> Manifest:
    """Return the StatefulSet of a component of a TidbCluster."""
    component: Mapping[str, Any] = cluster["spec"].get(name) or {}
    manifest = workload(app, app.services[name], telemetry)
    spec, pod = manifest["spec"], manifest["spec"]["template"]["spec"]
    spec["replicas"] = component.get("replicas", spec["replicas"])
    # the operator replaces any other strategy, even an unknown one, with its default
    spec["updateStrategy"] = (
        {"type": "OnDelete"} if _get_strategy(cluster, component) == "OnDelete" else {"type": "RollingUpdate"}
    )
    spec["template"]["metadata"]["annotations"] |= component.get("annotations") or {}
    for source, field in _POD_FIELDS.items():
        if component.get(source):
            pod[field] = component[source]
    pod["automountServiceAccountToken"] = False  # only the operator calls the API server
    (container,) = pod["containers"]
    container["image"] = component.get("image", container["image"])
    container["env"] += component.get("env") or ()
    for kind in ("requests", "limits"):
        sizes = {key: value for key, value in (component.get(kind) or {}).items() if key != "storage"}
        container["resources"][kind] = {**container["resources"][kind], **sizes}
    for claim in spec.get("volumeClaimTemplates", []):
        storage_class = component.get("storageClassName")
        claim["metadata"]["annotations"] = {STORAGE_CLASS: storage_class or ""}
        claim["spec"].pop("storageClassName", None)
        if storage_class:
            claim["spec"]["storageClassName"] = storage_class
        size = (component.get("requests") or {}).get("storage")
        if size:
            claim["spec"]["resources"] = {"requests": {"storage": size}}
    applied = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    manifest["metadata"] = {**manifest["metadata"], **build_owner_metadata(cluster), "annotations": {APPLIED: applied}}
    return manifest


def _get_strategy(cluster: Mapping[str, Any], component: Mapping[str, Any]) -> str | None:
    return component.get("statefulSetUpdateStrategy") or cluster["spec"].get("statefulSetUpdateStrategy")


def get_storage_class(manifest: Mapping[str, Any]) -> str | None:
    """Return the class of a StatefulSet's volumes, empty for the cluster's default class; None without volumes."""
    for claim in manifest["spec"].get("volumeClaimTemplates") or ():
        return (claim["metadata"].get("annotations") or {}).get(STORAGE_CLASS, "")
    return None


def build_owner_metadata(cluster: Mapping[str, Any]) -> Manifest:
    """Return metadata that makes a TidbCluster the owner of an object."""
    metadata = cluster["metadata"]
    owner = {"apiVersion": cluster["apiVersion"], "kind": cluster["kind"], "name": metadata["name"]}
    owner |= {"uid": metadata.get("uid", ""), "controller": True, "blockOwnerDeletion": True}
    return {"ownerReferences": [owner]}


def component_status(current: Mapping[str, Any] | None, component: Mapping[str, Any]) -> Manifest:
    """Return a component's status in a TidbCluster, from its StatefulSet."""
    if current is None:
        return {"phase": "Creating"}
    state = current.get("status") or {}
    size = current["spec"]["replicas"]
    is_seen = state.get("observedGeneration", 0) >= current["metadata"].get("generation", 0)
    if size != component.get("replicas", size) or state.get("replicas", 0) != size:
        phase = "Scale"
    elif not is_seen or state.get("updatedReplicas", 0) < size:
        phase = "Upgrade"
    else:
        phase = "Normal" if state.get("readyReplicas", 0) >= size else "Unhealthy"
    reported_fields = (
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "currentRevision",
        "updateRevision",
    )
    return {
        "phase": phase,
        "image": current["spec"]["template"]["spec"]["containers"][0]["image"],
        "statefulSet": {key: state[key] for key in reported_fields if key in state},
    }
