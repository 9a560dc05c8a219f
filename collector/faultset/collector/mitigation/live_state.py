"""A live platform as the cluster state that kubectl reads, and the changes that commands may make."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.faults.resources import counter_now, cpu_cores
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import ObjectNotFound, merge_patch
from faultset.core.errors import suggest
from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.cluster_state import PodLogLine, Runs, Usage
from faultset.datasets.kubectl.commands import CommandError
from faultset.datasets.kubectl.kinds import (
    KINDS,
    canonical_kind,
    full_name,
    parse_label_selector,
    resource_name,
    workload_of_pod,
)
from faultset.datasets.kubectl.object_tables import Cells
from faultset.datasets.kubectl.printing import Event, NegativeAnswer, answer_absent, last_occurrences
from faultset.datasets.telemetry_formats.kubernetes_objects import Object, parse_rfc3339_ns

WORKLOADS = ("Deployment", "StatefulSet")
"""Kinds with a pod template."""
LIVE_KINDS = (
    "Pod", *WORKLOADS, "ReplicaSet", "Service", "Endpoints", "ConfigMap", "Secret", "PersistentVolumeClaim",
    "PersistentVolume", "Node",
)  # fmt: skip
"""Kinds that platforms support."""
_WRITABLE_KINDS = frozenset(LIVE_KINDS) - {"Node", "Endpoints"}
"""Kinds that commands may change: all except nodes and endpoints."""
_WINDOW_NS = 3600 * SECOND_NS
"""Maximum age of events and log lines."""
_HIDDEN = "<hidden>"


class CommandRefused(CommandError):
    """A command that is not allowed: it is unsupported, or affects something outside the application."""


class LiveState:
    """The current state of an application's platform as a `ClusterState`.

    `namespaces` are the accepted names of the application's namespace. With `by_owner`, for commands from another run
    of the application, a missing pod is replaced by the newest pod of the same owner; `resolved` lists the
    replacements.
    """

    name = "live"
    is_partial = False
    kinds = LIVE_KINDS

    def __init__(
        self, platform: Platform, namespaces: frozenset[str], clock: Callable[[], int], *, by_owner: bool = False
    ) -> None:
        self.platform, self.namespace = platform, platform.app.name
        self._namespaces, self._clock, self._by_owner = namespaces, clock, by_owner
        self.resolved: list[tuple[str, str]] = []

    @property
    def now_ns(self) -> int:
        """Current time, UTC nanoseconds."""
        return self._clock()

    def check_namespace(self, namespace: str | None) -> None:
        """Raise CommandRefused for a namespace that is not the application's."""
        if namespace is not None and namespace not in self._namespaces:
            raise CommandRefused(
                f"namespace {namespace} is not the application's; leave -n out, or give {min(self._namespaces)}"
            )

    def kind_of(self, word: str) -> str:
        """Return the kind named by a word; raise CommandRefused if it is not supported."""
        kind = canonical_kind(word)
        if kind is None or kind not in (*LIVE_KINDS, "Event"):
            names = [entry.short[0] if entry.short else entry.plural for entry in KINDS if entry.kind in LIVE_KINDS]
            raise CommandRefused(f'the server doesn\'t have a resource type "{word[:60]}"; {suggest(word, names)}')
        return kind

    def objects(self, kind: str, selector: str | None = None) -> list[Object]:
        """Return the objects of a kind, without the values of Secrets."""
        terms = parse_label_selector(selector or "")
        bodies = [body for body in self.platform.list(kind) if terms.matches(body["metadata"].get("labels") or {})]
        return sorted(map(_without_secrets, bodies), key=lambda body: body["metadata"]["name"])

    def find_current_name(self, kind: str, name: str) -> str:
        """Return the name itself, or for a pod of another run the name of the same owner's current pod."""
        if kind != "Pod" or not self._by_owner or any(pod["metadata"]["name"] == name for pod in self._list_pods()):
            return name
        try:
            pods = self.pods_of("Deployment", workload_of_pod(name))
        except NegativeAnswer:
            return name
        if not pods:
            return name
        self.resolved.append((name, pods[0]))
        return pods[0]

    def created_ns(self, body: Object) -> int | None:
        """Return an object's creation timestamp."""
        created = body["metadata"].get("creationTimestamp")
        return parse_rfc3339_ns(created) if created else None

    def cells(self, body: Object) -> Cells:
        """Return the table cells of an object."""
        return {"NAMESPACE": self.namespace}

    def events(self) -> list[Event]:
        """Return the events of the last hour."""
        rows: list[Event] = []
        for batch in self._snapshot("events"):
            rows += batch.set_column(
                batch.column_names.index("time"), "time", batch["time"].cast(pa.int64())
            ).to_pylist()
        return last_occurrences(rows)

    def pod_names(self) -> list[str]:
        """Return the names of the pods, oldest first."""
        return [pod["metadata"]["name"] for pod in self._list_pods()]

    def pods_of(self, kind: str, name: str) -> list[str]:
        """Return the pods of a workload or Service that are not terminating, newest first."""
        if kind not in (*WORKLOADS, "ReplicaSet", "Service"):
            raise CommandRefused(f"{full_name(kind, name)} has no pods; name a pod, a deployment or a service")
        owners = {body["metadata"]["name"]: body for body in self.platform.list(kind)}
        if name not in owners:
            raise NegativeAnswer(answer_absent(resource_name(kind), name, owners))
        selector = owners[name]["spec"].get("selector") or {}
        pods = self._list_pods(selector if kind == "Service" else selector.get("matchLabels", selector))
        return [pod["metadata"]["name"] for pod in reversed(pods) if not pod["metadata"].get("deletionTimestamp")]

    def log_lines(self, pod: str) -> list[PodLogLine]:
        """Return a pod's log lines of the last hour."""
        lines: list[PodLogLine] = []
        for batch in self._snapshot("logs"):
            rows = batch.filter(pc.equal(batch["pod"].cast(pa.string()), pod))  # type: ignore[attr-defined]
            columns = (rows["time"].cast(pa.int64()), rows["container"], rows["level"], rows["message"])
            lines += [PodLogLine(*cells) for cells in zip(*(column.to_pylist() for column in columns), strict=True)]
        return lines

    def runs(self, pod: str) -> Runs:
        """Return the restart count in a pod's status, and the start of the current run."""
        statuses = (self._get_pod(pod).get("status") or {}).get("containerStatuses") or []
        restarted = [status for status in statuses if status.get("restartCount")]
        starts = [((status.get("state") or {}).get("running") or {}).get("startedAt") for status in restarted]
        return Runs(
            sum(status["restartCount"] for status in restarted),
            sorted(parse_rfc3339_ns(start) for start in starts if start)[-1:],
        )

    def containers(self, pod: str) -> set[str]:
        """Return the names of a pod's containers."""
        return {container["name"] for container in self._get_pod(pod)["spec"]["containers"]}

    def usage(self, pods: Sequence[str] | None) -> list[Usage]:
        """Return the current resource usage of pods, each under the alphabetically first name of its containers."""
        return [
            Usage(
                pod,
                min(self.containers(pod), default=""),
                cpu_cores(self.platform, pod),
                counter_now(self.platform, pod, "container_memory_working_set_bytes"),
            )
            for pod in self.pod_names()
            if pods is None or pod in pods
        ]

    def get(self, kind: str, name: str) -> Object:
        """Return an object; raise ObjectNotFound with the API server's message if it does not exist."""
        try:
            return self.platform.get(kind, self.find_current_name(kind, name))
        except ObjectNotFound:
            raise ObjectNotFound(f'Error from server (NotFound): {resource_name(kind)} "{name}" not found') from None

    def _list_pods(self, labels: Mapping[str, str] | None = None) -> list[Object]:
        pods = self.platform.list("Pod", labels) if labels is not None else self.platform.list("Pod")
        return sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")

    def _get_pod(self, name: str) -> Object:
        return next((pod for pod in self._list_pods() if pod["metadata"]["name"] == name), {"spec": {"containers": []}})

    def _snapshot(self, table: str) -> list[pa.Table]:
        now_ns = self.now_ns
        batches = self.platform.sources[table].snapshot(now_ns - _WINDOW_NS, now_ns)
        return [pa.Table.from_batches([batch]) for batch in batches]


@dataclass(frozen=True, kw_only=True)
class KubectlSession:
    """The changes that commands may make to an application."""

    state: LiveState
    """The platform as seen by commands."""
    original_objects: frozenset[tuple[str, str]]
    """Kind and name of the objects that existed before the fault; no others may be created."""
    folder: Path | None
    """Folder with the files of `apply -f`; None without files."""
    sleep: Callable[[float], None]
    """Waits for some seconds; raises if the episode is interrupted."""

    @property
    def platform(self) -> Platform:
        """Return the application's platform."""
        return self.state.platform

    def change(self, current: Object, changed: Mapping[str, Any], outcome: str) -> str:
        """Replace an object with a changed one, and return kubectl's output."""
        kind, name = current["kind"], current["metadata"]["name"]
        self.require_writable(kind)
        for key in ("apiVersion", "kind"):
            if changed.get(key) != current[key]:
                raise CommandRefused(f"{key} of {full_name(kind, name)} cannot be changed; keep it")
        if changed.get("metadata", {}).get("name") != name:
            raise CommandRefused(f"the name of {full_name(kind, name)} cannot be changed; keep it")
        if not isinstance(changed.get("spec", {}), Mapping):
            raise CommandRefused(f"the spec of {full_name(kind, name)} must be a mapping")
        change = merge_patch(current, changed)
        change.pop("status", None)
        if not change:
            return f"{full_name(kind, name)} {outcome} (no change)"
        self.platform.patch(kind, name, change)
        return f"{full_name(kind, name)} {outcome}"

    def require_writable(self, kind: str) -> None:
        """Raise CommandRefused for kinds that no command may change."""
        if kind not in _WRITABLE_KINDS:
            raise CommandRefused(
                f"{resource_name(kind)} do not belong to the application; change only the application's objects"
            )


def _without_secrets(body: Object) -> Object:
    """Remove the values of a Secret, which must not appear in outputs or results."""
    if body["kind"] != "Secret":
        return body
    hidden = copy.deepcopy(body)
    for field in ("data", "stringData"):
        if hidden.get(field):
            hidden[field] = dict.fromkeys(hidden[field], _HIDDEN)
    return hidden
