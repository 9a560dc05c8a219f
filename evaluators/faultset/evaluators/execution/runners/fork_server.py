"""The fork server of a runner: import common packages once and fork a process per method.

It never runs code of a method. It forwards replies from the method processes, and parses only headers of replies from
built-in methods. It adopts orphaned processes and kills all its descendants when its standard input is closed. That
happens however the evaluation ends, so no process survives an evaluation that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import NoReturn

from faultset.core.processes import adopt_orphans, die_with_parent, make_scratch
from faultset.evaluators.execution.runners import process_trees
from faultset.evaluators.execution.runners.answers import HEADER_BYTES, MODEL_BYTES, imported_modules
from faultset.evaluators.execution.runners.messages import EMPTY_BLOB, AnswerRequest, Blob, FitRequest, MethodProcess

_PRELOADED = (
    "pandas",
    "pyarrow.parquet",
    "faultset.datasets.cache",
    "faultset.datasets.metrics.frames",
    "faultset.evaluators.execution.runners.baseline_worker",
)
_ENDING_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class _Child:
    """A method process as seen by the fork server."""

    pid: int
    connection: Connection
    process: MethodProcess
    scratch: str

    def end(self) -> None:
        """Kill the process and its descendants, and remove its scratch folder."""
        process_trees.kill_descendants(self.pid)
        process_trees.kill(self.pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.connection.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


class ForkServer:
    """Forwards requests to method processes and returns their replies."""

    def __init__(self, client: Connection, scratch: str) -> None:
        self._client, self._scratch = client, scratch
        self._blobs: dict[str, bytes] = {EMPTY_BLOB.digest: EMPTY_BLOB.data}
        self._shared: _Child | None = None
        self._third_party: _Child | None = None

    def serve(self) -> None:
        """Serve requests until the evaluation closes its side."""
        for name in _PRELOADED:
            importlib.import_module(name)
        _warm_up()
        self._send({"kind": "ready"})
        while True:
            try:
                request: FitRequest | AnswerRequest = self._client.recv()
            except EOFError:
                return
            self._handle(request.map_blobs(self._restore))

    def _handle(self, request: FitRequest | AnswerRequest) -> None:
        child = self._child_for(request.process)
        idle = [other.pid for other in (self._shared, self._third_party) if other is not None and other is not child]
        self._send({"kind": "running", "number": request.number, "pid": child.pid, "idle": idle})
        with contextlib.suppress(OSError):
            child.connection.send(request)
        parts = _read_reply(child)
        if parts is None:
            self._send({"kind": "ended", "number": request.number, "code": self._reap(child)})
        else:
            self._send({"kind": "reply", "number": request.number})
            for part in parts:
                self._client.send_bytes(part)
            if child.process.built_in:
                # import them here too, so that later processes inherit the modules
                for name in imported_modules(parts[0]):
                    with contextlib.suppress(ImportError):
                        importlib.import_module(name)
        self._kill_leftovers()

    def _child_for(self, process: MethodProcess) -> _Child:
        child = self._shared if process.built_in else self._third_party
        if child is not None and child.process == process:
            return child
        if child is not None:
            child.end()
        child = self._start(process)
        if process.built_in:
            self._shared = child
        else:
            self._third_party = child
        return child

    def _start(self, process: MethodProcess) -> _Child:
        """Fork a process that waits for requests and inherits only its own socket."""
        scratch = tempfile.mkdtemp(prefix="method-", dir=self._scratch)
        server_end, method_end = Pipe()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with_parent(server)
            others = [child.connection for child in (self._shared, self._third_party) if child is not None]
            for connection in (server_end, self._client, *others):
                connection.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            from faultset.evaluators.execution.runners.baseline_worker import serve_requests

            try:
                serve_requests(method_end, process, scratch)
            finally:
                os._exit(1)
        method_end.close()
        return _Child(pid, server_end, process, scratch)

    def _reap(self, child: _Child) -> int | None:
        """Kill a process that closed its socket; return its exit code, or None if it was still running."""
        code = None
        handle = os.pidfd_open(child.pid)
        if wait([handle], _ENDING_TIMEOUT_S):
            code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        os.close(handle)
        child.end()
        self._shared = None if child is self._shared else self._shared
        self._third_party = None if child is self._third_party else self._third_party
        return code

    def _kill_leftovers(self) -> None:
        """Kill processes that a method left running; they would take time and memory from the next one."""
        current = {child.pid for child in (self._shared, self._third_party) if child is not None}
        others = [pid for pid in process_trees.descendants(os.getpid()) if pid not in current]
        strays = [pid for pid in others if not process_trees.is_zombie(pid)]
        if strays and self._third_party is not None:
            self._third_party.end()
            self._third_party = None
        for pid in strays:
            process_trees.kill(pid)
        for pid in others:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0 if pid in strays else os.WNOHANG)

    def _restore(self, blob: Blob) -> Blob:
        """Fill in bytes that were sent earlier."""
        if blob.data:
            self._blobs[blob.digest] = blob.data
        return Blob(digest=blob.digest, data=self._blobs[blob.digest])

    def _send(self, message: dict[str, object]) -> None:
        self._client.send_bytes(json.dumps(message).encode())


def _warm_up() -> None:
    """Do the work that every process would otherwise repeat: build models, compile patterns, open a frame."""
    import pyarrow as pa

    from faultset.core.times import SECOND_NS
    from faultset.datasets.format.context import EpisodeContext
    from faultset.datasets.format.schemas import TABLES
    from faultset.datasets.metrics.frames import wide_frame
    from faultset.evaluators.execution.runners.views import prepare_pandas

    prepare_pandas()
    context = EpisodeContext(
        episode="none",
        app="none",
        platform="none",
        view_start_ns=0,
        view_end_ns=2 * SECOND_NS,
        reference_end_ns=SECOND_NS,
        source_intervals_s={"metrics": 1.0},
        services=("none",),
        calls=(),
        workload_entry="none",
        metric_roles=(),
    )
    EpisodeContext.from_json(context.to_json())
    sample = {"episode": "none", "service": "none", "metric": "cpu", "labels": "{}", "kind": "gauge"}
    rows = pa.Table.from_pylist([{**sample, "time": 0, "value": 0.0}], schema=TABLES["metrics"])
    wide_frame(rows, context.view_start_ns, context.view_end_ns)


def _read_reply(child: _Child) -> tuple[bytes, bytes] | None:
    """Read the header and the model of a reply; None if the process ended or sent something else."""
    try:
        return child.connection.recv_bytes(HEADER_BYTES), child.connection.recv_bytes(MODEL_BYTES)
    except (EOFError, OSError):
        return None


def main() -> NoReturn:
    """Serve on the inherited socket whose descriptor is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    scratch = str(make_scratch("methods"))

    def end() -> NoReturn:
        process_trees.kill_descendants(os.getpid())
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(0)

    _call_when_abandoned(end)
    with contextlib.suppress(OSError):
        ForkServer(Connection(int(sys.argv[1])), scratch).serve()
    end()


def _call_when_abandoned(end: Callable[[], NoReturn]) -> None:
    """Have the kernel signal this process when its standard input is closed."""
    signal.signal(signal.SIGIO, lambda *_: end())
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:
        end()


if __name__ == "__main__":
    main()
