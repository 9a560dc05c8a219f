"""Describe objects like `kubectl describe`; missing fields are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from faultset.datasets.kubectl.answers import UNRECORDED
from faultset.datasets.kubectl.documents import text_of, yaml_text
from faultset.datasets.kubectl.object_tables import Object, endpoint_texts, is_terminating, pairs
from faultset.datasets.kubectl.printing import field_line, format_columns


def description(body: Object, *, age: str | None = None) -> list[str]:
    """Return the description of an object as lines, without its events."""
    lines = _metadata(body["metadata"])
    if age is not None:
        lines.append(field_line("Age", age))
    return lines + _SECTIONS.get(body["kind"], _fields)(body)


def _metadata(metadata: Mapping[str, Any]) -> list[str]:
    lines = [field_line("Name", metadata["name"])]
    if metadata.get("namespace"):
        lines.append(field_line("Namespace", metadata["namespace"]))
    return lines + [
        field_line(key.capitalize(), pairs(metadata[key])) for key in ("labels", "annotations") if key in metadata
    ]


def _fields(body: Object) -> list[str]:
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return yaml_text(content).splitlines()


def _pod(pod: Object) -> list[str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    lines = [
        field_line("Node", spec.get("nodeName") or "<none>"),
        field_line("Status", "Terminating" if is_terminating(pod) else status.get("phase")),
    ]
    if status.get("podIP"):
        lines.append(field_line("IP", status["podIP"]))
    if status.get("reason"):
        lines.append(field_line("Reason", status["reason"]))
    statuses = {container["name"]: container for container in status.get("containerStatuses") or []}
    lines.append("Containers:")
    for container in spec.get("containers") or []:
        lines.append(f"  {container['name']}:")
        lines += _container(container)
        if container["name"] in statuses:
            lines += _container_status(statuses[container["name"]])
    lines += _volumes(spec)
    conditions = [(condition["type"], condition["status"]) for condition in status.get("conditions") or []]
    return [*lines, "Conditions:", *_indent(format_columns(["Type", "Status"], conditions), "  ")]


def _container_status(status: Mapping[str, Any]) -> list[str]:
    lines = []
    for label, state in (("State", status.get("state")), ("Last State", status.get("lastState"))):
        for word, detail in (state or {}).items():
            lines.append(f"    {label + ':':<16}{word.capitalize()}")
            if detail.get("reason"):
                lines.append(f"      Reason:       {detail['reason']}")
            if detail.get("message"):
                lines.append(f"      Message:      {detail['message']}")
            if detail.get("exitCode") is not None:
                lines.append(f"      Exit Code:    {detail['exitCode']}")
    return [
        *lines,
        f"    Ready:          {status.get('ready', False)}",
        f"    Restart Count:  {status.get('restartCount', 0)}",
    ]


def _container(container: Mapping[str, Any]) -> list[str]:
    """Return the lines of a container's specification."""
    lines = [f"    Image:{'':<10}{container.get('image')}"]
    lines += [
        f"    {name.capitalize() + ':':<16}{' '.join(container[name])}"
        for name in ("command", "args")
        if container.get(name)
    ]
    if container.get("ports"):
        ports = ", ".join(f"{port.get('containerPort')}/{port.get('protocol', 'TCP')}" for port in container["ports"])
        lines.append(f"    Ports:          {ports}")
    for name in ("limits", "requests"):
        values = (container.get("resources") or {}).get(name)
        if values:
            lines.append(f"    {name.capitalize()}:")
            lines += [f"      {key + ':':<9}{value}" for key, value in sorted(values.items())]
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name):
            label = f"{name.removesuffix('Probe').capitalize()}:"
            lines.append(f"    {label:<16}{text_of(container[name])}")
    if "env" in container:
        lines.append("    Environment:")
        for variable in sorted(container["env"] or [], key=lambda variable: variable["name"]):
            source = variable.get("valueFrom")
            lines.append(
                f"      {variable['name']}:  {variable.get('value', '') if source is None else text_of(source)}"
            )
    if container.get("volumeMounts"):
        lines.append("    Mounts:")
        lines += [f"      {mount['mountPath']} from {mount['name']}" for mount in container["volumeMounts"]]
    return lines


def _volumes(spec: Mapping[str, Any]) -> list[str]:
    if not spec.get("volumes"):
        return []
    sources = [{key: value for key, value in volume.items() if key != "name"} for volume in spec["volumes"]]
    names = [volume["name"] for volume in spec["volumes"]]
    return ["Volumes:", *(f"  {name}:  {text_of(source)}" for name, source in zip(names, sources, strict=True))]


def _workload(workload: Object) -> list[str]:
    spec, status = workload["spec"], workload.get("status") or {}
    lines = [] if "selector" not in spec else [field_line("Selector", pairs(spec["selector"].get("matchLabels")))]
    lines.append(
        field_line(
            "Replicas",
            f"{spec.get('replicas', 1)} desired | {status.get('availableReplicas', 0)} available | "
            f"{status.get('readyReplicas', 0)} ready",
        )
    )
    template = spec["template"]["spec"]
    lines += ["Pod Template:", "  Containers:", *_containers(template), *_indent("\n".join(_volumes(template)), "  ")]
    if template.get("serviceAccountName"):
        lines.append(f"  Service Account:  {template['serviceAccountName']}")
    return [*lines, f"  Node-Selectors:  {pairs(template.get('nodeSelector'))}"]


def _containers(template: Mapping[str, Any]) -> list[str]:
    lines = []
    for container in template.get("containers") or []:
        if "name" in container:
            lines.append(f"   {container['name']}:")
        lines += _container(container)
    return lines


def _replica_set(workload: Object) -> list[str]:
    spec, status = workload["spec"], workload.get("status") or {}
    replicas = f"{status.get('readyReplicas', 0)} ready / {spec.get('replicas', 1)} desired"
    return [field_line("Replicas", replicas), *_containers(spec["template"]["spec"])]


def _service(service: Object) -> list[str]:
    spec = service["spec"]
    lines = [field_line("Selector", pairs(spec.get("selector")))]
    lines += [field_line(name, spec[key]) for name, key in (("Type", "type"), ("IP", "clusterIP")) if key in spec]
    for port in spec.get("ports") or []:
        lines += [field_line("Port", port["port"]), field_line("TargetPort", port.get("targetPort", port["port"]))]
    return lines


def _endpoints(endpoints: Object) -> list[str]:
    subsets = endpoints.get("subsets") or []
    ports = [str(port["port"]) for subset in subsets for port in subset.get("ports") or []]
    return [
        "Subsets:",
        f"  Addresses:          {','.join(endpoint_texts(endpoints)) or '<none>'}",
        f"  NotReadyAddresses:  {sum(len(subset.get('notReadyAddresses') or []) for subset in subsets)}",
        f"  Ports:              {', '.join(ports) or '<none>'}",
    ]


def _claim(claim: Object) -> list[str]:
    status = claim.get("status") or {}
    return [field_line("Status", status.get("phase")), field_line("Volume", claim["spec"].get("volumeName") or "")]


def _volume(volume: Object) -> list[str]:
    status, claim = volume.get("status") or {}, volume["spec"].get("claimRef") or {}
    return [field_line("Status", status.get("phase")), field_line("Claim", claim.get("name") or "")]


def _config_map(config_map: Object) -> list[str]:
    if "data" not in config_map:
        return [field_line("Data", UNRECORDED)]
    lines = ["", "Data", "===="]
    for key, text in sorted((config_map["data"] or {}).items()):
        lines += [f"{key}:", "----", str(text), ""]
    return lines


def _indent(text: str, margin: str) -> list[str]:
    return [margin + line for line in text.splitlines()]


_SECTIONS: dict[str, Callable[[Object], list[str]]] = {
    "Pod": _pod, "Deployment": _workload, "StatefulSet": _workload, "ReplicaSet": _replica_set, "Service": _service,
    "Endpoints": _endpoints, "PersistentVolumeClaim": _claim, "PersistentVolume": _volume, "ConfigMap": _config_map,
}  # fmt: skip
