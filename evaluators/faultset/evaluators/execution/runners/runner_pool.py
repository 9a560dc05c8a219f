"""The runners of one machine: lent to one task at a time, preferably one that has the episode in memory."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from faultset.evaluators.execution.runners.runner_process import RunnerProcess, RunnerStopped


class RunnerPool:
    """Runner processes that are started on demand and lent to threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[tuple[str, RunnerProcess]] = []
        self._all: list[RunnerProcess] = []
        self._stopped = False

    def prestart(self, count: int) -> None:
        """Have so many processes ahead of the first task, so that their imports overlap with other work."""
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
                # `close` could only end its process: the pipes were in use here
                runner.close()

    def _take(self, episode: str) -> RunnerProcess:
        with self._lock:
            if self._stopped:
                raise RunnerStopped
            best = next((i for i, (last, _) in enumerate(self._free) if last == episode), None)
            if best is None and self._free:
                best = 0
            if best is not None:
                return self._free.pop(best)[1]
            runner = RunnerProcess()
            self._all.append(runner)
            return runner

    def close(self) -> None:
        """End every runner, also those that are working."""
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
    """Return the pool of this process, on whichever machine of a dask cluster it runs."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = RunnerPool()
            atexit.register(close_machine_pool)
        return _pool


def close_machine_pool() -> None:
    """End the runners of this process; the next use starts anew."""
    global _pool
    with _pool_lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.close()
