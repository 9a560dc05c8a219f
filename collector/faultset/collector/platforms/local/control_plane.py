"""The control plane of an episode: its processes, and the thread that runs the controllers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Channel, Request, ResponseT
from faultset.collector.ipc.launcher import HelperProcess
from faultset.collector.platforms.cluster.cluster import Cluster
from faultset.collector.platforms.impairments import Delay, Impairment, Loss, Partition
from faultset.collector.platforms.local.api_server import ApiHttpServer
from faultset.collector.platforms.local.messages import (
    ConfigureRelay,
    ConfigureTelemetry,
    JobExited,
    PollExits,
    ReadCounters,
    ReadImpairedCounts,
    ReplaceState,
    ShutDown,
)
from faultset.collector.platforms.local.resource_usage import find_leftover_processes
from faultset.collector.platforms.local.routing import (
    AddressBlock,
    build_hosts,
    build_relay_configuration,
    build_scrape_targets,
    build_state_samples,
)
from faultset.collector.platforms.local.worker import Worker
from faultset.collector.spec.containers import SPANS_PORT
from faultset.core.errors import PlatformError
from faultset.core.files import replace_text

TICK_S = 0.1
_SHORTEST_TICK_S = 0.005
_PACKAGE = "faultset.collector.platforms.local"
_LONGEST_SOCKET_PATH = 100
_TEMPORARY_CONTENT = ("bin", "pods", "sockets", "telemetry", "volumes", "hosts.json")
_RECORD_FOLDERS = ("logs", "processes", "load")
_MAX_ROUNDS = 100
_COUNTERS: dict[type[Impairment], tuple[str, ...]] = {
    Delay: ("transmit_packets",),
    Loss: ("transmit_packets_dropped",),
    Partition: ("transmit_packets_dropped", "receive_packets_dropped"),
}


class ControlPlane:
    """Starts the node, the relay and telemetry, and sends them changes to objects.

    Callers that use `cluster` must hold `lock`. The processes end with the program, even after SIGKILL.

    Parameters
    ----------
    root
        Folder for working files; files of an earlier run are removed.
    create_cluster
        Creates the cluster, given its block of addresses.
    """

    def __init__(
        self,
        root: Path,
        create_cluster: Callable[[AddressBlock], Cluster],
        *,
        seed: int,
        step_s: float,
        telemetry: bool,
    ):
        self.root = root
        self.lock = threading.RLock()
        self.addresses = AddressBlock()
        self.cluster = create_cluster(self.addresses)
        self._impairments: dict[str, Impairment] = {}
        self._initial_packets: dict[str, int] = {}
        self._onset_s: dict[str, float] = {}
        self.jobs: dict[str, int | None] = {}
        self.worst_delay_s = 0.0
        self._seed, self._step_s, self._telemetry = seed, step_s, telemetry
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._processes: list[HelperProcess] = []
        self._channels: dict[str, Channel] = {}
        self._worker: Worker | None = None
        self._api: ApiHttpServer | None = None
        self._published: dict[str, Any] = {}
        self._published_version = -1
        self._sockets: Path | None = None
        self._thread = threading.Thread(target=self._run, name="control-plane", daemon=True)

    def start(self) -> None:
        """Start all processes; raise PlatformError if one does not start."""
        self.clean(records=True)
        for name in ("bin", "logs", "processes"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._sockets = _create_socket_folder(self.root)
        api = self._sockets / "api" / "api.sock"
        self._api = ApiHttpServer(api, self.cluster.store, self.cluster.events, self.lock)
        self.cluster.context.api_socket = str(api)
        self._thread.start()
        self._ready.wait()
        self.check()

    def stop(self) -> None:
        """End all processes and release the addresses; may be called twice."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        for channel in self._channels.values():
            channel.close()
        self._channels = {}
        if self._api is not None:
            self._api.close()
            self._api = None
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        self.addresses.release()

    def clean(self, *, records: bool = False) -> None:
        """Remove the working files, and with `records` also the logs and load results."""
        for name in (*_TEMPORARY_CONTENT, *(_RECORD_FOLDERS if records else ())):
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise PlatformError if the control plane has failed or stopped."""
        if self._failure is not None:
            if isinstance(self._failure, PlatformError):
                raise self._failure
            raise PlatformError(f"the control plane failed: {self._failure!r}") from self._failure
        if self._stop.is_set():
            raise PlatformError("the platform has been torn down; deploy again")

    def check_processes(self) -> None:
        """Raise PlatformError if a process has ended or is stopped, or the control plane has failed."""
        self.check()
        for process in tuple(self._processes):
            process.check()

    def call(self, process: str, request: Request[ResponseT]) -> ResponseT:
        """Send a request to `node`, `commands` (slow calls to the node), `relay` or `telemetry`."""
        self.check()
        return self._channels[process].call(request)

    def channel(self, process: str) -> Channel:
        return self._channels[process]

    @property
    def sockets(self) -> Path:
        if self._sockets is None:
            raise PlatformError("nothing is deployed yet; call deploy first")
        return self._sockets

    @property
    def worker(self) -> Worker:
        if self._worker is None:
            raise PlatformError("nothing is deployed yet; call deploy first")
        return self._worker

    def settle(self) -> None:
        """Run the controllers until nothing is due, and publish the result; the caller must hold `lock`."""
        for _ in range(_MAX_ROUNDS):
            if not self.cluster.due:
                break
            for command in self.cluster.reconcile():
                report = self.worker.perform(command)
                if report is not None:
                    self.cluster.handle(report)
        self.publish()

    def publish(self) -> None:
        """Publish changed host names, routes, scrape targets and object states; the caller must hold `lock`."""
        store = self.cluster.store
        if store.version == self._published_version:
            return
        self._published_version = store.version
        self._publish("hosts", build_hosts(store), self._write_hosts)
        pods = {pod["metadata"]["name"] for pod in store.each("Pod")}
        self._impairments = {pod: impairment for pod, impairment in self._impairments.items() if pod in pods}
        self._publish_routes()
        if self._telemetry:
            targets = ConfigureTelemetry(targets=build_scrape_targets(store, self.addresses, self.cluster.service_of))
            self._publish("targets", targets, lambda request: self.call("telemetry", request))
            state = ReplaceState(samples=build_state_samples(store, self.cluster.service_of))
            self._publish("state", state, lambda request: self.call("telemetry", request))

    def _publish_routes(self) -> None:
        configuration = build_relay_configuration(self.cluster.store, self.addresses, self._impairments, self._seed)
        self._publish("routes", configuration, self._configure_relay)

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair a pod through the relay, replacing an earlier impairment."""
        with self.lock:
            self._impairments[pod] = impairment
            self._initial_packets[pod] = self._count_impaired(pod, impairment)
            self._onset_s[pod] = time.monotonic() + impairment.delay_s
            self._publish_routes()

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, if it has one."""
        with self.lock:
            self._impairments.pop(pod, None)
            self._publish_routes()

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets or requests the current impairment has impaired so far; 0 without an impairment."""
        with self.lock:
            impairment = self._impairments.get(pod)
            if impairment is None:
                return 0
            packets = self._count_impaired(pod, impairment)
            if time.monotonic() < self._onset_s.get(pod, 0.0):
                self._initial_packets[pod] = packets
            return max(0, packets - self._initial_packets[pod])

    def _count_impaired(self, pod: str, impairment: Impairment) -> int:
        if type(impairment) not in _COUNTERS:
            return self.call("relay", ReadImpairedCounts()).get(pod, 0)
        counters = self.call("relay", ReadCounters()).get(pod)
        return sum(getattr(counters, name) for name in _COUNTERS[type(impairment)]) if counters else 0

    def _configure_relay(self, configuration: ConfigureRelay) -> None:
        errors = self.call("relay", configuration).errors
        if errors:
            name, reason = next(iter(errors.items()))
            raise PlatformError(
                f"cannot listen on the address of {name}: {reason}; end the program that uses its port on all addresses"
            )

    def _publish(self, topic: str, value: Any, send: Callable[[Any], Any]) -> None:
        if self._published.get(topic) != value:
            send(value)
            self._published[topic] = value

    def _write_hosts(self, hosts: dict[str, str]) -> None:
        replace_text(self.root / "hosts.json", json.dumps(hosts), durable=False)

    def _run(self) -> None:
        try:
            self._start_processes()
            self._ready.set()
            while not self._stop.is_set():
                self._tick()
        except BaseException as error:
            if not self._stop.is_set():
                self._failure = error
        finally:
            self._ready.set()
            self._end_processes()

    def _start_processes(self) -> None:
        node = self._launch("node", f"{_PACKAGE}.node:main", [])
        relay = self._launch("relay", f"{_PACKAGE}.relay.process:main", [self._seed])
        if self._telemetry:
            folder = str(self.root / "telemetry")
            arguments = [
                str(node.socket),
                str(relay.socket),
                self.addresses.span_egress,
                SPANS_PORT,
                self._step_s,
                folder,
            ]
            self._launch("telemetry", f"{_PACKAGE}.telemetry:main", arguments)
        for process in self._processes:
            self._channels[process.name] = process.connect()
        for name in ("commands", "reports"):
            self._channels[name] = node.connect()
        self._worker = Worker(self._channels["node"], self.root)

    def _launch(self, name: str, function: str, arguments: list[Any]) -> HelperProcess:
        process = HelperProcess(name, function, arguments, sockets=self.sockets, logs=self.root / "processes")
        self._processes.append(process)
        return process

    def _tick(self) -> None:
        before, timeout_s = time.monotonic(), self._sleep_s()
        reports = self._channels["reports"].call(PollExits(timeout_s=timeout_s))
        self.worst_delay_s = max(self.worst_delay_s, time.monotonic() - before - timeout_s)
        with self.lock:
            for result in self.worker.prober.results():
                self.cluster.handle(result)
            for report in reports:
                if isinstance(report, JobExited):
                    self.jobs[report.job] = report.exit_code
                else:
                    self.cluster.handle(report)
            if not self._stop.is_set():
                self.settle()
        for process in self._processes:
            process.check()

    def _sleep_s(self) -> float:
        due_ns = self.cluster.context.due_ns
        if due_ns is None:
            return TICK_S
        return min(TICK_S, max(_SHORTEST_TICK_S, (due_ns - time.time_ns()) / 1e9))

    def _end_processes(self) -> None:
        if self._worker is not None:
            self._worker.prober.close()
        if "commands" in self._channels:
            with contextlib.suppress(PlatformError):
                self._channels["commands"].call(ShutDown())
        for process in self._processes:
            process.stop()
        for pid in find_leftover_processes(self.root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _create_socket_folder(root: Path) -> Path:
    folder = root / "sockets"
    if len(os.fsencode(folder / "telemetry.sock")) > _LONGEST_SOCKET_PATH:
        return Path(tempfile.mkdtemp(prefix="faultset-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
