"""The local platform: an application as processes of this machine, changed through Kubernetes objects."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Channel
from faultset.collector.ipc.processes import is_stopped, tail
from faultset.collector.load.messages import ChangeLoad, StopLoad
from faultset.collector.load.source import RequestSource
from faultset.collector.load.workloads.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.cluster.cluster import Cluster
from faultset.collector.platforms.cluster.context import AS_ON_A_CLUSTER, BEFORE_CLIENTS, SignalContainer
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.journaled import JournaledPlatform
from faultset.collector.platforms.local.control_plane import ControlPlane, PodNetworks
from faultset.collector.platforms.local.node.messages import Execute, RunJob, SignalJob
from faultset.collector.platforms.local.node.processes import write_scripts
from faultset.collector.platforms.local.routing import AddressBlock
from faultset.collector.platforms.local.telemetry.source import ReadHealth, TelemetrySource
from faultset.collector.platforms.local.worker import unready
from faultset.collector.platforms.objects import Object, copied
from faultset.collector.platforms.observation.sources import EventSource, LogSource, ObjectSource
from faultset.collector.runtime.stores.redis_driver import redis_programs
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPANS_PORT
from faultset.collector.spec.files import write
from faultset.collector.spec.manifests import manifests
from faultset.core.errors import PlatformError

_NAME = "load"
_FUNCTION = "faultset.collector.load.process:main"
_STOP_TIMEOUT_S = 10.0


class Load:
    """Starts, changes and stops the load; the node forks it.

    Parameters
    ----------
    plane
        The running control plane.
    app
        Whose entry and requests to use.
    folder
        For its results and what it prints.
    """

    def __init__(self, plane: ControlPlane, app: AppSpec, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.results = folder / "requests.bin"
        self._plane, self._app, self._folder = plane, app, folder
        self._log = folder / "load.log"
        self._channel: Channel | None = None
        self._pid = 0
        self._wanted = False

    def start(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic) -> None:
        """Begin to send; raise PlatformError when the load does not come up."""
        if self._channel is not None:
            raise PlatformError("the load runs already; stop it first")
        spec, socket = self._folder / "app.yaml", self._plane.sockets / "load.sock"
        spec.write_text(write(self._app), encoding="utf-8")
        entry = self._plane.cluster.store.get("Service", self._app.entry.service)["spec"]["clusterIP"]
        options = {
            "app": spec,
            "mix": mix,
            "rate": rate_rps,
            "seed": seed,
            "traffic": traffic.to_json(),
            "target": f"http://{entry}:{self._app.entry.port}",
            "results": self.results,
            "socket": socket,
            "bind": self._plane.addresses.load,
        }
        argv = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._plane.jobs.pop(_NAME, None)
        self._wanted = True
        env = self._plane.worker.environment
        job = RunJob(name=_NAME, function=_FUNCTION, argv=tuple(argv), env=env, log=self._log)
        self._pid = self._plane.call("node", job)
        pause = threading.Event()
        while not socket.exists():
            self.check()
            pause.wait(0.02)
        self._channel = Channel(socket)

    def step(self, factor: float) -> None:
        """Change the load; without a load there is nothing to change."""
        if self._channel is not None:
            self.check()
            self._channel.call(ChangeLoad(factor=factor))

    def stop(self) -> None:
        """End the load; may be called twice."""
        channel, self._channel, self._wanted = self._channel, None, False
        if channel is None:
            return
        with contextlib.suppress(PlatformError):
            channel.call(StopLoad())
        channel.close()
        pause = threading.Event()
        for _ in range(int(_STOP_TIMEOUT_S / 0.02)):
            if _NAME in self._plane.jobs:
                return
            self._plane.check()
            pause.wait(0.02)
        self._plane.call("node", SignalJob(name=_NAME, signal="KILL"))

    def close(self) -> None:
        """Let go of the process, which ends with the others."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def check(self) -> None:
        """Raise PlatformError when the load has ended by itself or was stopped; what was stopped is ended first."""
        self._plane.check()
        code = self._plane.jobs.get(_NAME)
        if code is not None and self._wanted:
            raise PlatformError(f"the load ended with code {code}; it said last: {tail(self._log)}")
        if self._wanted and code is None and is_stopped(self._pid):
            self._plane.call("node", SignalJob(name=_NAME, signal="KILL"))
            raise PlatformError("the load was stopped by a signal, which spoils what it measures; let it run")


_EXEC_TIMEOUT_S = 30.0


class LocalPlatform(JournaledPlatform):
    """One application in one episode on this machine.

    Parameters
    ----------
    app
        What to run.
    folder
        Scratch files; those of an earlier run are removed by `deploy`, all by `teardown`.
    journal
        Where every change and what undoes it are recorded before the change.
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
    ready_timeout_s = 60.0

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
        super().__init__(app, journal)
        self.folder = Path(folder).absolute()
        self.back_off_factor = back_off_factor
        self._seed = seed
        self._step_s = step_s
        self._telemetry = telemetry
        self._plane: ControlPlane | None = None
        self._services: dict[str, str | None] = {}
        self._sources: dict[str, Source] = {}
        self._load: Load | None = None

    def deploy(self) -> None:
        """Apply the application's manifests and start telemetry; return without waiting for readiness."""
        redis = redis_programs()
        self.folder.mkdir(parents=True, exist_ok=True)
        plane = ControlPlane(
            self.folder, self._cluster, seed=self._seed, step_s=self._step_s, telemetry=self._telemetry
        )
        self._plane = plane
        plane.cluster.context.start_times = BEFORE_CLIENTS
        try:
            plane.addresses.check_ports({one.port for one in self.app.services.values() if one.port} | {SPANS_PORT})
            plane.start()
            programs = {"redis-server": redis.server, "redis-cli": redis.cli}
            write_scripts(self.folder / "bin", {name: path for name, path in programs.items() if path})
            endpoint = f"http://{plane.addresses.spans_in}:{SPANS_PORT}"
            self.apply(manifests(self.app, telemetry_endpoint=endpoint))
            self._load = Load(plane, self.app, self.folder / "load")
        except BaseException:
            self.teardown()
            raise

    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        """Start the load against the application's entry; from now on containers take time to start."""
        plane = self._running()
        plane.worst_delay_s = 0.0
        with plane.lock:
            plane.cluster.context.start_times = AS_ON_A_CLUSTER
        self._must_load().start(seed=seed, rate_rps=rate_rps, mix=mix, traffic=traffic)

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

    def find(self, kind: str, name: str) -> Object | None:
        """Return a copy of one object, or None."""
        plane = self._running()
        with plane.lock:
            return copied(plane.cluster.store.find(kind, name))

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind that carry the labels."""
        plane = self._running()
        with plane.lock:
            return plane.cluster.store.list(kind, labels)

    def _create(self, manifest: Mapping[str, Any]) -> bool:
        plane = self._running()
        with plane.lock:
            if plane.cluster.store.find(manifest["kind"], manifest["metadata"]["name"]) is not None:
                return False
            plane.cluster.store.create(manifest)
            plane.settle()
            return True

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        plane = self._running()
        with plane.lock:
            plane.cluster.store.patch(kind, name, change)
            plane.settle()

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        plane = self._running()
        with plane.lock:
            plane.cluster.store.delete(kind, name, grace_period_s=grace_period_s)
            plane.settle()

    def _kill(self, pod: Object, container: str) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        kill = SignalContainer(uid=uid, container=container, signal="KILL", main_only=True)
        if not self._running().call("node", kill):
            raise PlatformError(f"cannot kill container {container} of pod {name}: it does not run")

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        PodNetworks(self._running()).impair(pod["metadata"]["name"], impairment)

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets of the pod the current impairment has met so far."""
        return PodNetworks(self._running()).impaired_packets(pod)

    def _lift(self, pod: str) -> None:
        PodNetworks(self._running()).lift(pod)

    def _check_waiting(self) -> None:
        self._must_load().check()

    def _describe_unready(self) -> str:
        plane = self._running()
        with plane.lock:
            return unready(plane.cluster.store, plane.worker.log_file)

    @property
    def sources(self) -> Mapping[str, Source]:
        """The source of every table, by the table's name."""
        plane = self._running()
        if not self._sources:
            cluster = plane.cluster
            sources: list[Source] = [
                LogSource(self.folder / "logs", self._service_of_pod),
                EventSource(cluster.events),
                ObjectSource(cluster.changes),
                RequestSource(self._must_load().results),
            ]
            if self._telemetry:
                channel, folder = plane.channel("telemetry"), self.folder / "telemetry"
                sources += [
                    TelemetrySource("metrics", channel, folder, interval_s=self._step_s),
                    TelemetrySource("spans", channel, folder),
                ]
            self._sources = {source.table: source for source in sources}
        return self._sources

    def teardown(self) -> None:
        """End every process and remove every object of the episode; may be called twice."""
        for source in self._sources.values():
            source.close()
        self._sources = {}
        plane, self._plane = self._plane, None
        if plane is not None:
            if self._load is not None:
                self._load.close()
            plane.stop()
            plane.clean()

    def host_load(self) -> HostLoad:
        """Return how busy the machine is, and how late we were at worst since the load was started."""
        plane = self._running()
        scrape_lag_ms = round(plane.call("telemetry", ReadHealth()).worst_lag_ms, 3) if self._telemetry else None
        return HostLoad(
            load_average=os.getloadavg()[0],
            cores=os.cpu_count() or 1,
            worst_delay_ms=round(1e3 * plane.worst_delay_s, 3),
            worst_scrape_lag_ms=scrape_lag_ms,
        )

    def check_processes(self) -> None:
        """Raise PlatformError when a process of the platform, or the load, has ended or was stopped."""
        plane = self._running()
        plane.check_processes()
        self._must_load().check()

    def clock_offsets_s(self) -> dict[str, float]:
        """Return zeros: everything reads the same clock."""
        return dict.fromkeys(self.sources, 0.0)

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Run a command in the pod's main container and return its output; not journaled."""
        found = self.get("Pod", pod)
        container = found["spec"]["containers"][0]["name"]
        answer = self._running().call(
            "commands",
            Execute(uid=found["metadata"]["uid"], container=container, argv=tuple(argv), timeout_s=_EXEC_TIMEOUT_S),
        )
        if answer.code:
            output = " ".join(answer.output.split())[-400:]
            raise PlatformError(f"{argv[0]} in pod {pod} ended with code {answer.code}: {output or 'no output'}")
        return answer.output

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

    def _service_of_pod(self, pod: str) -> str | None:
        """Return the workload of a pod that may be gone."""
        if self._plane is not None:
            for seen in self._plane.cluster.changes.observations:
                if seen.kind == "Pod":
                    self._services.setdefault(seen.name, seen.service)
        return self._services.get(pod)
