"""`kubectl describe`: recorded fields and events of single objects."""

from __future__ import annotations

from typing import Any

from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.ages import age
from faultset.datasets.kubectl.descriptions import event_lines, labelled, metadata_lines
from faultset.datasets.kubectl.object_tables import pairs
from faultset.datasets.kubectl.quantities import cpu_text, memory_text
from faultset.datasets.tools.kubectl.command_line import KubectlCommand
from faultset.datasets.tools.kubectl.event_lists import event_list, recorded_events
from faultset.datasets.tools.kubectl.listing import RECORDED_ONLY, endpoint_text
from faultset.datasets.tools.kubectl.resources import UNRECORDED
from faultset.datasets.tools.kubectl.selection import SelectedObject, check_namespace, chosen, created_ns, split_target
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, empty, found, not_recorded


def describe(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    """Answer `kubectl describe`."""
    check_namespace(recording, command)
    kinds, named = split_target(recording, command)
    if "Event" in kinds:
        return event_list(recording, command)
    objects = [
        one
        for kind in kinds
        for one in chosen(recording, command, kind, [name for k, name in named if k == kind], prefixes=True)
    ]
    if not objects:
        return empty(f"there is no such object in the namespace {recording.namespace}")
    if all(one.kind == "ConfigMap" and "data" not in one.record["state"] for one in objects):
        return not_recorded("what is in ConfigMaps; of these only digests were kept")
    return found("\n\n\n".join(_described(recording, one) for one in objects))


def _described(recording: Recording, one: SelectedObject) -> str:
    lines = [RECORDED_ONLY, *metadata_lines(one.body["metadata"])]
    created = created_ns(recording, one)
    if created is not None:
        lines.append(labelled("Age", age((recording.clock.now_ns - created) / SECOND_NS)))
    lines += _SECTIONS[one.kind](one.record["state"])
    return "\n".join([*lines, *_events(recording, one)])


def _events(recording: Recording, one: SelectedObject) -> list[str]:
    if not recording.has("events"):
        return [labelled("Events", UNRECORDED)]
    return event_lines(recorded_events(recording, one.kind, one.name), recording.clock.now_ns)


def _pod(state: dict[str, Any]) -> list[str]:
    lines = [
        labelled("Node", state.get("node") or "<none>"),
        labelled("Status", "Terminating" if state.get("reason") == "Terminating" else state.get("phase")),
    ]
    if state.get("ip"):
        lines.append(labelled("IP", state["ip"]))
    if state.get("reason"):
        lines.append(labelled("Reason", state["reason"]))
    lines.append("Containers:")
    for one in state.get("containers", []):
        lines += [
            f"  {one['name']}:",
            f"    Image:          {one['image']}",
            f"    State:          {one['state'].capitalize()}",
        ]
        if one["state"] != "running" and one.get("reason"):
            lines.append(f"      Reason:       {one['reason']}")
        if one.get("exitCode") is not None:
            if one["state"] != "terminated":
                lines.append("    Last State:     Terminated")
                if one["state"] == "running" and one.get("reason"):
                    lines.append(f"      Reason:       {one['reason']}")
            lines.append(f"      Exit Code:    {one['exitCode']}")
        lines += [f"    Ready:          {one['ready']}", f"    Restart Count:  {one['restartCount']}"]
    return [*lines, "Conditions:", "  Type    Status", f"  Ready   {state.get('ready')}"]


def _deployment(state: dict[str, Any]) -> list[str]:
    lines = [
        labelled(
            "Replicas",
            f"{state.get('replicas')} desired | {state.get('availableReplicas')} available | "
            f"{state.get('readyReplicas')} ready",
        ),
        "Pod Template:",
        "  Containers:",
        f"    Image:     {state.get('image')}",
    ]
    if state.get("command"):
        lines.append(f"    Command:   {' '.join(state['command'])}")
    if state.get("cpu_limit") is not None or state.get("memory_limit") is not None:
        lines.append("    Limits:")
        if state.get("cpu_limit") is not None:
            lines.append(f"      cpu:     {cpu_text(state['cpu_limit'])}")
        if state.get("memory_limit") is not None:
            lines.append(f"      memory:  {memory_text(state['memory_limit'])}")
    if "env" in state:
        lines += ["    Environment:", *(f"      {key}:  {value}" for key, value in sorted(state["env"].items()))]
    return [*lines, f"  Node-Selectors:  {pairs(state.get('nodeSelector'))}"]


def _replica_set(state: dict[str, Any]) -> list[str]:
    return [
        labelled("Replicas", f"{state.get('readyReplicas')} ready / {state.get('replicas')} desired"),
        f"    Image:     {state.get('image')}",
    ]


def _service(state: dict[str, Any]) -> list[str]:
    lines = [labelled("Selector", pairs(state.get("selector")))]
    for name, key in (("Type", "type"), ("IP", "clusterIP")):
        if key in state:
            lines.append(labelled(name, state[key]))
    for port in state.get("ports", []):
        lines += [labelled("Port", port["port"]), labelled("TargetPort", port["targetPort"])]
    return lines


def _endpoints(state: dict[str, Any]) -> list[str]:
    return [
        "Subsets:",
        f"  Addresses:          {endpoint_text(state)}",
        f"  NotReadyAddresses:  {state.get('notReady', 0)}",
        f"  Ports:              {', '.join(map(str, state.get('ports', []))) or '<none>'}",
    ]


def _claim(state: dict[str, Any]) -> list[str]:
    return [labelled("Status", state.get("phase")), labelled("Volume", state.get("volume") or "")]


def _volume(state: dict[str, Any]) -> list[str]:
    return [labelled("Status", state.get("phase")), labelled("Claim", state.get("claim") or "")]


def _config_map(state: dict[str, Any]) -> list[str]:
    if "data" not in state:
        return [labelled("Data", UNRECORDED)]
    lines = ["", "Data", "===="]
    for key, text in sorted(state["data"].items()):
        lines += [f"{key}:", "----", str(text), ""]
    return lines


_SECTIONS = {
    "Pod": _pod, "Deployment": _deployment, "ReplicaSet": _replica_set, "Service": _service, "Endpoints": _endpoints,
    "PersistentVolumeClaim": _claim, "PersistentVolume": _volume, "ConfigMap": _config_map,
}  # fmt: skip
