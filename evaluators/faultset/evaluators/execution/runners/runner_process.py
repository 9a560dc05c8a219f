"""Runner processes, and the supervision of their time, memory, output and child processes."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from faultset.core.processes import import_path, python_command, remove_abandoned
from faultset.evaluators.execution.runners import process_trees
from faultset.evaluators.execution.runners.answers import HEADER_BYTES, MODEL_BYTES, UnreadableReply, read_reply
from faultset.evaluators.execution.runners.messages import (
    AnswerRequest,
    Blob,
    FitRequest,
    RunLimits,
    RunnerOutcome,
    RunnerStopped,
)
from faultset.evaluators.results.rows import Status

_POLL_S = 0.05
_START_TIMEOUT_S = 120.0
_MAX_OUTPUT_BYTES = 8 << 20
_TRANSFER_TIMEOUT_S = 60
"""Timeout for the rest of a message whose first bytes have arrived."""
_MESSAGE_BYTES = 1 << 16
MARK = "FAULTSET_RUNNER"
"""Environment variable that identifies processes whose fork server was killed."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_numbers = itertools.count(1)


class RunnerProcess:
    """A fork server in its own session, which runs methods; restarted if it ends or a method exceeds a limit.

    Not thread-safe except for `stop`.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._server: Connection | None = None
        self._output = -1
        self._ready = False
        self._stopped = False
        self._tail = b""
        self._written = 0
        self._sent: set[str] = set()
        self._idle: tuple[int, ...] = ()
        self._mark = uuid.uuid4().hex

    def start(self) -> None:
        """Start the process; do not wait for its imports."""
        if self._process is not None or self._stopped:
            return
        self._server, runner_end = Pipe()
        limit_transfers(self._server, _TRANSFER_TIMEOUT_S)
        with runner_end:
            self._process = subprocess.Popen(
                python_command("-m", "faultset.evaluators.execution.runners.fork_server", str(runner_end.fileno())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(runner_end.fileno(),),
                start_new_session=True,
                env=_environment() | {MARK: self._mark},
            )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._ready = False
        self._sent = set()
        self._tail, self._written = b"", 0

    def run(self, request: FitRequest | AnswerRequest, limits: RunLimits) -> RunnerOutcome:
        """Serve one request; a crash or an exceeded limit is an outcome, not an exception."""
        self.start()
        if self._stopped or self._process is None:
            raise RunnerStopped
        if not self._ready:
            failed = self._await_ready()
            if failed is not None:
                return failed
        self._tail, self._written = b"", 0
        try:
            assert self._server is not None
            self._server.send(request.map_blobs(self._omit_if_sent))
        except OSError:
            return self._report_end(time.monotonic(), 0)
        return self._watch(request, limits)

    def _omit_if_sent(self, blob: Blob) -> Blob:
        """Leave out bytes that were sent to the process before."""
        if blob.digest in self._sent:
            return replace(blob, data=b"")
        self._sent.add(blob.digest)
        return blob

    def stop(self) -> None:
        """Kill the process and its descendants; may be called from any thread, even during `run`."""
        self._stopped = True
        self._kill()

    def close(self) -> None:
        """Kill the process and release its socket and pipes."""
        self.stop()
        self._forget()

    def _await_ready(self) -> RunnerOutcome | None:
        started = time.monotonic()
        while time.monotonic() - started < _START_TIMEOUT_S:
            message, has_closed = self._read(_POLL_S)
            if message is not None and message.get("kind") == "ready":
                self._ready = True
                return None
            if has_closed or self._has_exited():
                return self._report_end(started, 0)
        return self._give_up("error", "the runner process did not start", started, 0)

    def _watch(self, request: FitRequest | AnswerRequest, limits: RunLimits) -> RunnerOutcome:
        number = request.number
        started = time.monotonic()
        peak = 0
        while True:
            message, has_closed = self._read(_POLL_S)
            kind = None if message is None or message.get("number") != number else message["kind"]
            if kind == "running":
                assert message is not None
                self._idle = tuple(message["idle"])
            if kind == "reply":
                return self._check_reply(request, started, peak, limits)
            if kind == "ended":
                assert message is not None
                self._read_output()
                return self._exit_outcome(message["code"], started, peak)
            if has_closed or self._has_exited():
                return self._report_end(started, peak)
            if message is None:
                peak = max(peak, self._memory(limits.memory_bytes))
            if peak > limits.memory_bytes:
                return self._give_up("memory", limits.describe_excess(peak), started, peak)
            if self._written > _MAX_OUTPUT_BYTES:
                reason = f"wrote more than {_MAX_OUTPUT_BYTES >> 20} MiB of output"
                return self._give_up("output", reason, started, peak)
            if time.monotonic() - started > limits.timeout_s:
                reason = f"no answer after {limits.timeout_s:g} s"
                return self._give_up("timeout", reason, started, peak)

    def _check_reply(
        self, request: FitRequest | AnswerRequest, started: float, sampled_peak: int, limits: RunLimits
    ) -> RunnerOutcome:
        elapsed = time.monotonic() - started
        header, model = self._receive(HEADER_BYTES), self._receive(MODEL_BYTES)
        if header is None or model is None:
            return self._report_end(started, sampled_peak)
        try:
            action = request.action if isinstance(request, AnswerRequest) else None
            reply = read_reply(header, model, request.number, action)
        except UnreadableReply as error:
            reason = f"its process sent an invalid reply ({error})"
            return RunnerOutcome(status="error", reason=reason, seconds=elapsed, peak_bytes=sampled_peak)
        # the method's process reports these, so cap them at what was measured here
        seconds = min(reply.seconds, elapsed)
        cpu_seconds = min(reply.cpu_seconds or 0.0, elapsed * (os.cpu_count() or 1))
        peak = max(reply.peak_bytes, sampled_peak)
        if peak > limits.memory_bytes:
            self._restart()
            return RunnerOutcome(status="memory", reason=limits.describe_excess(peak), seconds=seconds, peak_bytes=peak)
        return replace(reply, seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=peak)

    def _give_up(self, status: Status, reason: str, started: float, peak: int) -> RunnerOutcome:
        self._restart()
        return RunnerOutcome(status=status, reason=reason, seconds=time.monotonic() - started, peak_bytes=peak)

    def _report_end(self, started: float, peak: int) -> RunnerOutcome:
        if self._stopped:
            raise RunnerStopped
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        self._read(0.0)
        outcome = self._exit_outcome(code, started, peak)
        # a fork server that was killed could not end its child processes
        process_trees.kill_marked(f"{MARK}={self._mark}")
        self._restart()
        return outcome

    def _exit_outcome(self, code: int | None, started: float, peak: int) -> RunnerOutcome:
        text = " ".join(self._tail.decode(errors="replace").split())[-200:]
        ending = "" if code is None else f" by signal {-code}" if code < 0 else f" with code {code}"
        reason = f"its process {'was ' if code is not None and code < 0 else ''}ended{ending}"
        reason += f"; last output: {text}" if text else ""
        return RunnerOutcome(status="exit", reason=reason, seconds=time.monotonic() - started, peak_bytes=peak)

    def _read(self, wait_s: float) -> tuple[dict[str, Any] | None, bool]:
        """Return the next message, if any, and whether the fork server closed its side."""
        watched = [*filter(None, [self._server]), *([self._output] if self._output >= 0 else [])]
        try:
            ready = wait(watched, wait_s)
        except (OSError, ValueError):
            if self._stopped:
                raise RunnerStopped from None
            raise
        if self._output in ready:
            self._read_output()
        if self._server is None or self._server not in ready:
            return None, False
        message = self._receive(_MESSAGE_BYTES)
        return (None, True) if message is None else (json.loads(message), False)

    def _read_output(self) -> None:
        """Read what was written to standard output and error since the last call."""
        if self._output < 0:
            return
        try:
            output = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return
        self._written += len(output)
        self._tail = (self._tail + output)[-4096:]
        if not output:
            self._output = -1

    def _receive(self, max_bytes: int) -> bytes | None:
        """Return the next bytes from the fork server; None if it is gone."""
        assert self._server is not None
        try:
            return self._server.recv_bytes(max_bytes)
        except (EOFError, OSError):
            return None

    def _has_exited(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _memory(self, limit: int) -> int:
        """Return the memory of the method's processes, without idle ones."""
        if self._process is None:
            return 0
        pids = [pid for pid in process_trees.descendants(self._process.pid) if pid not in self._idle]
        resident = process_trees.resident_bytes(pids)
        if resident > limit and len(pids) > 1:
            # forked processes share most pages; count shared pages once before deciding that the limit is exceeded
            return process_trees.proportional_bytes(pids)
        return resident

    def _restart(self) -> None:
        self._kill()
        self._forget()
        # start now, so that imports run while the caller writes its row
        self.start()

    def _kill(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process_trees.kill_descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        process.wait()
        # the killed fork server could not remove its scratch folder
        remove_abandoned()
        if self._server is not None:
            self._server.close()
        self._server = None
        self._output = -1


def next_number() -> int:
    """Return a number that is unique among the requests of this process."""
    return next(_numbers)


def limit_transfers(connection: Connection, timeout_s: int) -> None:
    """Set a timeout for each message; a process that stops in the middle of one counts as gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            duplicate.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", timeout_s, 0))


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    environment |= dict.fromkeys(_ONE_THREAD, "1")
    # set order must be the same in every run of an evaluation
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONPATH"] = import_path()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


class RunnerPool:
    """Runner processes that are started on demand and lent to threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[tuple[str, RunnerProcess]] = []
        self._all: list[RunnerProcess] = []
        self._stopped = False

    def prestart(self, count: int) -> None:
        """Start processes before the first task, so that their imports overlap with other work."""
        with self._lock:
            missing = count - len(self._all)
        for _ in range(missing):
            runner = RunnerProcess()
            runner.start()
            with self._lock:
                self._all.append(runner)
                self._free.append(("", runner))

    @contextmanager
    def lend(self, episode: str) -> Iterator[RunnerProcess]:
        """Borrow a runner for work on one episode."""
        runner = self._take(episode)
        try:
            yield runner
        finally:
            with self._lock:
                stopped = self._stopped
                if not stopped:
                    self._free.append((episode, runner))
            if stopped:
                # `close` could only kill its process because the pipes were in use here
                runner.close()

    def _take(self, episode: str) -> RunnerProcess:
        with self._lock:
            if self._stopped:
                raise RunnerStopped
            if self._free:
                best = next((i for i, (last, _) in enumerate(self._free) if last == episode), 0)
                return self._free.pop(best)[1]
            runner = RunnerProcess()
            self._all.append(runner)
            return runner

    def close(self) -> None:
        """Stop every runner, busy ones included."""
        with self._lock:
            self._stopped = True
            runners, self._all, free = self._all, [], {id(runner) for _, runner in self._free}
            self._free = []
        for runner in runners:
            if id(runner) in free:
                runner.close()
            else:
                runner.stop()


_pool: RunnerPool | None = None
_pool_lock = threading.Lock()


def machine_pool() -> RunnerPool:
    """Return the runner pool of this process, whether it is the evaluation or a dask worker."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = RunnerPool()
            atexit.register(close_machine_pool)
        return _pool


def close_machine_pool() -> None:
    """Stop the runners of this process; the next use starts new ones."""
    global _pool
    with _pool_lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.close()
