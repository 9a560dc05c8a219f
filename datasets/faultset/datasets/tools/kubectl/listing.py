"""`kubectl get`: lists in kubectl's columns, names, documents and templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faultset.core.json_text import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.ages import age
from faultset.datasets.kubectl.documents import document
from faultset.datasets.kubectl.jsonpath import MissingFieldError
from faultset.datasets.kubectl.kinds import object_kind
from faultset.datasets.kubectl.object_tables import Cells, object_cells, object_tables
from faultset.datasets.tools.kubectl.command_line import KubectlCommand
from faultset.datasets.tools.kubectl.event_lists import event_list
from faultset.datasets.tools.kubectl.resources import UNRECORDED
from faultset.datasets.tools.kubectl.selection import SelectedObject, check_namespace, chosen, created_ns, split_target
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, empty, found, not_recorded, refused

RECORDED_ONLY = "# recorded fields only"


def get(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    """Answer `kubectl get`."""
    if command.flag("--watch") or command.flag("--watch-only"):
        return refused("watching is interactive; ask again after a wait")
    if command.flag("--raw"):
        return not_recorded("raw requests to the API server")
    check_namespace(recording, command)
    kinds, named = split_target(recording, command)
    if "Event" in kinds:
        return event_list(recording, command)
    objects = [one for kind in kinds for one in chosen(recording, command, kind, [n for k, n in named if k == kind])]
    if not objects:
        plural = ", ".join(known.plural for kind in kinds if (known := object_kind(kind)))
        return empty(f"there are no such {plural} in the namespace {recording.namespace}")
    if command.output in ("", "wide"):
        return found(_tables(recording, command, objects, kinds))
    return _document(command, objects, single=len(named) == 1)


def _tables(recording: Recording, command: KubectlCommand, objects: list[SelectedObject], kinds: list[str]) -> str:
    return object_tables(
        {kind: [_row(recording, one) for one in objects if one.kind == kind] for kind in kinds},
        wide=command.output == "wide",
        namespaces=command.flag("--all-namespaces"),
        labels=command.flag("--show-labels"),
        headed=not command.flag("--no-headers"),
        show_kind=command.flag("--show-kind"),
        unknown=UNRECORDED,
    )


def _row(recording: Recording, one: SelectedObject) -> Cells:
    created = created_ns(recording, one)
    state = one.record["state"]
    made: Cells = object_cells(one.body) | {
        "NAMESPACE": recording.namespace,
        "AGE": age(None if created is None else (recording.clock.now_ns - created) / SECOND_NS),
    }
    if "labels" not in state:
        made["LABELS"] = UNRECORDED
    return made | dict.fromkeys(_NEVER_RECORDED.get(one.kind, ()), UNRECORDED) | _RECORDED[one.kind](recording, one)


def _pod(recording: Recording, one: SelectedObject) -> Cells:
    state = one.record["state"]
    made: Cells = {} if "ip" in state else {"IP": UNRECORDED}
    return made | {"STATUS": "Terminating"} if state.get("reason") == "Terminating" else made


def _deployment(recording: Recording, one: SelectedObject) -> Cells:
    updated = recording.kept_metric("kube_deployment_status_replicas_updated")
    updated = updated[updated["labels"] == canonical_json({"deployment": one.name})]
    return {
        "UP-TO-DATE": int(updated["value"].iloc[-1]) if len(updated) else UNRECORDED,
        "IMAGES": one.record["state"].get("image", UNRECORDED),
    }


def _replica_set(recording: Recording, one: SelectedObject) -> Cells:
    return {
        "CURRENT": sum(1 for pod in recording.objects("Pod") if pod.rpartition("-")[0] == one.name),
        "IMAGES": one.record["state"].get("image", UNRECORDED),
    }


def _service(recording: Recording, one: SelectedObject) -> Cells:
    state = one.record["state"]
    return {
        "TYPE": state.get("type", UNRECORDED),
        "CLUSTER-IP": state.get("clusterIP", UNRECORDED),
        "PORT(S)": ",".join(str(port["port"]) for port in state.get("ports", [])) or "<none>",
    }


def _endpoints(recording: Recording, one: SelectedObject) -> Cells:
    return {"ENDPOINTS": endpoint_text(one.record["state"])}


def endpoint_text(state: dict[str, Any]) -> str:
    """Return the addresses of an Endpoints object; their number and ports were recorded, not the addresses."""
    addresses = [f"{UNRECORDED}:{port}" for _ in range(state.get("ready", 0)) for port in state.get("ports") or ["?"]]
    return ",".join(addresses) or "<none>"


def _claim(recording: Recording, one: SelectedObject) -> Cells:
    return {}


def _volume(recording: Recording, one: SelectedObject) -> Cells:
    claim = one.record["state"].get("claim")
    return {"CLAIM": f"{recording.namespace}/{claim}" if claim else ""}


def _config_map(recording: Recording, one: SelectedObject) -> Cells:
    return {} if "data" in one.record["state"] else {"DATA": UNRECORDED}


_NEVER_RECORDED = {
    "Pod": ("NOMINATED NODE", "READINESS GATES"),
    "Deployment": ("CONTAINERS", "SELECTOR"),
    "ReplicaSet": ("CONTAINERS", "SELECTOR"),
    "Service": ("EXTERNAL-IP",),
    "PersistentVolumeClaim": ("CAPACITY", "ACCESS MODES", "STORAGECLASS", "VOLUMEMODE"),
    "PersistentVolume": ("CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STORAGECLASS", "REASON", "VOLUMEMODE"),
}
"""Columns of which no recording holds anything."""
_RECORDED: dict[str, Callable[[Recording, SelectedObject], Cells]] = {
    "Pod": _pod, "Deployment": _deployment, "ReplicaSet": _replica_set, "Service": _service, "Endpoints": _endpoints,
    "PersistentVolumeClaim": _claim, "PersistentVolume": _volume, "ConfigMap": _config_map,
}  # fmt: skip
"""Kind to what recordings say otherwise than objects do."""


def _document(command: KubectlCommand, objects: list[SelectedObject], *, single: bool) -> ToolAnswer:
    bodies = [one.body for one in objects]
    if any(one.kind == "ConfigMap" and "data" not in one.body for one in objects) and command.output in (
        "yaml",
        "json",
    ):
        return not_recorded("what is in ConfigMaps; of this one only a digest was kept")
    try:
        text = document(bodies, command.flags["--output"], single=single, unknown=UNRECORDED)
    except MissingFieldError as path:
        return not_recorded(f"the field {str(path)[:120]} of these objects")
    return found(f"{RECORDED_ONLY}\n{text}" if command.output == "yaml" else text)
