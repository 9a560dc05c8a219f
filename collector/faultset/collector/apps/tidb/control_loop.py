"""The operator: a control loop that observes the TidbCluster and reconciles its objects step by step."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from faultset.collector.apps.tidb.reconciliation import NotReady, Reconciler, SyncFailure
from faultset.collector.runtime.app_code import read_app
from faultset.collector.runtime.cluster_api import cluster_api
from faultset.collector.runtime.environment import environment
from faultset.collector.runtime.http.server import HttpRequest, HttpServer, Response
from faultset.collector.runtime.signals import write_all
from faultset.core.errors import PlatformError

EVERY_S = 0.5
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 32.0
_DRAIN_S = 3.0

Log = Callable[[str, str, str], None]
"""Writes a line: severity as one letter, location in the modelled source, text."""


class ControlLoop:
    """Runs the steps of a reconciler; waits longer after each failure until the TidbCluster changes.

    Parameters
    ----------
    clock
        Returns a time in seconds.
    """

    def __init__(self, reconciler: Reconciler, log: Log, clock: Callable[[], float] = time.monotonic):
        self._reconciler, self._log, self._clock = reconciler, log, clock
        self._failure: SyncFailure | None = None
        self._generation, self._due_s, self._wait_s = -1, 0.0, FIRST_WAIT_S
        self._last_line = ""
        self._name, self._replicas, self._errors = "", dict[str, int](), Counter[str]()

    def exposition(self) -> str:
        """Return the operator's metrics in the format of Prometheus."""
        lines = []
        for metric, kind, values in (
            ("tidb_operator_cluster_spec_replicas", "gauge", self._replicas),
            ("tidb_operator_cluster_update_errors", "counter", {name: self._errors[name] for name in self._replicas}),
        ):
            lines.append(f"# TYPE {metric} {kind}")
            for component, value in values.items():
                lines.append(f'{metric}{{name="{self._name}",component="{component}"}} {value}')
        return "".join(f"{line}\n" for line in lines)

    def turn(self) -> None:
        """Observe the TidbCluster once and take the next step."""
        try:
            self._observe()
        except PlatformError as error:
            self._log_once("E", "tidb_cluster_controller.go:128", f"TidbCluster: sync failed, err: {error}, requeuing")

    def _observe(self) -> None:
        cluster = self._reconciler.cluster()
        if cluster is None:
            self._log_once("I", "tidb_cluster_controller.go:141", "TidbCluster has been deleted")
            return
        self._name, self._replicas = cluster["metadata"]["name"], self._reconciler.replicas(cluster)
        generation = cluster["metadata"].get("generation", 0)
        if generation != self._generation:
            self._generation, self._due_s, self._wait_s, self._failure = generation, 0.0, FIRST_WAIT_S, None
            self._log_once(
                "I", "tidb_cluster_control.go:85", f"TidbCluster {cluster['metadata']['name']} is at {generation}"
            )
        if self._clock() >= self._due_s:
            self._step(cluster)
        lagging = self._reconciler.report(cluster, self._failure)
        if not lagging and self._failure is None:
            self._log_once("I", "tidb_cluster_status_manager.go:93", "all components are in phase Normal")

    def _step(self, cluster: dict[str, object]) -> None:
        try:
            self._reconciler.step(cluster)
            self._failure = None
        except NotReady as reason:
            self._failure = None
            self._log_once("I", "tidb_cluster_controller.go:126", f"TidbCluster: {reason}, requeuing")
        except SyncFailure as failure:
            self._failure = failure
            self._errors[failure.component] += 1
            self._due_s = self._clock() + self._wait_s
            self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
            self._reconciler.record_event(cluster, "Warning", failure.reason, str(failure))
            self._log("E", "tidb_cluster_controller.go:128", f"TidbCluster: sync failed, err: {failure}, requeuing")

    def _log_once(self, severity: str, location: str, text: str) -> None:
        """Write a line, unless it repeats the previous one."""
        if text != self._last_line:
            self._last_line = text
            self._log(severity, location, text)


def klog(severity: str, location: str, text: str) -> None:
    """Write a line in the log format of Kubernetes."""
    now_s = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(now_s))
    write_all(1, f"{severity}{stamp}.{int(now_s * 1e6) % 1_000_000:06d}       1 {location}] {text}\n".encode())


async def serve(*, host: str, port: int, stop: asyncio.Event) -> None:
    """Run the operator until it is stopped, with a port for liveness and metrics."""
    settings = environment()
    app = read_app(Path(settings.spec).read_text(encoding="utf-8"), settings.spec)
    reconciler = Reconciler(app, cluster_api(), telemetry=settings.telemetry or "")
    loop = ControlLoop(reconciler, klog)

    async def handle(request: HttpRequest) -> Response:
        pages = {"/healthz": lambda: "ok", "/metrics": loop.exposition}
        page = pages.get(request.path)
        return Response(200 if page else 404, (page() if page else "404 page not found").encode())

    server = HttpServer(handle)
    await server.listen(host, port)
    klog("I", "controller_manager.go:116", "Welcome to TiDB Operator.")
    while not stop.is_set():
        await asyncio.to_thread(loop.turn)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await stop.wait()
    await server.close(_DRAIN_S)
