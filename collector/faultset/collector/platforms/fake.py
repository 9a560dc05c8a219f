"""An in-memory platform for tests of faults and episodes, with the real object model, journal and undo.

Containers start and stop immediately and run no program. Telemetry consists of the `rows` that a test sets.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from faultset.collector.load.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.cluster.cluster import Cluster
from faultset.collector.platforms.cluster.context import (
    Command,
    ContainerExited,
    ProbeContainer,
    ProbeResult,
    Report,
    SignalContainer,
    StartContainer,
    Started,
    StartFailed,
)
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.journal import Journal, JournaledPlatform, UndoOperation
from faultset.collector.platforms.objects import deep_copy
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import PAUSE_REPOSITORY, SPANS_PORT
from faultset.collector.spec.credentials import SecretKey
from faultset.collector.spec.manifests import manifests, service_manifests, workload
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

_MAX_ROUNDS = 1000


class SimulatedCluster:
    """A `Cluster` with a simulated clock and node.

    Containers start and stop immediately and pass their probes; only pause containers fail them.

    Parameters
    ----------
    now_ns
        Initial time; only `advance` changes it.

    Attributes
    ----------
    missing_programs
        Programs that cannot be started.
    ignores_term
        Pods whose containers ignore SIGTERM.
    """

    def __init__(
        self,
        *,
        now_ns: int,
        namespace: str,
        label_key: str,
        seed: int = 7,
        back_off_factor: float = 1.0,
        allocatable: Mapping[str, str] | None = None,
    ):
        self.now_ns = now_ns
        self.running: dict[tuple[str, str], StartContainer] = {}
        self.missing_programs: set[str] = set()
        self.ignores_term: set[str] = set()
        self._services, self._pods = itertools.count(1), itertools.count(1)
        self.cluster = Cluster(
            clock=self.time_ns,
            seed=seed,
            namespace=namespace,
            label_key=label_key,
            service_address=self._service_address,
            pod_address=self._pod_address,
            back_off_factor=back_off_factor,
            allocatable=allocatable,
        )
        self.store = self.cluster.store
        self.settle()

    def time_ns(self) -> int:
        return self.now_ns

    def settle(self) -> None:
        """Run the controllers until nothing is due."""
        for _ in range(_MAX_ROUNDS):
            if not self.cluster.due:
                return
            for command in self.cluster.reconcile():
                self._perform(command)
        raise AssertionError(f"the controllers are still acting after {_MAX_ROUNDS} rounds")

    def advance(self, seconds: float) -> None:
        """Advance the clock and run the controllers whenever something is due."""
        end_ns = self.now_ns + round(seconds * SECOND_NS)
        while (due_ns := self.cluster.context.due_ns) is not None and due_ns <= end_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.settle()
        self.now_ns = end_ns
        self.settle()

    def end(self, *pods: str, code: int = 2, out_of_memory: bool = False) -> None:
        """End the containers of pods, as if their programs had exited."""
        for key, started in [*self.running.items()]:
            if started.pod in pods:
                self._end(key, code, out_of_memory=out_of_memory)
        self.settle()

    def _perform(self, command: Command) -> None:
        report: Report | None = None
        match command:
            case StartContainer():
                report = self._start(command)
            case ProbeContainer():
                report = self._probe(command)
            case SignalContainer():
                key = (command.uid, command.container)
                started = self.running.get(key)
                if started and (command.signal == "KILL" or started.pod not in self.ignores_term):
                    self._end(key, 137 if command.signal == "KILL" else 0)
            case _:
                pass
        if report is not None:
            self.cluster.handle(report)

    def _start(self, command: StartContainer) -> Report:
        fields: dict[str, Any] = {
            "uid": command.uid,
            "container": command.container,
            "attempt": command.attempt,
            "time_ns": self.now_ns,
        }
        program = command.command[0] if command.command else ""
        if program in self.missing_programs:
            return StartFailed(**fields, message=f'exec: "{program}": executable file not found')
        self.running[command.uid, command.container] = command
        return Started(**fields)

    def _probe(self, probe: ProbeContainer) -> Report:
        started = self.running.get((probe.uid, probe.container))
        refuses = started is None or started.image.rpartition(":")[0] == PAUSE_REPOSITORY
        return ProbeResult(
            uid=probe.uid,
            container=probe.container,
            attempt=probe.attempt,
            purpose=probe.purpose,
            time_ns=self.now_ns,
            failure=f"dial tcp {probe.address}:{probe.port}: connect: connection refused" if refuses else "",
        )

    def _end(self, key: tuple[str, str], code: int, *, out_of_memory: bool = False) -> None:
        started = self.running.pop(key)
        report = ContainerExited(
            uid=started.uid,
            container=started.container,
            attempt=started.attempt,
            time_ns=self.now_ns,
            exit_code=code,
            out_of_memory=out_of_memory,
            detail=f"Killed process of pod {started.pod}" if out_of_memory else "",
        )
        self.cluster.handle(report)

    def _service_address(self) -> str:
        return f"127.9.0.{next(self._services)}"

    def _pod_address(self) -> str:
        return f"127.9.1.{next(self._pods)}"


def follow_custom_resource(app: AppSpec, store: ObjectStore) -> bool:
    """Apply the custom resource's replicas and storage classes to its components; return whether they changed."""
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
        settings = resource["spec"].get(component) or {}
        changed = deep_copy(workload)
        changed["spec"]["replicas"] = settings.get("replicas", changed["spec"]["replicas"])
        for claim in changed["spec"].get("volumeClaimTemplates", ()):
            claim["spec"].pop("storageClassName", None)
            if settings.get("storageClassName"):
                claim["spec"]["storageClassName"] = settings["storageClassName"]
        if changed["spec"].get("volumeClaimTemplates") != workload["spec"].get("volumeClaimTemplates"):
            _recreate(store, changed)
        elif changed["spec"] != workload["spec"]:
            store.patch("StatefulSet", component, {"spec": {"replicas": changed["spec"]["replicas"]}})
    return store.version != before


def _recreate(store: ObjectStore, workload: Object) -> None:
    """Recreate a StatefulSet; remove its pods and the claims of its first pod."""
    name = workload["metadata"]["name"]
    store.remove("StatefulSet", name)
    for pod in store.list("Pod"):
        if pod["metadata"]["name"].rpartition("-")[0] == name:
            store.remove("Pod", pod["metadata"]["name"])
    for template in workload["spec"]["volumeClaimTemplates"]:
        store.remove("PersistentVolumeClaim", f"{template['metadata']['name']}-{name}-0")
    store.create({key: value for key, value in workload.items() if key != "status"})


_SPARE_PODS = 11
"""Pods that fit on the node in addition to one per service; additional pods stay Pending."""
_STEP_S = 0.5
_RESTART_S = 45.0
"""Long enough for a container that was killed twice to restart."""


class FakeSource:
    """A source that returns `rows`."""

    def __init__(self, table: str, rows: list[dict[str, Any]]):
        self.table, self.rows = table, rows
        self.interval_s: float | None = 1.0

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([field for field in TABLES[self.table] if field.name != "episode"])
        column = "scheduled" if self.table == "requests" else "time"
        rows = [row for row in self.rows if start_ns <= row[column] < end_ns]
        yield from pa.Table.from_pylist(rows, schema=schema).to_batches()

    def close(self) -> None:
        """Do nothing."""


class FakePlatform(JournaledPlatform):
    """The in-memory platform; `calls` lists the calls in order, except `apply`, reads and waits."""

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
        """Return the cluster and rows for `from_state`."""
        return pickle.dumps((self.simulation, self.rows))

    @classmethod
    def from_state(cls, app: AppSpec, journal: Journal, state: bytes) -> FakePlatform:
        """Return a platform in the state of another one, with a new journal and no calls."""
        platform = cls(app, journal)
        platform.simulation, platform.rows = pickle.loads(state)
        return platform

    @property
    def objects(self) -> dict[tuple[str, str], Object]:
        """The stored objects themselves, by kind and name; tests may change them in place."""
        return {(item["kind"], item["metadata"]["name"]): item for item in self.simulation.store.all()}

    def replace_pods(self, service: str) -> None:
        """Replace all pods of a service, as after a recovery."""
        for pod in self.simulation.store.list("Pod", {self.app.label_key: service}):
            self.simulation.store.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
        self._settle()

    def deploy(self) -> None:
        self.calls.append(("deploy",))
        endpoint = f"http://telemetry:{SPANS_PORT}"
        self.apply(manifests(self.app, telemetry_endpoint=endpoint))
        # an operator would create these
        for component in (self.app.services[name] for name in self.app.components):
            self.apply([*service_manifests(self.app, component), workload(self.app, component, endpoint)])

    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        self.calls.append(("start_load", seed, rate_rps, mix))

    def step_load(self, factor: float) -> None:
        self.calls.append(("step_load", factor))

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        for manifest in objects:
            self.simulation.store.apply(manifest)
        self._settle()

    def find(self, kind: str, name: str) -> Object | None:
        return deep_copy(self.simulation.store.find(kind, name))

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return self.simulation.store.list(kind, labels)

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Record the command: `echo` prints its arguments, `false` fails, others print their entry in `answers`."""
        self.calls.append(("exec", pod, tuple(argv)))
        if argv[0] == "false":
            raise PlatformError("false ended with code 1: no output")
        return " ".join(argv[1:]) if argv[0] == "echo" else self.answers.get(argv[0], "")

    def execute_undo(self, operation: UndoOperation) -> None:
        """Execute one undo operation; an undo command also clears `answers`."""
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
        self.calls.append(("patch", kind, name, deep_copy(dict(change))))
        self.simulation.store.patch(kind, name, change)
        self._settle()

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        self.simulation.store.get(kind, name)
        self.calls.append(("delete", kind, name))
        self.simulation.store.delete(kind, name, grace_period_s=grace_period_s)
        self._settle()

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
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
        """Advance simulated time until `condition` holds."""
        end_ns = self.simulation.now_ns + round(timeout_s * 1e9)
        while not condition():
            if self.simulation.now_ns >= end_ns:
                raise PlatformError(f"timed out after {timeout_s:g} s waiting for {what}; {self._describe_unready()}")
            self.simulation.advance(_STEP_S)

    def _describe_unready(self) -> str:
        return "the in-memory platform runs no programs"

    @property
    def sources(self) -> Mapping[str, Source]:
        return {table: self.source_kinds.get(table, FakeSource)(table, rows) for table, rows in self.rows.items()}

    def measure_host_load(self, *, reset: bool = False) -> HostLoad:
        """Return `load`, which is idle by default."""
        return self.load

    def clock_offsets_s(self) -> dict[str, float]:
        return dict.fromkeys(self.rows, 0.0)

    def stop_load(self) -> None:
        self.calls.append(("stop_load",))

    def teardown(self) -> None:
        self.torn_down = True
        self.calls.append(("teardown",))

    def _settle(self) -> None:
        self.simulation.settle()
        while follow_custom_resource(self.app, self.simulation.store):
            self.simulation.settle()
