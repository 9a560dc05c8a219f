"""A platform in memory, for tests of faults and episodes: objects, controllers, journal and undo are real.

Containers start and end at once and run nothing; `rows` holds the telemetry that was recorded.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from faultset.collector.load.workloads.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.cluster.cluster import SimulatedCluster
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.journal import Journal, UndoOperation
from faultset.collector.platforms.journaled import JournaledPlatform
from faultset.collector.platforms.objects import Object, copied
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPANS_PORT
from faultset.collector.spec.credentials import SecretKey
from faultset.collector.spec.manifests import manifests, service_manifests, workload
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import TABLES


def follow_custom_resource(app: AppSpec, store: ObjectStore) -> bool:
    """Bring replicas and storage classes of an operator's components in line; return whether something changed."""
    if app.operator is None:
        return False
    resource = store.find(app.operator.resource.kind, app.operator.resource.name)
    before = store.version
    if resource is None:
        return False
    for component in app.components:
        workload = store.find("StatefulSet", component)
        if workload is None:
            continue
        wish = resource["spec"].get(component) or {}
        changed = copied(workload)
        changed["spec"]["replicas"] = wish.get("replicas", changed["spec"]["replicas"])
        for claim in changed["spec"].get("volumeClaimTemplates", ()):
            claim["spec"].pop("storageClassName", None)
            if wish.get("storageClassName"):
                claim["spec"]["storageClassName"] = wish["storageClassName"]
        if changed["spec"].get("volumeClaimTemplates") != workload["spec"].get("volumeClaimTemplates"):
            _replace(store, changed)
        elif changed["spec"] != workload["spec"]:
            store.patch("StatefulSet", component, {"spec": {"replicas": changed["spec"]["replicas"]}})
    return store.version != before


def _replace(store: ObjectStore, workload: Object) -> None:
    """Make a set again whose volumes are others, with new claims."""
    name = workload["metadata"]["name"]
    store.remove("StatefulSet", name)
    for pod in store.list("Pod"):
        if pod["metadata"]["name"].rpartition("-")[0] == name:
            store.remove("Pod", pod["metadata"]["name"])
    for template in workload["spec"]["volumeClaimTemplates"]:
        store.remove("PersistentVolumeClaim", f"{template['metadata']['name']}-{name}-0")
    store.create({key: value for key, value in workload.items() if key != "status"})


_SPARE_PODS = 11
"""How many more pods than its services there is room for; one more waits."""
_STEP_S = 0.5
_RESTART_S = 45.0
"""After this time a container that was killed twice runs again."""


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


class FakePlatform(JournaledPlatform):
    """See the module; `calls` lists all verbs in order."""

    name = "fake"
    ready_timeout_s = 1.0
    undo_timeout_s = undo_pause_s = 0.0

    def __init__(self, app: AppSpec, journal: Journal):
        super().__init__(app, journal)
        self.simulation = SimulatedCluster(
            now_ns=time.time_ns(),
            namespace=app.name,
            label_key=app.label_key,
            allocatable={"cpu": "64", "memory": "256Gi", "pods": str(len(app.services) + _SPARE_PODS)},
        )
        self.calls: list[tuple[Any, ...]] = []
        self.impairments: dict[str, Impairment] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
        self.source_kinds: dict[str, type[FakeSource]] = {}
        self.load = HostLoad(load_average=0.0, worst_delay_ms=0.0)
        self.answers: dict[str, str] = {}
        self.torn_down = False

    def state(self) -> bytes:
        """Return cluster and rows, from which `from_state` makes platforms."""
        return pickle.dumps((self.simulation, self.rows))

    @classmethod
    def from_state(cls, app: AppSpec, journal: Journal, state: bytes) -> FakePlatform:
        """Return a platform in the state of another one, with a journal of its own and no calls yet."""
        platform = cls(app, journal)
        platform.simulation, platform.rows = pickle.loads(state)
        return platform

    @property
    def objects(self) -> dict[tuple[str, str], Object]:
        """The stored objects themselves by kind and name; a test may change them in place."""
        return {(one["kind"], one["metadata"]["name"]): one for one in self.simulation.store.all()}

    def replace_pods(self, service: str) -> None:
        """Put a new pod in the place of each of a service, as after a recovery."""
        for pod in self.simulation.store.list("Pod", {self.app.label_key: service}):
            self.simulation.store.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
        self._settle()

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
        """Create or replace, then let the controllers act."""
        for manifest in objects:
            self.simulation.store.apply(manifest)
        self._settle()

    def find(self, kind: str, name: str) -> Object | None:
        """Return a copy, or None."""
        return copied(self.simulation.store.find(kind, name))

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies."""
        return self.simulation.store.list(kind, labels)

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Note it; `echo` prints its words, `false` fails, others print what `answers` has until an undo command."""
        self.calls.append(("exec", pod, tuple(argv)))
        if argv[0] == "false":
            raise PlatformError("false ended with code 1: no output")
        return " ".join(argv[1:]) if argv[0] == "echo" else self.answers.get(argv[0], "")

    def execute_undo(self, operation: UndoOperation) -> None:
        """Execute one undo operation; a command takes the answers of others with it."""
        super().execute_undo(operation)
        if operation["verb"] == "exec":
            self.answers.clear()

    def _create(self, manifest: Mapping[str, Any]) -> bool:
        if self.find(manifest["kind"], manifest["metadata"]["name"]) is not None:
            return False
        self.apply([manifest])
        return True

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self.simulation.store.get(kind, name)
        self.calls.append(("patch", kind, name, copied(dict(change))))
        self.simulation.store.patch(kind, name, change)
        self._settle()

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        self.simulation.store.get(kind, name)
        self.calls.append(("delete", kind, name))
        self.simulation.store.delete(kind, name, grace_period_s=grace_period_s)
        self._settle()

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Note it, and change the Secret as every platform does."""
        self.calls.append(("secret", changed.secret, changed.key))
        super().change_secret(changed, text, copied_from=copied_from)

    def _kill(self, pod: Object, container: str) -> None:
        name = pod["metadata"]["name"]
        self.calls.append(("kill", name))
        self.simulation.end(name, code=137)
        self.simulation.advance(_RESTART_S)

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        name = pod["metadata"]["name"]
        self.calls.append(("impair", name, impairment))
        self.impairments[name] = impairment

    def _lift(self, pod: str) -> None:
        self.impairments.pop(pod, None)

    def impaired_packets(self, pod: str) -> int:
        """Return 1 while the pod is impaired."""
        return int(pod in self.impairments)

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Let simulated time pass until `condition` holds."""
        end_ns = self.simulation.now_ns + round(timeout_s * 1e9)
        while not condition():
            if self.simulation.now_ns >= end_ns:
                raise PlatformError(f"waited {timeout_s:g} s without success for {what}; {self._describe_unready()}")
            self.simulation.advance(_STEP_S)

    def _describe_unready(self) -> str:
        return "nothing runs in memory"

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

    def _settle(self) -> None:
        self.simulation.settle()
        while follow_custom_resource(self.app, self.simulation.store):
            self.simulation.settle()
