"""One persistent runner process and the watch over it: time, memory, output, and what it leaves behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faultset.evaluators.execution.runners import messages, process_trees
from faultset.evaluators.execution.runners.work import READY, Reply, Request
from faultset.evaluators.results.rows import Status

_LOOK_EVERY_S = 0.05
_START_PATIENCE_S = 120.0
_OUTPUT_LIMIT = 8 << 20
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a baseline may use for one answer."""

    timeout_s: float = 60.0
    memory_bytes: int = 2 << 30

    def for_fit(self) -> Limits:
        """Limits for learning from many episodes at once."""
        return Limits(timeout_s=5 * self.timeout_s, memory_bytes=self.memory_bytes)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one request, whatever happened to the process."""

    status: Status
    value: Any = None
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float | None = None
    """None where the process did not live to tell."""
    peak_bytes: int = 0


class RunnerStopped(Exception):
    """The evaluation is being ended; no more requests are taken."""


class Runner:
    """A process that runs baselines, in a session of its own; started again after every failure.

    Not thread-safe except for `stop`.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks = self._answers = self._output = -1
        self._assembler = messages.Assembler()
        self._ready = False
        self._stopped = False
        self._tail = b""
        self._written = 0
        self._sent: set[str] = set()

    def start(self) -> None:
        """Start the process without waiting for its imports."""
        if self._process is not None or self._stopped:
            return
        child_tasks, self._tasks = os.pipe()
        self._answers, child_answers = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "faultset.evaluators.execution.runners.child",
                    str(child_tasks),
                    str(child_answers),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(child_tasks, child_answers),
                start_new_session=True,
                env=_environment(),
            )
        finally:
            os.close(child_tasks)
            os.close(child_answers)
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._assembler = messages.Assembler()
        self._ready = False
        self._sent = set()
        self._tail, self._written = b"", 0

    def run(self, request: Request, limits: Limits) -> Outcome:
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
            messages.send(self._tasks, self._lightened(request))
        except BrokenPipeError:
            return self._ended(time.monotonic(), 0)
        return self._watch(request.number, limits)

    def _lightened(self, request: Request) -> Request:
        """Leave out bytes that the process was sent before."""
        parts = {name: getattr(request, name) for name in ("spec", "model")}
        light = {name: part.bare if part.digest in self._sent else part for name, part in parts.items()}
        self._sent |= {part.digest for part in parts.values()}
        return replace(request, **light)

    def stop(self) -> None:
        """End the process and everything below it; may be called from any thread, also during `run`."""
        self._stopped = True
        self._kill()

    def close(self) -> None:
        """End the process and release its pipes."""
        self.stop()
        self._forget()

    def _await_ready(self) -> Outcome | None:
        started = time.monotonic()
        while time.monotonic() - started < _START_PATIENCE_S:
            arrived, over = self._read(_LOOK_EVERY_S)
            if READY in arrived:
                self._ready = True
                return None
            if over or self._gone():
                return self._ended(started, 0)
        return self._give_up("error", "the runner process did not start", started, 0)

    def _watch(self, number: int, limits: Limits) -> Outcome:
        started = time.monotonic()
        peak = 0
        while True:
            arrived, over = self._read(_LOOK_EVERY_S)
            for reply in arrived:
                if isinstance(reply, Reply) and reply.number == number:
                    return self._answered(reply, peak, limits)
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

    def _answered(self, reply: Reply, sampled_peak: int, limits: Limits) -> Outcome:
        peak = max(reply.peak_bytes, sampled_peak)
        if self._leftovers():
            # what a baseline leaves running would take time and memory from the next one
            self._restart()
        if peak > limits.memory_bytes:
            self._restart()
            reason = f"used {peak / 2**20:.0f} MiB, the limit is {limits.memory_bytes / 2**20:.0f} MiB"
            return Outcome(status="memory", reason=reason, seconds=reply.seconds, peak_bytes=peak)
        return Outcome(
            status=reply.status,
            value=reply.value,
            reason=reply.failure,
            seconds=reply.seconds,
            cpu_seconds=reply.cpu_seconds,
            peak_bytes=peak,
        )

    def _give_up(self, status: Status, reason: str, started: float, peak: int) -> Outcome:
        self._restart()
        return Outcome(status=status, reason=reason, seconds=time.monotonic() - started, peak_bytes=peak)

    def _ended(self, started: float, peak: int) -> Outcome:
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
        return Outcome(status="exit", reason=reason, seconds=seconds, peak_bytes=peak)

    def _read(self, wait_s: float) -> tuple[list[Any], bool]:
        """Messages that arrived, and whether the baseline process closed its side."""
        watched = [d for d in (self._answers, self._output) if d >= 0]
        try:
            ready, _, _ = select.select(watched, [], [], wait_s)
        except (OSError, ValueError):
            if self._stopped:
                raise RunnerStopped from None
            raise
        arrived: list[Any] = []
        over = False
        if self._output in ready:
            part = os.read(self._output, 1 << 16)
            self._written += len(part)
            self._tail = (self._tail + part)[-4096:]
            if not part:
                self._output = -1
        if self._answers in ready:
            part = os.read(self._answers, 1 << 20)
            over = not part
            arrived = self._assembler.feed(part)
        return arrived, over

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
        for descriptor in (self._tasks, self._answers):
            os.close(descriptor)
        self._tasks = self._answers = self._output = -1


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
