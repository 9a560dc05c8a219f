"""The StatefulSet of a component, as a TidbCluster asks for it, and what its state says of the component."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.manifests import workload

Manifest = dict[str, Any]

APPLIED = "pingcap.com/last-applied-configuration"
STORAGE_CLASS = "pingcap.com/storage-class"
_OF_PODS = {
    "tolerations": "tolerations",
    "affinity": "affinity",
    "topologySpreadConstraints": "topologySpreadConstraints",
    "podSecurityContext": "securityContext",
}
"""Fields of a component that become fields of its pods."""


def stateful_set(app: AppSpec, cluster: Mapping[str, Any], name: str, telemetry: str) -> Manifest:
    """Return the StatefulSet of a component as a TidbCluster asks for it."""
    wanted: Mapping[str, Any] = cluster["spec"].get(name) or {}
    made = workload(app, app.services[name], telemetry)
    spec, pod = made["spec"], made["spec"]["template"]["spec"]
    spec["replicas"] = wanted.get("replicas", spec["replicas"])
    # with any other strategy, the operator updates pods itself
    spec["updateStrategy"] = (
        {"type": "OnDelete"} if _strategy(cluster, wanted) == "OnDelete" else {"type": "RollingUpdate"}
    )
    spec["template"]["metadata"]["annotations"] |= wanted.get("annotations") or {}
    for source, field in _OF_PODS.items():
        if wanted.get(source):
            pod[field] = wanted[source]
    pod["automountServiceAccountToken"] = False  # only the operator speaks to the API server
    (container,) = pod["containers"]
    container["image"] = wanted.get("image", container["image"])
    container["env"] += wanted.get("env") or ()
    for kind in ("requests", "limits"):
        sizes = {key: value for key, value in (wanted.get(kind) or {}).items() if key != "storage"}
        container["resources"][kind] = {**container["resources"][kind], **sizes}
    for claim in spec.get("volumeClaimTemplates", []):
        storage_class = wanted.get("storageClassName")
        claim["metadata"]["annotations"] = {STORAGE_CLASS: storage_class or ""}
        claim["spec"].pop("storageClassName", None)
        if storage_class:
            claim["spec"]["storageClassName"] = storage_class
        size = (wanted.get("requests") or {}).get("storage")
        if size:
            claim["spec"]["resources"] = {"requests": {"storage": size}}
    applied = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    made["metadata"] = {**made["metadata"], **owner_of(cluster), "annotations": {APPLIED: applied}}
    return made


def _strategy(cluster: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    return wanted.get("statefulSetUpdateStrategy") or cluster["spec"].get("statefulSetUpdateStrategy")


def storage_class_of(found: Mapping[str, Any]) -> str | None:
    """Return the class of a StatefulSet's volumes, empty for the cluster's own; None without volumes."""
    for claim in found["spec"].get("volumeClaimTemplates") or ():
        return (claim["metadata"].get("annotations") or {}).get(STORAGE_CLASS, "")
    return None


def owner_of(cluster: Mapping[str, Any]) -> Manifest:
    """Return the metadata that make a TidbCluster the owner of an object."""
    metadata = cluster["metadata"]
    owner = {"apiVersion": cluster["apiVersion"], "kind": cluster["kind"], "name": metadata["name"]}
    owner |= {"uid": metadata.get("uid", ""), "controller": True, "blockOwnerDeletion": True}
    return {"ownerReferences": [owner]}


def component_status(found: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> Manifest:
    """Return what the status of a TidbCluster says of a component, from its StatefulSet."""
    if found is None:
        return {"phase": "Creating"}
    state = found.get("status") or {}
    size = found["spec"]["replicas"]
    is_seen = state.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
    if size != wanted.get("replicas", size) or state.get("replicas", 0) != size:
        phase = "Scale"
    elif not is_seen or state.get("updatedReplicas", 0) < size:
        phase = "Upgrade"
    else:
        phase = "Normal" if state.get("readyReplicas", 0) >= size else "Unhealthy"
    kept = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "currentRevision", "updateRevision")
    return {
        "phase": phase,
        "image": found["spec"]["template"]["spec"]["containers"][0]["image"],
        "statefulSet": {key: state[key] for key in kept if key in state},
    }
