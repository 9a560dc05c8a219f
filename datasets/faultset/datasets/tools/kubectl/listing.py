"""`kubectl get`: lists in kubectl's columns, names, documents and templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from faultset.core.json_text import canonical_json
from faultset.datasets.tools.kinds import object_kind
from faultset.datasets.tools.kubectl.command_line import CommandError, KubectlCommand
from faultset.datasets.tools.kubectl.event_lists import event_list
from faultset.datasets.tools.kubectl.jsonpath import MissingFieldError, rendered, select, text_of
from faultset.datasets.tools.kubectl.resources import UNRECORDED, age, pod_status
from faultset.datasets.tools.kubectl.selection import Selected, check_namespace, chosen, created_ns, split_target
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.text_tables import in_columns
from faultset.datasets.tools.tool_answers import ToolAnswer, empty, found, not_recorded, refused

Row = dict[str, object]
RECORDED_ONLY = "# recorded fields only"
_GROUPED = {"Deployment": "deployment.apps", "ReplicaSet": "replicaset.apps"}


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


def _tables(recording: Recording, command: KubectlCommand, objects: list[Selected], kinds: list[str]) -> str:
    parts = []
    for kind in kinds:
        rows = [_row(recording, one) for one in objects if one.kind == kind]
        if not rows:
            continue
        columns, wide = _COLUMNS[kind]
        header = [*columns, *(wide if command.output == "wide" else ())]
        if command.flag("--all-namespaces"):
            header = ["NAMESPACE", *header]
        if command.flag("--show-labels"):
            header = [*header, "LABELS"]
        if len(kinds) > 1 or command.flag("--show-kind"):
            for row in rows:
                row["NAME"] = f"{prefix_of(kind)}/{row['NAME']}"
        cells = [[row.get(name, UNRECORDED) for name in header] for row in rows]
        text = in_columns(header, cells)
        parts.append(text.partition("\n")[2] if command.flag("--no-headers") else text)
    return "\n\n".join(parts)


def prefix_of(kind: str) -> str:
    """Return what stands before the slash in the name of an object."""
    return _GROUPED.get(kind, kind.lower())


def _row(recording: Recording, one: Selected) -> Row:
    created = created_ns(recording, one)
    labels = one.record["state"].get("labels")
    row: Row = {
        "NAMESPACE": recording.namespace,
        "NAME": one.name,
        "AGE": age(None if created is None else (recording.clock.now_ns - created) / 1e9),
    }
    if labels is not None:
        row["LABELS"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"
    return row | _ROWS[one.kind](recording, one.name, one.record["state"])


def _pod_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    containers = state.get("containers", [])
    ready = sum(1 for one in containers if one["ready"])
    return {
        "READY": f"{ready}/{max(1, len(containers))}",
        "STATUS": pod_status(state),
        "RESTARTS": sum(one["restartCount"] for one in containers),
        "IP": state.get("ip", UNRECORDED),
        "NODE": state.get("node") or "<none>",
    }


def _deployment_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    updated = recording.kept_metric("kube_deployment_status_replicas_updated")
    updated = updated[updated["labels"] == canonical_json({"deployment": name})]
    return {
        "READY": f"{state.get('readyReplicas', 0)}/{state.get('replicas')}",
        "UP-TO-DATE": int(updated["value"].iloc[-1]) if len(updated) else UNRECORDED,
        "AVAILABLE": state.get("availableReplicas", 0),
        "IMAGES": state.get("image", UNRECORDED),
    }


def _replica_set_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    pods = sum(1 for pod in recording.objects("Pod") if pod.rpartition("-")[0] == name)
    return {
        "DESIRED": state.get("replicas"),
        "CURRENT": pods,
        "READY": state.get("readyReplicas", 0),
        "IMAGES": state.get("image", UNRECORDED),
    }


def _service_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    return {
        "TYPE": state.get("type", UNRECORDED),
        "CLUSTER-IP": state.get("clusterIP", UNRECORDED),
        "PORT(S)": ",".join(str(port["port"]) for port in state.get("ports", [])) or "<none>",
        "SELECTOR": ",".join(f"{key}={value}" for key, value in sorted((state.get("selector") or {}).items()))
        or "<none>",
    }


def _endpoints_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    return {"ENDPOINTS": endpoint_text(state)}


def endpoint_text(state: dict[str, Any]) -> str:
    """Return the addresses of an Endpoints object; their number and ports were recorded, not the addresses."""
    addresses = [f"{UNRECORDED}:{port}" for _ in range(state.get("ready", 0)) for port in state.get("ports") or ["?"]]
    return ",".join(addresses) or "<none>"


def _claim_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    return {"STATUS": state.get("phase"), "VOLUME": state.get("volume") or ""}


def _volume_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    claim = state.get("claim")
    return {"STATUS": state.get("phase"), "CLAIM": f"{recording.namespace}/{claim}" if claim else ""}


def _config_map_row(recording: Recording, name: str, state: dict[str, Any]) -> Row:
    return {"DATA": len(state["data"]) if "data" in state else UNRECORDED}


_WORKLOAD_WIDE = ("CONTAINERS", "IMAGES", "SELECTOR")
_COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Pod": (("NAME", "READY", "STATUS", "RESTARTS", "AGE"), ("IP", "NODE", "NOMINATED NODE", "READINESS GATES")),
    "Deployment": (("NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"), _WORKLOAD_WIDE),
    "ReplicaSet": (("NAME", "DESIRED", "CURRENT", "READY", "AGE"), _WORKLOAD_WIDE),
    "Service": (("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"), ("SELECTOR",)),
    "Endpoints": (("NAME", "ENDPOINTS", "AGE"), ()),
    "PersistentVolumeClaim": (
        ("NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "AGE"),
        ("VOLUMEMODE",),
    ),
    "PersistentVolume": (
        ("NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM", "STORAGECLASS", "REASON", "AGE"),
        ("VOLUMEMODE",),
    ),
    "ConfigMap": (("NAME", "DATA", "AGE"), ()),
}
_ROWS: dict[str, Callable[[Recording, str, dict[str, Any]], Row]] = {
    "Pod": _pod_row, "Deployment": _deployment_row, "ReplicaSet": _replica_set_row, "Service": _service_row,
    "Endpoints": _endpoints_row, "PersistentVolumeClaim": _claim_row, "PersistentVolume": _volume_row,
    "ConfigMap": _config_map_row,
}  # fmt: skip


def _document(command: KubectlCommand, objects: list[Selected], *, single: bool) -> ToolAnswer:
    bodies = [one.body for one in objects]
    value = bodies[0] if single else {"apiVersion": "v1", "kind": "List", "items": bodies}
    if any(one.kind == "ConfigMap" and "data" not in one.body for one in objects) and command.output in (
        "yaml",
        "json",
    ):
        return not_recorded("what is in ConfigMaps; of this one only a digest was kept")
    if command.output == "name":
        return found("\n".join(f"{prefix_of(one.kind)}/{one.name}" for one in objects))
    if command.output == "json":
        return found(json.dumps(value, indent=4))
    if command.output == "yaml":
        import yaml

        return found(f"{RECORDED_ONLY}\n{yaml.safe_dump(value, sort_keys=True).rstrip()}")
    if command.output in ("jsonpath", "jsonpath-as-json"):
        try:
            return found(rendered(command.template, value))
        except MissingFieldError as path:
            return not_recorded(f"the field {str(path)[:120]} of these objects")
    if command.output == "custom-columns":
        pairs = [column.partition(":") for column in command.template.split(",")]
        rows = [
            [",".join(text_of(value) for value in select(body, path.strip("{}"))) or UNRECORDED for _, _, path in pairs]
            for body in bodies
        ]
        return found(in_columns([name for name, _, _ in pairs], rows))
    raise CommandError(
        f'the output format "{command.output[:40]}" is not known here; known are wide, yaml, json, name, jsonpath=, '
        "custom-columns="
    )
