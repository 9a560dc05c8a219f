"""A platform in memory, for tests of faults and episodes: objects, journal and undo are real, pods are not.

A workload's pods appear at once and are Running, as far as there is room for them; `requests` says what clients saw.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from faultset.collector.load.workloads.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.api.capabilities import HostLoad
from faultset.collector.platforms.api.impairments import Impairment
from faultset.collector.platforms.api.objects import Object, ObjectNotFound, copied
from faultset.collector.platforms.api.workload_state import WORKLOADS
from faultset.collector.platforms.fake_operator import follow_custom_resource
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.platforms.journal.journaled_verbs import JournaledCommands, JournaledImpairments, JournaledKills
from faultset.collector.platforms.journal.undo import UndoExecutor, undo_all
from faultset.collector.platforms.journal.undo_operations import merge
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPANS_PORT
from faultset.collector.spec.credentials import SecretKey
from faultset.collector.spec.manifests import manifests, service_manifests, workload
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import TABLES

_MOST_PODS = 12
"""Pods of one workload that there is room for; one more waits."""


class FakeSource:
    """A source that answers with the rows it was given."""

    def __init__(self, table: str, rows: list[dict[str, Any]]):
        self.table, self.rows = table, rows
        self.interval_s: float | None = 1.0

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows whose time lies in the window."""
        schema = pa.schema([field for field in TABLES[self.table] if field.name != "episode"])
        column = "scheduled" if self.table == "requests" else "time"
        rows = [row for row in self.rows if start_ns <= row[column] < end_ns]
        yield from pa.Table.from_pylist(rows, schema=schema).to_batches()

    def close(self) -> None:
        """Nothing to close."""


class FakePlatform(JournaledCommands, JournaledKills, JournaledImpairments):
    """See the module; `calls` lists all verbs in order."""

    name = "fake"
    ready_timeout_s = 1.0

    def __init__(self, app: AppSpec, journal: Journal):
        super().__init__(app, journal)
        self.journal = journal
        self.objects: dict[tuple[str, str], Object] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.impairments: dict[str, Impairment] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
        self.source_kinds: dict[str, type[FakeSource]] = {}
        self.load = HostLoad(load_average=0.0, worst_delay_ms=0.0)
        self._last_number = 0
        self.answers: dict[str, str] = {}
        self.torn_down = False

    def state(self) -> bytes:
        """Return objects and rows, from which `from_state` makes platforms."""
        return pickle.dumps((self.objects, self.rows, self._last_number))

    @classmethod
    def from_state(cls, app: AppSpec, journal: Journal, state: bytes) -> FakePlatform:
        """Return a platform in the state of another one, with a journal of its own and no calls yet."""
        made = cls(app, journal)
        made.objects, made.rows, made._last_number = pickle.loads(state)
        return made

    def replace_pods(self) -> None:
        """Put a new pod in the place of each, as after a recovery."""
        for key in [key for key in self.objects if key[0] == "Pod"]:
            del self.objects[key]
        self._reconcile()

    def deploy(self) -> None:
        """Apply the manifests."""
        self.calls.append(("deploy",))
        endpoint = f"http://telemetry:{SPANS_PORT}"
        self.apply(manifests(self.app, telemetry_endpoint=endpoint))
        for component in (self.app.services[name] for name in self.app.components):  # as its operator would
            self.apply([*service_manifests(self.app, component), workload(self.app, component, endpoint)])

    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        """Note it."""
        self.calls.append(("start_load", seed, rate_rps, mix))

    def step_load(self, factor: float) -> None:
        """Note it."""
        self.calls.append(("step_load", factor))

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace, then bring pods in line."""
        for given in objects:
            made = copied(dict(given))
            made["metadata"].setdefault("creationTimestamp", f"2026-01-01T00:00:{self._next_number():02d}Z")
            self.objects[made["kind"], made["metadata"]["name"]] = made
        self._reconcile()

    def get(self, kind: str, name: str) -> Object:
        """Return a copy."""
        if (kind, name) not in self.objects:
            raise ObjectNotFound(f"there is no {kind} {name}")
        return copied(self.objects[kind, name])

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies."""
        return [copied(found) for found in self._each(kind, labels)]

    def _each(self, kind: str, labels: Mapping[str, str] | None = None) -> Iterator[Object]:
        wanted = (labels or {}).items()
        for (found_kind, _), found in [*self.objects.items()]:
            if found_kind == kind and wanted <= found["metadata"].get("labels", {}).items():
                yield found

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Note it; `echo` prints its words, `false` fails, others print what `answers` has until an undo command."""
        self.calls.append(("exec", pod, tuple(argv)))
        if argv[0] == "false":
            raise PlatformError("false ended with code 1: no output")
        return " ".join(argv[1:]) if argv[0] == "echo" else self.answers.get(argv[0], "")

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        if (kind, name) not in self.objects:
            raise ObjectNotFound(f"there is no {kind} {name}")
        self.calls.append(("patch", kind, name, copied(dict(change))))
        self.objects[kind, name] = merge(self.objects[kind, name], change)
        self._reconcile()

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        if (kind, name) not in self.objects:
            raise ObjectNotFound(f"there is no {kind} {name}")
        self.calls.append(("delete", kind, name))
        del self.objects[kind, name]
        self._reconcile()

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Note it, and change the Secret as every platform does."""
        self.calls.append(("secret", changed.secret, changed.key))
        super().change_secret(changed, text, copied_from=copied_from)

    def _kill(self, pod: Object, container: str) -> None:
        name = pod["metadata"]["name"]
        self.calls.append(("kill", name))
        self.objects["Pod", name]["status"]["containerStatuses"][0]["restartCount"] += 1

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        name = pod["metadata"]["name"]
        self.calls.append(("impair", name, impairment))
        self.impairments[name] = impairment

    def impaired_packets(self, pod: str) -> int:
        """Return 1 while the pod is impaired."""
        return int(pod in self.impairments)

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Look once."""
        if not condition():
            raise PlatformError(f"waited {timeout_s:g} s for {what}")

    def undo(self) -> None:
        """Undo what the journal holds."""
        undo_all(self.journal, _FakeUndoExecutor(self).execute)

    @property
    def sources(self) -> Mapping[str, Source]:
        """One source for each table."""
        return {table: self.source_kinds.get(table, FakeSource)(table, rows) for table, rows in self.rows.items()}

    def host_load(self) -> HostLoad:
        """Return what it was given; a quiet host at first."""
        return self.load

    def clock_offsets_s(self) -> dict[str, float]:
        """Return zeros."""
        return dict.fromkeys(self.rows, 0.0)

    def stop_load(self) -> None:
        """Note it."""
        self.calls.append(("stop_load",))

    def teardown(self) -> None:
        """Note it."""
        self.torn_down = True
        self.calls.append(("teardown",))

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _reconcile(self) -> None:
        key = self.app.label_key
        follow_custom_resource(self.app, self.objects)
        pods_of: defaultdict[str | None, list[Object]] = defaultdict(list)
        for pod in self._each("Pod"):
            pods_of[pod["metadata"].get("labels", {}).get(key)].append(pod)
        for (kind, name), deployment in [*self.objects.items()]:
            if kind not in WORKLOADS:
                continue
            asked = deployment["spec"].get("replicas", 1)
            wanted = min(asked, _MOST_PODS + 1)
            template = deployment["spec"]["template"]
            wanted_form = _form(template)
            present = [(pod, _form(pod) == wanted_form) for pod in pods_of[name]]
            pods = [pod for pod, is_current in present if is_current]
            for pod, is_current in present:
                if not is_current and pod["metadata"].get("patched") is None and deployment.get("seen"):
                    if deployment["seen"] != wanted_form:
                        del self.objects["Pod", pod["metadata"]["name"]]
                    else:
                        pods.append(pod)
            if deployment.get("seen") != wanted_form:
                deployment["seen"] = copied(wanted_form)
            for pod in pods[wanted:]:
                del self.objects["Pod", pod["metadata"]["name"]]
            for place in range(len(pods), wanted):
                number = self._next_number()
                container = template["spec"]["containers"][0]
                status = {
                    "name": container["name"],
                    "image": container["image"],
                    "restartCount": 0,
                    "state": {"running": {}},
                    "ready": True,
                }
                made = self.objects["Pod", f"{name}-{number}"] = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": f"{name}-{number}",
                        "labels": dict(template["metadata"]["labels"]),
                        "annotations": dict(template["metadata"].get("annotations") or {}),
                        "creationTimestamp": f"2026-01-01T00:01:{number:04d}Z",
                    },
                    "spec": copied(template["spec"]),
                    "status": {
                        "phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True"}],
                        "containerStatuses": [status],
                    },
                }
                if place >= _MOST_PODS:
                    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                    made["status"] = {"phase": "Pending", "conditions": [unscheduled]}
            ready = min(wanted, _MOST_PODS)
            deployment["status"] = {"availableReplicas": ready, "readyReplicas": ready, "updatedReplicas": wanted}


def _form(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a pod has in common with the template that it was made from."""
    return {"spec": found["spec"], "annotations": found["metadata"].get("annotations") or {}}


class _FakeUndoExecutor(UndoExecutor):
    timeout_s = pause_s = 0.0

    def __init__(self, platform: FakePlatform):
        self._platform = platform

    def _find(self, kind: str, name: str) -> Object | None:
        return self._platform.objects.get((kind, name))

    def _list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return self._platform.list(kind, labels)

    def _create(self, wanted: Mapping[str, Any]) -> bool:
        if self._find(wanted["kind"], wanted["metadata"]["name"]) is not None:
            return False
        self._platform.apply([wanted])
        return True

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self._platform._patch(kind, name, change)

    def _delete(self, kind: str, names: Sequence[str]) -> None:
        for name in names:
            self._platform.objects.pop((kind, name), None)

    def _run(self, pod: str, argv: Sequence[str]) -> None:
        self._platform.calls.append(("undo-exec", tuple(argv)))
        self._platform.answers.clear()

    def _lift(self, pod: str) -> None:
        self._platform.impairments.pop(pod, None)
