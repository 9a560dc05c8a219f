"""Asks containers whether they are well, beside the control thread, so that a silent one holds nobody up."""

from __future__ import annotations

import http.client
import queue
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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
