"""One persistent runner process and the watch over it: time, memory, output, and what it leaves behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from faultset.evaluators.execution.runners import process_trees
from faultset.evaluators.execution.runners.messages import (
    AnswerRequest,
    Blob,
    CheckedAnswer,
    FitRequest,
    RunnerReady,
    RunnerReply,
)
from faultset.evaluators.results.rows import Status

_LOOK_EVERY_S = 0.05
_START_TIMEOUT_S = 120.0
_OUTPUT_LIMIT = 8 << 20
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TRANSFER_TIMEOUT_S = 60.0
"""For the rest of a reply whose beginning has arrived."""
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """What a baseline may use for one answer."""

    timeout_s: float = 60.0
    memory_bytes: int = 2 << 30

    def for_fit(self) -> RunLimits:
        """Limits for learning from many episodes at once."""
        return RunLimits(timeout_s=5 * self.timeout_s, memory_bytes=self.memory_bytes)


@dataclass(frozen=True, kw_only=True)
class RunnerOutcome:
    """The result of one request, whatever happened to the process."""

    status: Status
    answer: CheckedAnswer | None = None
    model: bytes = b""
    """The fitted baseline, after a `FitRequest`."""
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float | None = None
    """None where the process did not live to tell."""
    peak_bytes: int = 0


class RunnerStopped(Exception):
    """The evaluation is being ended; no more requests are taken."""


class RunnerProcess:
    """A process that runs baselines, in a session of its own; started again after every failure.

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

    def start(self) -> None:
        """Start the process without waiting for its imports."""
        if self._process is not None or self._stopped:
            return
        child_requests, requests = os.pipe()
        replies, child_replies = os.pipe()
        self._requests, self._replies = Connection(requests, readable=False), Connection(replies, writable=False)
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "faultset.evaluators.execution.runners.process_guard",
                    str(child_requests),
                    str(child_replies),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(child_requests, child_replies),
                start_new_session=True,
                env=_environment(),
            )
        finally:
            os.close(child_requests)
            os.close(child_replies)
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
        return self._watch(request.number, limits)

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

    def _await_ready(self) -> RunnerOutcome | None:
        started = time.monotonic()
        while time.monotonic() - started < _START_TIMEOUT_S:
            message, over = self._read(_LOOK_EVERY_S)
            if isinstance(message, RunnerReady):
                self._ready = True
                return None
            if over or self._gone():
                return self._ended(started, 0)
        return self._give_up("error", "the runner process did not start", started, 0)

    def _watch(self, number: int, limits: RunLimits) -> RunnerOutcome:
        started = time.monotonic()
        peak = 0
        while True:
            message, over = self._read(_LOOK_EVERY_S)
            if isinstance(message, RunnerReply) and message.number == number:
                return self._answered(message, peak, limits)
            if over or self._gone():
                return self._ended(started, peak)
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

    def _answered(self, reply: RunnerReply, sampled_peak: int, limits: RunLimits) -> RunnerOutcome:
        peak = max(reply.peak_bytes, sampled_peak)
        if self._leftovers():
            # what a baseline leaves running would take time and memory from the next one
            self._restart()
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
        text = " ".join(self._tail.decode(errors="replace").split())[-200:]
        how = "its process ended" if code is None else _exit_words(code)
        self._restart()
        seconds = time.monotonic() - started
        reason = f"{how}; last output: {text}" if text else how
        return RunnerOutcome(status="exit", reason=reason, seconds=seconds, peak_bytes=peak)

    def _read(self, wait_s: float) -> tuple[RunnerReply | RunnerReady | None, bool]:
        """Return the message that has arrived, if any, and whether the baseline process closed its side."""
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
            part = os.read(self._output, 1 << 16)
            self._written += len(part)
            self._tail = (self._tail + part)[-4096:]
            if not part:
                self._output = -1
        if self._replies is None or self._replies not in ready:
            return None, False
        # a process that stops in the middle of a reply is ended, which ends the wait for the rest
        watchdog = threading.Timer(_TRANSFER_TIMEOUT_S, self._kill)
        watchdog.start()
        try:
            return self._replies.recv(), False
        except (EOFError, OSError):
            return None, True
        finally:
            watchdog.cancel()

    def _gone(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _memory(self, limit: int) -> int:
        if self._process is None:
            return 0
        pids = process_trees.descendants(self._process.pid)
        resident = process_trees.resident_bytes(pids)
        if resident > limit and len(pids) > 1:
            # forked processes share most of their pages; count those once before anybody is blamed
            return process_trees.proportional_bytes(pids)
        return resident

    def _leftovers(self) -> bool:
        if self._process is None:
            return False
        living = [pid for pid in process_trees.descendants(self._process.pid) if not process_trees.is_zombie(pid)]
        return len(living) > 1

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
        for connection in (self._requests, self._replies):
            if connection is not None:
                connection.close()
        self._requests = self._replies = None
        self._output = -1


def next_number() -> int:
    """Give a number that no other request of this process has."""
    return next(_numbers)


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    environment |= dict.fromkeys(_ONE_THREAD, "1")
    # the order of sets must not differ between two runs of one evaluation
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry and Path(entry).exists())
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _exit_words(code: int) -> str:
    if code > 128:
        return f"its process was ended by signal {code - 128}"
    return f"its process ended with code {code}"
