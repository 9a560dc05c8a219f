"""One persistent runner process and the watch over it: time, memory, output, and what it leaves behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
import uuid
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from faultset.core.processes import remove_abandoned
from faultset.evaluators.execution.runners import process_trees
from faultset.evaluators.execution.runners.launch import MARK, start_guard
from faultset.evaluators.execution.runners.messages import AnswerRequest, Blob, FitRequest
from faultset.evaluators.execution.runners.outcomes import RunLimits, RunnerOutcome, RunnerStopped
from faultset.evaluators.execution.runners.replies import HEADER_BYTES, MODEL_BYTES, UnreadableReply, read_reply
from faultset.evaluators.execution.runners.watchdog import Watchdog
from faultset.evaluators.results.rows import Status

_LOOK_EVERY_S = 0.05
_START_TIMEOUT_S = 120.0
_OUTPUT_LIMIT = 8 << 20
_TRANSFER_TIMEOUT_S = 60.0
"""For the rest of a reply whose beginning has arrived."""
_MESSAGE_BYTES = 1 << 16
_numbers = itertools.count(1)


class RunnerProcess:
    """A process that starts method processes, in a session of its own; started again after every failure.

    Not thread-safe except for `stop`.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: Connection | None = None
        self._replies: Connection | None = None
        self._output = -1
        self._ready = False
        self._stopped = False
        self._tail = b""
        self._written = 0
        self._sent: set[str] = set()
        self._idle: tuple[int, ...] = ()
        self._mark = uuid.uuid4().hex
        self._watchdog = Watchdog(_TRANSFER_TIMEOUT_S, self._kill)

    def start(self) -> None:
        """Start the process without waiting for its imports."""
        if self._process is not None or self._stopped:
            return
        self._process, self._requests, self._replies = start_guard(self._mark)
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._ready = False
        self._sent = set()
        self._tail, self._written = b"", 0

    def run(self, request: FitRequest | AnswerRequest, limits: RunLimits) -> RunnerOutcome:
        """Carry out one request; every way in which foreign code can fail is an outcome, not an exception."""
        self.start()
        if self._stopped or self._process is None:
            raise RunnerStopped
        if not self._ready:
            failed = self._await_ready()
            if failed is not None:
                return failed
        self._tail, self._written = b"", 0
        try:
            assert self._requests is not None
            self._requests.send(self._without_known_blobs(request))
        except OSError:
            return self._ended(time.monotonic(), 0)
        return self._watch(request, limits)

    def _without_known_blobs(self, request: FitRequest | AnswerRequest) -> FitRequest | AnswerRequest:
        """Leave out bytes that the process was sent before."""
        if isinstance(request, FitRequest):
            return replace(request, spec=self._unless_known(request.spec))
        return replace(request, spec=self._unless_known(request.spec), model=self._unless_known(request.model))

    def _unless_known(self, blob: Blob) -> Blob:
        known = blob.digest in self._sent
        self._sent.add(blob.digest)
        return blob.without_data if known else blob

    def stop(self) -> None:
        """End the process and everything below it; may be called from any thread, also during `run`."""
        self._stopped = True
        self._kill()

    def close(self) -> None:
        """End the process and release its pipes."""
        self.stop()
        self._forget()
        self._watchdog.close()

    def _await_ready(self) -> RunnerOutcome | None:
        started = time.monotonic()
        while time.monotonic() - started < _START_TIMEOUT_S:
            message, over = self._read(_LOOK_EVERY_S)
            if message is not None and message.get("kind") == "ready":
                self._ready = True
                return None
            if over or self._gone():
                return self._ended(started, 0)
        return self._give_up("error", "the runner process did not start", started, 0)

    def _watch(self, request: FitRequest | AnswerRequest, limits: RunLimits) -> RunnerOutcome:
        number = request.number
        started = time.monotonic()
        peak = 0
        while True:
            message, over = self._read(_LOOK_EVERY_S)
            kind = None if message is None or message.get("number") != number else message["kind"]
            if kind == "running":
                assert message is not None
                self._idle = tuple(message["idle"])
            if kind == "reply":
                return self._answered(request, started, peak, limits)
            if kind == "ended":
                assert message is not None
                return self._method_ended(message["code"], started, peak)
            if over or self._gone():
                return self._ended(started, peak)
            if message is None:
                peak = max(peak, self._memory(limits.memory_bytes))
            if peak > limits.memory_bytes:
                reason = f"used {peak / 2**20:.0f} MiB, the limit is {limits.memory_bytes / 2**20:.0f} MiB"
                return self._give_up("memory", reason, started, peak)
            if self._written > _OUTPUT_LIMIT:
                reason = f"wrote more than {_OUTPUT_LIMIT >> 20} MiB of output"
                return self._give_up("output", reason, started, peak)
            if time.monotonic() - started > limits.timeout_s:
                reason = f"no answer after {limits.timeout_s:g} s"
                return self._give_up("timeout", reason, started, peak)

    def _answered(
        self, request: FitRequest | AnswerRequest, started: float, sampled_peak: int, limits: RunLimits
    ) -> RunnerOutcome:
        elapsed = time.monotonic() - started
        header, model = self._received(HEADER_BYTES), self._received(MODEL_BYTES)
        if header is None or model is None:
            return self._ended(started, sampled_peak)
        try:
            action = request.action if isinstance(request, AnswerRequest) else None
            reply = read_reply(header, model, request.number, action)
        except UnreadableReply as wrong:
            reason = f"wrote something else than its answer ({wrong})"
            return RunnerOutcome(status="error", reason=reason, seconds=elapsed, peak_bytes=sampled_peak)
        # the method's own process measured: what it says cannot be more than what passed here
        seconds, cpu_seconds = min(reply.seconds, elapsed), min(reply.cpu_seconds, elapsed * (os.cpu_count() or 1))
        reply = replace(reply, seconds=seconds, cpu_seconds=cpu_seconds)
        peak = max(reply.peak_bytes, sampled_peak)
        if peak > limits.memory_bytes:
            self._restart()
            reason = f"used {peak / 2**20:.0f} MiB, the limit is {limits.memory_bytes / 2**20:.0f} MiB"
            return RunnerOutcome(status="memory", reason=reason, seconds=reply.seconds, peak_bytes=peak)
        return RunnerOutcome(
            status=reply.status,
            answer=reply.answer,
            model=reply.model,
            reason=reply.reason,
            seconds=reply.seconds,
            cpu_seconds=reply.cpu_seconds,
            peak_bytes=peak,
        )

    def _give_up(self, status: Status, reason: str, started: float, peak: int) -> RunnerOutcome:
        self._restart()
        return RunnerOutcome(status=status, reason=reason, seconds=time.monotonic() - started, peak_bytes=peak)

    def _ended(self, started: float, peak: int) -> RunnerOutcome:
        if self._stopped:
            raise RunnerStopped
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        self._read(0.0)
        outcome = self._exit_outcome(code, started, peak)
        # the guard, which ends everything below it, may itself have been killed
        process_trees.kill_marked(f"{MARK}={self._mark}")
        self._restart()
        return outcome

    def _method_ended(self, code: int | None, started: float, peak: int) -> RunnerOutcome:
        self._read_output()
        return self._exit_outcome(None if code is None else code if code >= 0 else 128 - code, started, peak)

    def _exit_outcome(self, code: int | None, started: float, peak: int) -> RunnerOutcome:
        text = " ".join(self._tail.decode(errors="replace").split())[-200:]
        how = "its process ended" if code is None else _exit_words(code)
        reason = f"{how}; last output: {text}" if text else how
        return RunnerOutcome(status="exit", reason=reason, seconds=time.monotonic() - started, peak_bytes=peak)

    def _read(self, wait_s: float) -> tuple[dict[str, Any] | None, bool]:
        """Return the message that has arrived, if any, and whether the fork server closed its side."""
        watched = [
            *([self._replies] if self._replies is not None else []),
            *([self._output] if self._output >= 0 else []),
        ]
        try:
            ready = wait(watched, wait_s)
        except (OSError, ValueError):
            if self._stopped:
                raise RunnerStopped from None
            raise
        if self._output in ready:
            self._read_output()
        if self._replies is None or self._replies not in ready:
            return None, False
        message = self._received(_MESSAGE_BYTES)
        return (None, True) if message is None else (json.loads(message), False)

    def _read_output(self) -> None:
        """Take what has been written to standard output and error since the last time."""
        if self._output < 0:
            return
        try:
            part = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return
        self._written += len(part)
        self._tail = (self._tail + part)[-4096:]
        if not part:
            self._output = -1

    def _received(self, most: int) -> bytes | None:
        """Return the next bytes of the fork server; None when it is gone."""
        assert self._replies is not None
        try:
            # a process that stops in the middle of a reply is ended, which ends the wait for the rest
            with self._watchdog:
                return self._replies.recv_bytes(most)
        except (EOFError, OSError):
            return None

    def _gone(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _memory(self, limit: int) -> int:
        """Return what the processes of the method at work take, without those that wait."""
        if self._process is None:
            return 0
        known = {self._process.pid, *self._idle}
        server = process_trees.children(self._process.pid)
        pids = [pid for pid in process_trees.descendants(self._process.pid) if pid not in known and pid not in server]
        resident = process_trees.resident_bytes(pids)
        if resident > limit and len(pids) > 1:
            # forked processes share most of their pages; count those once before anybody is blamed
            return process_trees.proportional_bytes(pids)
        return resident

    def _restart(self) -> None:
        self._kill()
        self._forget()
        # the next request will need it soon; its imports run while the row is written
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
        # the guard was killed and could not remove its own
        remove_abandoned()
        for connection in (self._requests, self._replies):
            if connection is not None:
                connection.close()
        self._requests = self._replies = None
        self._output = -1


def next_number() -> int:
    """Give a number that no other request of this process has."""
    return next(_numbers)


def _exit_words(code: int) -> str:
    if code > 128:
        return f"its process was ended by signal {code - 128}"
    return f"its process ended with code {code}"
