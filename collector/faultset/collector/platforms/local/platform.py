"""The embedded platform: runs an application as processes on this machine, controlled by Kubernetes objects."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.collector.ipc.channel import Channel
from faultset.collector.ipc.launcher import is_stopped, tail
from faultset.collector.load.episode_load import ChangeLoad, StopLoad
from faultset.collector.load.request_source import RequestSource
from faultset.collector.load.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.cluster.cluster import Cluster
from faultset.collector.platforms.cluster.context import AS_ON_A_CLUSTER, WITHOUT_LOAD, SignalContainer
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.journal import Journal, JournaledPlatform
from faultset.collector.platforms.local.control_plane import ControlPlane
from faultset.collector.platforms.local.messages import (
    DiscardTelemetry,
    Execute,
    ReadHealth,
    RunJob,
    SignalJob,
    WriteSnapshot,
)
from faultset.collector.platforms.local.routing import AddressBlock
from faultset.collector.platforms.local.worker import describe_unready, write_scripts
from faultset.collector.platforms.objects import deep_copy
from faultset.collector.platforms.telemetry_sources import EventSource, LogSource, ObjectSource
from faultset.collector.runtime.stores.redis_driver import redis_programs
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPANS_PORT
from faultset.collector.spec.files import format_spec
from faultset.collector.spec.manifests import manifests
from faultset.core.errors import PlatformError
from faultset.core.processes import poll_until
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

_LOAD_JOB = "load"
_LOAD_FUNCTION = "faultset.collector.load.__main__:main"
_STOP_TIMEOUT_S = 10.0


class Load:
    """Starts, changes and stops the load process."""

    def __init__(self, plane: ControlPlane, app: AppSpec, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.results = folder / "requests.bin"
        self._plane, self._app, self._folder = plane, app, folder
        self._log = folder / "load.log"
        self._channel: Channel | None = None
        self._pid = 0
        self._is_active = False

    def start(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic) -> None:
        if self._channel is not None:
            raise PlatformError("the load is already running; stop it first")
        spec, socket = self._folder / "app.yaml", self._plane.sockets / "load.sock"
        spec.write_text(format_spec(self._app), encoding="utf-8")
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
        self._plane.jobs.pop(_LOAD_JOB, None)
        self._is_active = True
        env = self._plane.worker.environment
        job = RunJob(name=_LOAD_JOB, function=_LOAD_FUNCTION, argv=tuple(argv), env=env, log=self._log)
        self._pid = self._plane.call("node", job)
        while not socket.exists():
            self.check()
            time.sleep(0.02)
        self._channel = Channel(socket)

    def step(self, factor: float) -> None:
        if self._channel is not None:
            self.check()
            self._channel.call(ChangeLoad(factor=factor))

    def stop(self) -> None:
        """Stop the load; may be called twice."""
        channel, self._channel, self._is_active = self._channel, None, False
        if channel is None:
            return
        with contextlib.suppress(PlatformError):
            channel.call(StopLoad())
        channel.close()

        def has_ended() -> bool:
            self._plane.check()
            return _LOAD_JOB in self._plane.jobs

        if not poll_until(has_ended, timeout_s=_STOP_TIMEOUT_S, pause_s=0.02):
            self._plane.call("node", SignalJob(name=_LOAD_JOB, signal="KILL"))

    def close(self) -> None:
        """Close the connection to the load process; the process ends with the platform."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def check(self) -> None:
        """Raise PlatformError if the load has ended or is stopped; a stopped load is killed first."""
        self._plane.check()
        code = self._plane.jobs.get(_LOAD_JOB)
        if code is not None and self._is_active:
            raise PlatformError(f"the load ended with code {code}; last log lines: {tail(self._log)}")
        if self._is_active and code is None and is_stopped(self._pid):
            self._plane.call("node", SignalJob(name=_LOAD_JOB, signal="KILL"))
            raise PlatformError("the load was stopped by a signal, so its data is invalid; do not stop it")


_EXEC_TIMEOUT_S = 30.0


class LocalPlatform(JournaledPlatform):
    """Runs the application of one episode on this machine.

    Parameters
    ----------
    folder
        Folder for working files; `deploy` removes files of an earlier run.
    seed
        Seed of pod names and packet losses.
    back_off_factor
        Multiplies the kubelet's back-off delays; 1 gives the delays of a real cluster.
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
        redis = redis_programs()
        self.folder.mkdir(parents=True, exist_ok=True)
        plane = ControlPlane(
            self.folder, self._cluster, seed=self._seed, step_s=self._step_s, telemetry=self._telemetry
        )
        self._plane = plane
        plane.cluster.context.start_times = WITHOUT_LOAD
        try:
            ports = {service.port for service in self.app.services.values() if service.port}
            plane.addresses.check_ports(ports | {SPANS_PORT})
            plane.start()
            programs = {"redis-server": redis.server, "redis-cli": redis.cli}
            write_scripts(self.folder / "bin", {name: path for name, path in programs.items() if path})
            endpoint = f"http://{plane.addresses.span_ingress}:{SPANS_PORT}"
            self.apply(manifests(self.app, telemetry_endpoint=endpoint))
            self._load = Load(plane, self.app, self.folder / "load")
        except BaseException:
            self.teardown()
            raise

    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        """Start the load on the application's entry; from now on containers have realistic start times."""
        plane = self._require_plane()
        plane.worst_delay_s = 0.0
        with plane.lock:
            plane.cluster.context.start_times = AS_ON_A_CLUSTER
        self._require_load().start(seed=seed, rate_rps=rate_rps, mix=mix, traffic=traffic)

    def step_load(self, factor: float) -> None:
        self._require_load().step(factor)

    def stop_load(self) -> None:
        self._require_load().stop()

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        plane = self._require_plane()
        with plane.lock:
            for manifest in objects:
                plane.cluster.store.apply(manifest)
            plane.settle()

    def find(self, kind: str, name: str) -> Object | None:
        plane = self._require_plane()
        with plane.lock:
            return deep_copy(plane.cluster.store.find(kind, name))

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        plane = self._require_plane()
        with plane.lock:
            return plane.cluster.store.list(kind, labels)

    def _create(self, manifest: Mapping[str, Any]) -> bool:
        plane = self._require_plane()
        with plane.lock:
            if plane.cluster.store.find(manifest["kind"], manifest["metadata"]["name"]) is not None:
                return False
            plane.cluster.store.create(manifest)
            plane.settle()
            return True

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        plane = self._require_plane()
        with plane.lock:
            plane.cluster.store.patch(kind, name, change)
            plane.settle()

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        plane = self._require_plane()
        with plane.lock:
            plane.cluster.store.delete(kind, name, grace_period_s=grace_period_s)
            plane.settle()

    def _kill(self, pod: Object, container: str) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        kill = SignalContainer(uid=uid, container=container, signal="KILL", main_only=True)
        if not self._require_plane().call("node", kill):
            raise PlatformError(f"cannot kill container {container} of pod {name}, since it is not running")

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        self._require_plane().impair(pod["metadata"]["name"], impairment)

    def impaired_packets(self, pod: str) -> int:
        return self._require_plane().impaired_packets(pod)

    def _lift(self, pod: str) -> None:
        self._require_plane().lift(pod)

    def _check_waiting(self) -> None:
        self._require_load().check()

    def _describe_unready(self) -> str:
        plane = self._require_plane()
        with plane.lock:
            return describe_unready(plane.cluster.store, plane.worker.log_file)

    @property
    def sources(self) -> Mapping[str, Source]:
        plane = self._require_plane()
        if not self._sources:
            cluster = plane.cluster
            sources: list[Source] = [
                LogSource(self.folder / "logs", self._service_of_pod),
                EventSource(cluster.events),
                ObjectSource(cluster.changes),
                RequestSource(self._require_load().results),
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
        for source in self._sources.values():
            source.close()
        self._sources = {}
        plane, self._plane = self._plane, None
        if plane is not None:
            if self._load is not None:
                self._load.close()
            plane.stop()
            plane.clean()

    def measure_host_load(self, *, reset: bool = False) -> HostLoad:
        """Return the load of this machine, with delays since `start_load` or the last call with `reset`."""
        plane = self._require_plane()
        scrape_lag_ms = None
        if self._telemetry:
            scrape_lag_ms = round(plane.call("telemetry", ReadHealth(reset_lag=reset)).worst_lag_ms, 3)
        delay_s = plane.worst_delay_s
        if reset:
            plane.worst_delay_s = 0.0
        return HostLoad(
            load_average=os.getloadavg()[0],
            cores=os.cpu_count() or 1,
            worst_delay_ms=round(1e3 * delay_s, 3),
            worst_scrape_lag_ms=scrape_lag_ms,
        )

    def check_processes(self) -> None:
        plane = self._require_plane()
        plane.check_processes()
        self._require_load().check()

    def clock_offsets_s(self) -> dict[str, float]:
        return dict.fromkeys(self.sources, 0.0)

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        target = self.get("Pod", pod)
        container = target["spec"]["containers"][0]["name"]
        result = self._require_plane().call(
            "commands",
            Execute(uid=target["metadata"]["uid"], container=container, argv=tuple(argv), timeout_s=_EXEC_TIMEOUT_S),
        )
        if result.code:
            output = " ".join(result.output.split())[-400:]
            raise PlatformError(f"{argv[0]} in pod {pod} ended with code {result.code}: {output or 'no output'}")
        return result.output

    def _cluster(self, addresses: AddressBlock) -> Cluster:
        return Cluster(
            clock=time.time_ns,
            seed=self._seed,
            namespace=self.app.name,
            label_key=self.app.label_key,
            service_address=addresses.allocate_service_address,
            pod_address=addresses.allocate_pod_address,
            back_off_factor=self.back_off_factor,
        )

    def _require_plane(self) -> ControlPlane:
        if self._plane is None:
            raise PlatformError("nothing is deployed; call deploy first")
        self._plane.check()
        return self._plane

    def _require_load(self) -> Load:
        self._require_plane()
        if self._load is None:
            raise PlatformError("nothing is deployed; call deploy first")
        return self._load

    def _service_of_pod(self, pod: str) -> str | None:
        """Return the workload of a pod, which may have been deleted."""
        if self._plane is not None:
            for observation in self._plane.cluster.changes.observations:
                if observation.kind == "Pod":
                    self._services.setdefault(observation.name, observation.service)
        return self._services.get(pod)


class TelemetrySource:
    """The source of one table of the telemetry process.

    Parameters
    ----------
    folder
        Folder for snapshots; removed by `close`.
    interval_s
        Time between two samples of a series; None for spans.
    """

    def __init__(self, table: str, channel: Channel, folder: Path, *, interval_s: float | None = None):
        self.table = table
        self.interval_s = interval_s
        self._channel = channel
        self._folder = Path(folder) / table

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        self._channel.call(WriteSnapshot(folder=self._folder, start_ns=start_ns, end_ns=end_ns, tables=(self.table,)))
        with pa.memory_map(str(self._folder / f"{self.table}.arrow")) as file, pa.ipc.open_file(file) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)

    def discard(self, before_ns: int) -> None:
        self._channel.call(DiscardTelemetry(table=self.table, before_ns=before_ns))

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
