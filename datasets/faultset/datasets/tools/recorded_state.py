"""Answer kubectl commands from the recording of an episode; fields that were not recorded are marked."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.files import canonical_json
from faultset.core.times import rfc3339
from faultset.datasets.kubectl.cluster_state import PodLogLine, Runs, Usage
from faultset.datasets.kubectl.commands import CommandError, ShellSyntaxError, split_verb
from faultset.datasets.kubectl.kinds import (
    LabelSelector,
    canonical_kind,
    object_kind,
    parse_label_selector,
    references,
    resource_name,
)
from faultset.datasets.kubectl.object_tables import Cells, Object
from faultset.datasets.kubectl.printing import (
    UNRECORDED,
    Event,
    NegativeAnswer,
    ToolAnswer,
    answer_absent,
    answer_not_recorded,
    answer_ok,
    answer_refused,
    cpu_text,
    last_occurrences,
    memory_text,
)
from faultset.datasets.kubectl.reader import (
    READ_FLAGS,
    READ_VERBS,
    answer,
    answer_line,
    check_namespace,
    choose_objects,
    read_command,
)
from faultset.datasets.tools.recording import RECORDED_KINDS, VisibleTables

_CHANGE_VERBS = frozenset({
    "apply", "create", "delete", "edit", "patch", "replace", "scale", "set", "label", "annotate", "expose", "run",
    "autoscale", "cordon", "uncordon", "drain", "taint", "certificate",
})  # fmt: skip
_INSIDE_VERBS = frozenset({"exec", "cp", "port-forward", "proxy", "attach", "debug"})
_UNRECORDED_VERBS = frozenset(
    {"version", "cluster-info", "explain", "auth", "api-versions", "diff", "wait", "options", "plugin"}
)
_INJECTOR_KINDS = ("schedule", "schedules", "workflow", "workflows")
"""Kinds of fault injectors without "chaos" in their name; queries for them are refused, as they reveal the fault."""
_INJECTOR_NAMESPACES = ("chaos-mesh", "chaos-testing", "litmus", "chaosblade")
_CPU, _MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
_USAGE_WINDOW_S = 30.0


def kubectl(recording: VisibleTables, text: str) -> ToolAnswer:
    """Answer a command line, with or without the word kubectl, from a recording; no process is started."""
    state = RecordedState(recording)
    return answer_line(text, lambda words, has_filters: _answer(state, words, has_filters))


def _answer(state: RecordedState, words: list[str], has_filters: bool) -> ToolAnswer:
    if words[:1] != ["kubectl"] and words[:1] not in [[verb] for verb in READ_VERBS]:
        raise ShellSyntaxError(
            f'"{(words or ["nothing"])[0][:60]}" is not kubectl, and a shell is not available; '
            "give one kubectl command, optionally piped into grep, head, tail, wc, sort, uniq or awk"
        )
    words = words[1:] if words[:1] == ["kubectl"] else words
    verb, rest = split_verb(words, READ_FLAGS)
    verbs = ", ".join([*READ_VERBS, "rollout"])
    if verb == "help" or words in ([], ["--help"], ["-h"]):
        return answer_ok("read-only kubectl for a recording\nverbs: " + verbs)
    if not verb:
        raise CommandError("kubectl needs a verb, for instance get, describe, logs, top or events")
    if verb in _CHANGE_VERBS:
        return answer_refused(f"kubectl {verb} changes the system, and this is a recording of it")
    if verb in _INSIDE_VERBS:
        return answer_refused(f"kubectl {verb} acts inside the system, and this is a recording of it")
    if verb in _UNRECORDED_VERBS:
        return answer_not_recorded(f"what kubectl {verb} asks for")
    if verb == "rollout":
        return _rollout(state, rest)
    return answer(state, read_command(verb, rest, has_filters=has_filters))


def _rollout(state: RecordedState, words: list[str]) -> ToolAnswer:
    action, rest = split_verb(words, READ_FLAGS)
    if action in ("restart", "undo", "pause", "resume"):
        return answer_refused(f"kubectl rollout {action} changes the system, and this is a recording of it")
    if action != "status":
        return answer_not_recorded("the history of rollouts; replicasets and events show their traces")
    command = read_command("get", rest)
    check_namespace(state, command)
    targets = references(command.arguments, state.kind_of, ())
    if any(kind != "Deployment" or name is None for kind, name in targets):
        raise CommandError("kubectl rollout status needs a deployment")
    lines = []
    for body in choose_objects(state, command, "Deployment", [str(name) for _, name in targets]):
        name, replicas = body["metadata"]["name"], body["spec"].get("replicas") or 0
        available = body["status"].get("availableReplicas") or 0
        lines.append(
            f'deployment "{name}" successfully rolled out'
            if available >= replicas
            else f'Waiting for deployment "{name}" rollout to finish: '
            f"{available} of {replicas} updated replicas are available..."
        )
    return answer_ok("\n".join(lines))


class RecordedState:
    """A `ClusterState` of a recording at its clock's current time."""

    name = "recording"
    is_partial = True
    kinds = RECORDED_KINDS

    def __init__(self, recording: VisibleTables) -> None:
        self._recording = recording
        self.namespace = recording.namespace

    @property
    def now_ns(self) -> int:
        return self._recording.clock.now_ns

    def check_namespace(self, namespace: str) -> None:
        """Raise NegativeAnswer for a namespace that was not recorded."""
        if namespace == self.namespace:
            return
        if namespace in _INJECTOR_NAMESPACES:
            raise NegativeAnswer(answer_refused(f"the namespace {namespace} does not belong to the application"))
        raise NegativeAnswer(
            answer_not_recorded(
                f'the namespace "{namespace[:60]}"; the application runs in the namespace {self.namespace}'
            )
        )

    def kind_of(self, word: str) -> str:
        """Return the kind for a word; raise NegativeAnswer for a kind that was not recorded."""
        text = word.strip().lower()
        if text.partition(".")[0] in _INJECTOR_KINDS or "chaos" in text:
            raise NegativeAnswer(answer_refused(f'objects of the kind "{word[:60]}" do not belong to the application'))
        kind = canonical_kind(word)
        if kind == "Event":
            return kind
        if kind == "Namespace":
            raise NegativeAnswer(
                answer_not_recorded(f"namespaces; the application runs in the namespace {self.namespace}")
            )
        if kind not in RECORDED_KINDS:
            recorded = ", ".join(RECORDED_KINDS)
            raise NegativeAnswer(
                answer_not_recorded(f'objects of the kind "{word[:60]}"; the recorded kinds are {recorded}')
            )
        self._require("objects")
        return kind

    def objects(self, kind: str, selector: str | None = None) -> list[Object]:
        """Return the recorded objects of a kind; if labels were not recorded, selectors of Services replace them."""
        records = self._records(kind)
        if selector:
            terms = parse_label_selector(selector)
            if records and all("labels" in record["state"] for record in records.values()):
                names = {name for name, record in records.items() if terms.matches(record["state"]["labels"])}
            else:
                owners = self._owners(kind, terms)
                names = {name for name, record in records.items() if record["service"] in owners}
            records = {name: record for name, record in records.items() if name in names}
        return [self._body(kind, name, record) for name, record in sorted(records.items())]

    def find_current_name(self, kind: str, name: str) -> str:
        return name

    def created_ns(self, body: Object) -> int | None:
        """Return when an object was first observed, or the start of a pod that never restarted."""
        kind, name = body["kind"], body["metadata"]["name"]
        record = self._records(kind)[name]
        if record["created_ns"] is not None or kind != "Pod":
            return record["created_ns"]
        if any(container["restartCount"] for container in record["state"].get("containers", [])):
            return None
        starts = self._recording.cached_metric("container_start_time_seconds")
        starts = starts.loc[starts["pod"] == name, "value"]
        return round(starts.min() * 1e9) if len(starts) else None

    def cells(self, body: Object) -> Cells:
        """Return the cells that cannot be read from the object: unrecorded ones, and those recorded in another
        format."""
        kind, name = body["kind"], body["metadata"]["name"]
        state = self._records(kind)[name]["state"]
        cells: Cells = {"NAMESPACE": self.namespace, **dict.fromkeys(_NEVER_RECORDED.get(kind, ()), UNRECORDED)}
        for column, key in _CELL_FIELDS.get(kind, ()):
            if key not in state:
                cells[column] = UNRECORDED
        if "labels" not in state:
            cells["LABELS"] = UNRECORDED
        if kind == "Deployment":
            updated = self._recording.cached_metric("kube_deployment_status_replicas_updated")
            updated = updated[updated["labels"] == canonical_json({"deployment": name})]
            cells["UP-TO-DATE"] = int(updated["value"].iloc[-1]) if len(updated) else UNRECORDED
        elif kind == "ReplicaSet":
            cells["CURRENT"] = sum(pod.rpartition("-")[0] == name for pod in self._records("Pod"))
        elif kind == "Service":
            cells["PORT(S)"] = ",".join(str(port["port"]) for port in state.get("ports", [])) or "<none>"
        elif kind == "PersistentVolume":
            cells["CLAIM"] = f"{self.namespace}/{state['claim']}" if state.get("claim") else ""
        return cells

    def events(self) -> list[Event]:
        self._require("events")
        rows = self._recording.table("events")
        rows = rows.set_column(rows.column_names.index("time"), "time", rows["time"].cast(pa.int64()))
        return last_occurrences(rows.to_pylist())

    def pod_names(self) -> Iterable[str]:
        """Return the recorded pods; if no objects were recorded, the pods with log lines."""
        if self._recording.has("objects"):
            return list(self._records("Pod"))
        self._require("logs")
        return list(dict.fromkeys(self._recording.table("logs")["pod"].to_pylist()))

    def pods_of(self, kind: str, name: str) -> list[str]:
        records = self._records(kind)
        if name not in records:
            raise NegativeAnswer(answer_absent(resource_name(kind), name, records))
        owner = records[name]["service"]
        return [pod for pod, record in self._records("Pod").items() if record["service"] == owner]

    def log_lines(self, pod: str) -> list[PodLogLine]:
        self._require("logs")
        rows = self._recording.table("logs")
        rows = rows.filter(pc.equal(rows["pod"].cast(pa.string()), pod))  # type: ignore[attr-defined]
        columns = (rows["time"].cast(pa.int64()), rows["container"], rows["level"], rows["message"])
        return [PodLogLine(*cells) for cells in zip(*(column.to_pylist() for column in columns), strict=True)]

    def runs(self, pod: str) -> Runs:
        """Return the restarts observed as changes of the pod's state."""
        count, starts_ns = 0, []
        for i, change in enumerate(self._recording.history("Pod", pod)):
            restarts = sum(container["restartCount"] for container in change["state"].get("containers", []))
            if i and restarts > count:
                starts_ns.append(change["time_ns"])
            count = restarts
        return Runs(count, starts_ns)

    def containers(self, pod: str) -> set[str]:
        state = self._records("Pod")[pod]["state"] if pod in self._records("Pod") else {}
        return {container["name"] for container in state.get("containers", [])}

    def usage(self, pods: Sequence[str] | None) -> list[Usage]:
        """Return the resource usage of pods in the last seconds from the recorded metrics."""
        recording = self._recording
        if not {_CPU, _MEMORY} <= set(recording.metric_names):
            raise NegativeAnswer(answer_not_recorded("CPU and memory usage of pods"))
        since_ns = recording.clock.since_ns(max(_USAGE_WINDOW_S, 3 * recording.context.sampling_step_s))
        keys = ["pod", "container"]
        samples = recording.metric([_CPU], None, since_ns).dropna(subset=["pod"]).groupby(keys, observed=True)
        first, last = samples.first(), samples.last()
        seconds = (last["time"] - first["time"]) / 1e9
        # if the counter is lower at the end, it has restarted at zero
        increase = (last["value"] - first["value"]).where(last["value"] >= first["value"], last["value"])
        cores = (increase / seconds.where(seconds > 0)).fillna(0.0)
        memory = recording.metric([_MEMORY], None, since_ns).dropna(subset=["pod"])
        used = memory.groupby(keys, observed=True)["value"].last().to_frame("memory").join(cores.rename("cores"))
        present = set(self._records("Pod")) if recording.has("objects") else None
        return [
            Usage(pod, container, row["cores"], row["memory"])
            for (pod, container), row in used.fillna({"cores": 0.0}).iterrows()  # type: ignore[misc]
            if (present is None or pod in present) and (pods is None or pod in pods)
        ]

    def _require(self, table: str) -> None:
        if (problem := self._recording.problem(table)) is not None:
            raise NegativeAnswer(problem)

    def _records(self, kind: str) -> dict[str, dict[str, Any]]:
        return self._records_of_kinds(kind) if self._recording.has("objects") else {}

    @functools.cache  # noqa: B019  (a state lives as long as one command)
    def _records_of_kinds(self, kind: str) -> dict[str, dict[str, Any]]:
        return self._recording.object_records(kind)

    def _owners(self, kind: str, selector: LabelSelector) -> set[str]:
        """Return the workloads that Services with matching selectors selected during the healthy reference."""
        healthy = self._recording.object_records("Service", self._recording.context.reference_end_ns)
        labels = {str(record["service"]): record["state"].get("selector") or {} for record in healthy.values()}
        if not all(any(term.key in keys for keys in labels.values()) for term in selector.terms):
            raise NegativeAnswer(answer_not_recorded(f"labels of objects of the kind {kind}; use names, or list all"))
        return {owner for owner, service_selector in labels.items() if selector.matches(service_selector)}

    def _body(self, kind: str, name: str, record: dict[str, Any]) -> Object:
        """Convert a recorded state into an object with the structure of Kubernetes."""
        standard_kind, state = object_kind(kind), record["state"]
        metadata: dict[str, Any] = {"name": name}
        if standard_kind is not None and standard_kind.namespaced:
            metadata["namespace"] = self.namespace
        if record.get("created_ns") is not None:
            metadata["creationTimestamp"] = rfc3339(record["created_ns"])
        metadata |= {key: state[key] for key in ("labels", "generation") if key in state}
        api_version = standard_kind.api_version if standard_kind else "v1"
        head = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        return head | _BODIES[kind](state)


_NEVER_RECORDED = {
    "Pod": ("NOMINATED NODE", "READINESS GATES"),
    "Deployment": ("CONTAINERS", "SELECTOR"),
    "ReplicaSet": ("CONTAINERS", "SELECTOR"),
    "Service": ("EXTERNAL-IP",),
    "PersistentVolumeClaim": ("CAPACITY", "ACCESS MODES", "STORAGECLASS", "VOLUMEMODE"),
    "PersistentVolume": ("CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STORAGECLASS", "REASON", "VOLUMEMODE"),
}
"""Columns that are never recorded."""
_CELL_FIELDS = {
    "Pod": (("IP", "ip"),),
    "Deployment": (("IMAGES", "image"),),
    "ReplicaSet": (("IMAGES", "image"),),
    "Service": (("TYPE", "type"), ("CLUSTER-IP", "clusterIP")),
    "ConfigMap": (("DATA", "data"),),
}
"""Columns with the recorded field that they are computed from."""


def _select_present(state: dict[str, Any], *keys: str, **renamed: str) -> dict[str, Any]:
    """Return the fields with a value, some renamed (`new="old"`)."""
    pairs = {**{key: key for key in keys}, **renamed}
    return {name: state[key] for name, key in pairs.items() if state.get(key)}


def _pod(state: dict[str, Any]) -> Object:
    containers, first = state.get("containers", []), state.get("initContainers", [])
    spec: Object = {
        **_select_present(state, nodeName="node"),
        "containers": [{key: container[key] for key in ("name", "image")} for container in containers],
    }
    status: Object = {
        "phase": state.get("phase"),
        **_select_present(state, "reason", podIP="ip"),
        "conditions": [{"type": "Ready", "status": "True" if state.get("ready") else "False"}],
        "containerStatuses": [_container_status(container) for container in containers],
    }
    if first:
        spec["initContainers"] = [{key: container[key] for key in ("name", "image")} for container in first]
        status["initContainerStatuses"] = [_container_status(container) for container in first]
    return {"spec": spec, "status": status}


def _container_status(container: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a container; a running container has the exit code of its last run."""
    state, status = container["state"], {key: container[key] for key in ("name", "image", "ready", "restartCount")}
    ended = {key: container[key] for key in ("reason", "exitCode") if container.get(key) is not None}
    reason = {key: value for key, value in ended.items() if key == "reason"}
    status["state"] = {state: {"running": {}, "waiting": reason}.get(state, ended)}
    if state != "terminated" and "exitCode" in ended:
        status["lastState"] = {"terminated": ended if state == "running" else {"exitCode": ended["exitCode"]}}
    return status


def _deployment(state: dict[str, Any]) -> Object:
    container = _select_present(state, "image", "command")
    if "env" in state:
        container["env"] = [{"name": name, "value": value} for name, value in sorted(state["env"].items())]
    limits = {
        name: text(state[key])
        for name, key, text in (("cpu", "cpu_limit", cpu_text), ("memory", "memory_limit", memory_text))
        if state.get(key) is not None
    }
    if limits:
        container["resources"] = {"limits": limits}
    return {
        "spec": {
            "replicas": state.get("replicas"),
            "template": {"spec": {"containers": [container], **_select_present(state, "nodeSelector")}},
        },
        "status": {key: state[key] for key in ("readyReplicas", "availableReplicas") if key in state},
    }


def _replica_set(state: dict[str, Any]) -> Object:
    template = {"spec": {"containers": [{"image": state.get("image")}]}}
    return {
        "spec": {"replicas": state.get("replicas"), "template": template},
        "status": {"readyReplicas": state.get("readyReplicas")},
    }


def _endpoints(state: dict[str, Any]) -> Object:
    subset: dict[str, Any] = {"ports": [{"port": port} for port in state.get("ports", [])]}
    for key, count in (("addresses", state.get("ready", 0)), ("notReadyAddresses", state.get("notReady", 0))):
        if count:
            subset[key] = [{} for _ in range(count)]
    return {"subsets": [subset] if len(subset) > 1 else []}


_BODIES = {
    "Pod": _pod,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "Service": lambda state: {
        "spec": {key: state[key] for key in ("type", "clusterIP", "ports", "selector") if key in state}
    },
    "Endpoints": _endpoints,
    "PersistentVolumeClaim": lambda state: {
        "spec": _select_present(state, volumeName="volume"),
        "status": {"phase": state.get("phase")},
    },
    "PersistentVolume": lambda state: {
        "spec": {"claimRef": {"name": state["claim"]}} if state.get("claim") else {},
        "status": {"phase": state.get("phase")},
    },
    "ConfigMap": lambda state: {"data": state["data"]} if "data" in state else {},
}
