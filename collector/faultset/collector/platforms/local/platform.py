"""The local platform: an application as processes of this machine, changed through Kubernetes objects."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.apps.manifests import manifests
from faultset.collector.apps.spec import AppSpec
from faultset.collector.load.source import RequestSource
from faultset.collector.platforms.inverses import (
    inverse_of_delete,
    inverse_of_exec,
    inverse_of_impairment,
    inverse_of_patch,
)
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.addresses import AddressBlock
from faultset.collector.platforms.local.control import ControlPlane
from faultset.collector.platforms.local.controllers.cluster import Cluster
from faultset.collector.platforms.local.diagnosis import unready
from faultset.collector.platforms.local.loading import Load
from faultset.collector.platforms.local.network import Network, described
from faultset.collector.platforms.local.objects import Object, ObjectNotFound
from faultset.collector.platforms.local.programs import write_scripts
from faultset.collector.platforms.local.routing import SPANS_PORT
from faultset.collector.platforms.local.telemetry_source import TelemetrySource
from faultset.collector.platforms.local.undoing import Undoer
from faultset.collector.platforms.observing.sources import EventSource, LogSource, ObjectSource
from faultset.collector.platforms.protocol import Impairment, Source
from faultset.collector.platforms.undoing import replay
from faultset.collector.runtime.store import redis_programs
from faultset.datasets.errors import PlatformError

_EXEC_TIMEOUT_S = 30.0
_POLL_S = 0.02


class LocalPlatform:
    """One application in one episode on this machine.

    Parameters
    ----------
    app
        What to run.
    folder
        Scratch files; those of an earlier run are removed by `deploy`, all by `teardown`.
    journal
        Where every act and its inverse are recorded before the act.
    seed
        Seed of pod names and of the network's losses.
    step_s
        Interval of metrics in seconds.
    back_off_factor
        Multiplies the kubelet's waits; 1 is what a real cluster does.
    telemetry
        Whether to collect metrics and spans.
    """

    name = "local"

    def __init__(
        self,
        app: AppSpec,
        folder: Path,
        *,
        journal: Journal,
        seed: int,
        step_s: float = 1.0,
        back_off_factor: float = 1.0,
        telemetry: bool = True,
    ):
        self.app = app
        self.folder = Path(folder).absolute()
        self.back_off_factor = back_off_factor
        self._journal = journal
        self._seed = seed
        self._step_s = step_s
        self._telemetry = telemetry
        self._plane: ControlPlane | None = None
        self._services: dict[str, str | None] = {}
        self._sources: list[Source] = []
        self._load: Load | None = None

    def deploy(self) -> None:
        """Apply the application's manifests and start telemetry; return without waiting for readiness."""
        redis = redis_programs()
        self.folder.mkdir(parents=True, exist_ok=True)
        plane = ControlPlane(
            self.folder, self._cluster, seed=self._seed, step_s=self._step_s, telemetry=self._telemetry
        )
        self._plane = plane
        try:
            plane.addresses.check_ports({service.port for service in self.app.services.values()} | {SPANS_PORT})
            plane.start()
            programs = {"redis-server": redis.server, "redis-cli": redis.cli}
            write_scripts(self.folder / "bin", {name: path for name, path in programs.items() if path})
            endpoint = f"http://{plane.addresses.spans_in}:{SPANS_PORT}"
            self.apply(manifests(self.app, telemetry_endpoint=endpoint))
            self._load = Load(plane, self.app, self.folder / "load")
        except BaseException:
            self.teardown()
            raise

    def start_load(self, *, seed: int, rate_rps: float, mix: str) -> None:
        """Start the open-loop load against the application's entry."""
        self._running().worst_delay_s = 0.0
        self._must_load().start(seed=seed, rate_rps=rate_rps, mix=mix)

    def step_load(self, factor: float) -> None:
        """Change the load to `factor` times its planned rate, from now on; nothing happens without a load."""
        self._must_load().step(factor)

    def stop_load(self) -> None:
        """Stop the load; requests without an answer count as unfinished."""
        self._must_load().stop()

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace objects; not journaled."""
        plane = self._running()
        with plane.lock:
            for wanted in objects:
                plane.cluster.store.apply(wanted)
            plane.settle()

    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""
        plane = self._running()
        with plane.lock:
            return plane.cluster.store.get(kind, name)

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind that carry the labels."""
        plane = self._running()
        with plane.lock:
            return plane.cluster.store.list(kind, labels)

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""
        plane = self._running()
        with plane.lock:
            current = plane.cluster.store.get(kind, name)
            args = {"kind": kind, "name": name, "change": change}
            with self._journal.act("patch", args, inverse_of_patch(current, change), [name, *_leaves(change)]):
                plane.cluster.store.patch(kind, name, change)
                plane.settle()
            return plane.cluster.store.get(kind, name)

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo applies it again (nothing for pods, which their owner replaces)."""
        plane = self._running()
        with plane.lock:
            current = plane.cluster.store.get(kind, name)
            args = {"kind": kind, "name": name, "grace_period_s": grace_period_s}
            with self._journal.act("delete", args, inverse_of_delete(current), [name, *_leaves(current.get("spec"))]):
                plane.cluster.store.delete(kind, name, grace_period_s=grace_period_s)
                plane.settle()

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output; raise PlatformError when it fails."""
        found = self.get("Pod", pod)
        inverse = inverse_of_exec(self._workload_labels(found), undo) if undo is not None else None
        visible = [pod, *_leaves(found["spec"])]
        with self._journal.act("exec", {"pod": pod, "argv": list(argv)}, inverse, visible):
            return self.run_in(pod, argv)

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        plane, found = self._running(), self.get("Pod", pod)
        container = found["spec"]["containers"][0]["name"]
        with self._journal.act("kill", {"pod": pod}, None, [pod]):
            uid = found["metadata"]["uid"]
            if not plane.call("node", "signal", uid=uid, container=container, signal_name="KILL", main_only=True):
                raise PlatformError(f"cannot kill container {container} of pod {pod}: it does not run")

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Disturb all that the pod sends until undone; ends with the collector, whose child the relay is."""
        self.get("Pod", pod)
        args = {"pod": pod, **described(impairment)}
        with self._journal.act("impair", args, inverse_of_impairment(pod), [pod]):
            Network(self._running()).impair(pod, impairment)

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets of the pod the current impairment has disturbed so far."""
        return Network(self._running()).disturbed_packets(pod)

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Return once `condition` holds; raise PlatformError naming `what` after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            plane = self._running()
            self._must_load().check()
            if time.monotonic() > deadline:
                with plane.lock:
                    seen = unready(plane.cluster.store, plane.worker.log_file)
                raise PlatformError(f"waited {timeout_s:g} s in vain for {what}; {seen}")
            time.sleep(_POLL_S)

    def undo(self) -> None:
        """Replay the journal's open inverses backwards, then restart pods that wait in a back-off."""
        undoer = Undoer(self, self._running())
        try:
            replay(self._journal, undoer)
        finally:
            undoer.restart_waiting()

    def sources(self) -> Sequence[Source]:
        """Return the sources of every table."""
        plane = self._running()
        if not self._sources:
            cluster = plane.cluster
            self._sources = [
                LogSource(self.folder / "logs", self._service_of_pod),
                EventSource(cluster.events),
                ObjectSource(cluster.changes),
                RequestSource(self._must_load().results),
            ]
            if self._telemetry:
                channel, folder = plane.channel("telemetry"), self.folder / "telemetry"
                self._sources += [
                    TelemetrySource("metrics", channel, folder, interval_s=self._step_s),
                    TelemetrySource("spans", channel, folder),
                ]
        return list(self._sources)

    def teardown(self) -> None:
        """End every process and remove every object of the episode; may be called twice."""
        for source in self._sources:
            source.close()
        self._sources = []
        plane, self._plane = self._plane, None
        if plane is not None:
            if self._load is not None:
                self._load.close()
            plane.stop()
            plane.clean()

    def host_load(self) -> dict[str, Any]:
        """Return how busy the machine is, and how late we were at worst since the load was started."""
        plane = self._running()
        made: dict[str, Any] = {
            "load_average": os.getloadavg()[0],
            "cores": os.cpu_count() or 1,
            "worst_delay_ms": round(1e3 * plane.worst_delay_s, 3),
        }
        if self._telemetry:
            made["worst_scrape_lag_ms"] = round(plane.call("telemetry", "health")["worst_lag_ms"], 3)
        return made

    def run_in(self, pod: str, argv: Sequence[str]) -> str:
        """Run a command in the pod's main container and return its output; not journaled."""
        found = self.get("Pod", pod)
        container = found["spec"]["containers"][0]["name"]
        answer = self._running().call(
            "commands",
            "exec",
            uid=found["metadata"]["uid"],
            container=container,
            argv=list(argv),
            timeout_s=_EXEC_TIMEOUT_S,
        )
        if answer["code"]:
            said = " ".join(answer["output"].split())[-400:]
            raise PlatformError(f"{argv[0]} in pod {pod} ended with code {answer['code']}: {said or 'no output'}")
        return answer["output"]

    def _cluster(self, addresses: AddressBlock) -> Cluster:
        return Cluster(
            clock=time.time_ns,
            seed=self._seed,
            namespace=self.app.name,
            label_key=self.app.label_key,
            service_address=addresses.service,
            pod_address=addresses.pod,
            back_off_factor=self.back_off_factor,
        )

    def _running(self) -> ControlPlane:
        if self._plane is None:
            raise PlatformError("nothing is deployed; call deploy first")
        self._plane.check()
        return self._plane

    def _must_load(self) -> Load:
        self._running()
        if self._load is None:
            raise PlatformError("nothing is deployed; call deploy first")
        return self._load

    def _workload_labels(self, pod: Object) -> dict[str, str]:
        labels = pod["metadata"].get("labels") or {}
        key = self.app.label_key
        return {key: labels[key]} if key in labels else dict(labels)

    def _service_of_pod(self, pod: str) -> str | None:
        """Return the workload of a pod that may be gone."""
        if self._plane is not None:
            for seen in self._plane.cluster.changes.observations:
                if seen.kind == "Pod":
                    self._services.setdefault(seen.name, seen.service)
        return self._services.get(pod)


def _leaves(change: Any) -> Iterator[str]:
    """Yield the plain values in a change: an operator who looks at the object sees them."""
    if isinstance(change, Mapping):
        for value in change.values():
            yield from _leaves(value)
    elif isinstance(change, list | tuple):
        for value in change:
            yield from _leaves(value)
    elif change is not None:
        yield str(change)


__all__ = ["LocalPlatform", "ObjectNotFound"]
