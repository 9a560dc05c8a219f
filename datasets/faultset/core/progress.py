"""How far a long command is: a bar on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from faultset.core.verbosity import is_quiet

_LINES = 10


@contextmanager
def shown(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Show progress towards `total`.

    The yielded function is told how many steps were finished since, from any thread.
    """
    if is_quiet():
        yield lambda steps: None
    elif sys.stderr.isatty():
        with _bar(total, what) as advance:
            yield advance
    else:
        yield _Lines(total, what)


@contextmanager
def announced(what: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Show progress whose total is found out later: yield a function for the total, and one for finished steps."""
    with ExitStack() as stack:
        bars: list[Callable[[int], None]] = []
        yield lambda total: bars.append(stack.enter_context(shown(total, what))), lambda steps: bars[0](steps)


@contextmanager
def _bar(total: int, what: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)


class _Lines:
    def __init__(self, total: int, what: str) -> None:
        self._total, self._what = total, what
        self._done = 0
        self._next = 1
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, steps: int) -> None:
        with self._lock:
            self._done += steps
            if self._done * _LINES < self._total * self._next:
                return
            self._next = self._done * _LINES // self._total + 1
            elapsed = time.monotonic() - self._started
            print(f"{self._what} {self._done}/{self._total} after {elapsed:.0f} s", file=sys.stderr, flush=True)
