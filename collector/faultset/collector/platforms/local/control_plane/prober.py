"""Asks containers whether they are well, beside the control thread, so that a silent one holds nobody up."""

from __future__ import annotations

import http.client
import queue
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from faultset.collector.ipc.processes import tail
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import container_statuses, is_ready
from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.platforms.local.controllers.commands import ProbeContainer, ProbeResult

_AT_ONCE = 4


class Prober:
    """Carries out the kubelet's probes; their results are fetched with `results`."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="prober")
        self._results: queue.SimpleQueue[ProbeResult] = queue.SimpleQueue()

    def begin(self, probe: ProbeContainer) -> None:
        """Ask a container as soon as a thread is free."""
        self._pool.submit(self._ask, probe)

    def results(self) -> Iterator[ProbeResult]:
        """Yield the results that have come in since the last call."""
        while not self._results.empty():
            yield self._results.get_nowait()

    def close(self) -> None:
        """Ask no more; answers that are waited for are not."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, probe: ProbeContainer) -> None:
        failure = failure_of(probe)
        self._results.put(
            ProbeResult(
                uid=probe.uid,
                container=probe.container,
                attempt=probe.attempt,
                purpose=probe.purpose,
                time_ns=time.time_ns(),
                failure=failure,
            )
        )


def failure_of(probe: ProbeContainer) -> str:
    """Ask a container; return the kubelet's words for what is wrong, nothing when it is well."""
    where = f"{probe.address}:{probe.port}"
    try:
        if probe.path is None:
            with socket.create_connection((probe.address, probe.port), timeout=probe.timeout_s):
                return ""
        connection = http.client.HTTPConnection(probe.address, probe.port, timeout=probe.timeout_s)
        try:
            connection.request("GET", probe.path, headers={"User-Agent": "kube-probe/1.30", "Connection": "close"})
            status = connection.getresponse().status
        finally:
            connection.close()
    except TimeoutError:
        return (
            f'Get "http://{where}{probe.path}": context deadline exceeded'
            if probe.path
            else _dial(where, "i/o timeout")
        )
    except OSError as error:
        reason = f"connect: {(error.strerror or str(error)).lower()}"
        return f'Get "http://{where}{probe.path}": {_dial(where, reason)}' if probe.path else _dial(where, reason)
    except http.client.HTTPException as error:
        return f'Get "http://{where}{probe.path}": {error or "EOF"}'
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _dial(where: str, reason: str) -> str:
    return f"dial tcp {where}: {reason}"


LogFile = Callable[[str, str], Path]


def unready(store: ObjectStore, log_file: LogFile) -> str:
    """Return one sentence about the pods that are not ready, with their states and last log lines."""
    said = [describe(pod, log_file) for pod in store.each("Pod") if not is_ready(pod)]
    said += [
        f"{kind} {found['metadata']['name']} has no pod"
        for kind in ("Deployment", "StatefulSet")
        for found in store.each(kind)
        if found["spec"]["replicas"] and not found.get("status", {}).get("replicas")
    ]
    return "; ".join(said) if said else "all pods are ready"


def describe(pod: Object, log_file: LogFile) -> str:
    """Return what is known about one pod in a few words."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    statuses = container_statuses(pod)
    if not statuses:
        scheduled = [found for found in status.get("conditions", []) if found["type"] == "PodScheduled"]
        why = scheduled[0].get("message", "") if scheduled else ""
        return f"pod {name} is {status.get('phase', 'Pending')}{': ' + why if why else ''}"
    return ", ".join(_container(name, container, log_file) for container in statuses)


def _container(pod: str, status: dict[str, Any], log_file: LogFile) -> str:
    (state, detail), *_ = status["state"].items()
    last = status.get("lastState", {}).get("terminated") or {}
    words = f"pod {pod} is {detail.get('reason', state)} after {status['restartCount']} restarts"
    if last:
        words += f", last exit {last['exitCode']} ({last['reason']})"
    log = log_file(pod, status["name"])
    return f"{words}; its log ends: {tail(log)}"
