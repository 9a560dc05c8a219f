"""Show the progress of long commands on stderr: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

Progress = Callable[[int, int], None]
"""Called with the number of finished steps and the total, possibly from another thread."""
_LINES = 4
"""Maximum number of progress lines without a terminal; more would clutter a log."""


@contextmanager
def show_progress(total: int, label: str | Callable[[], str]) -> Iterator[Callable[[int], None]]:
    """Show progress towards `total` while the block runs.

    Call the yielded function with the number of newly finished steps, from any thread.

    Parameters
    ----------
    label
        Text before the numbers, or a function that returns it at every step.
    """
    text = (lambda: label) if isinstance(label, str) else label
    from faultset.core.command_line.console import is_quiet

    if is_quiet():
        yield lambda steps: None
    elif sys.stderr.isatty():
        with _bar(total, text) as advance:
            yield advance
    else:
        yield _Lines(total, text)


@contextmanager
def report_progress(label: str) -> Iterator[Progress]:
    """Yield a `Progress` that displays its arguments; a different total starts a new display."""
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None
        shown_steps = shown_total = 0

        def show(finished: int, total: int) -> None:
            nonlocal advance, shown_steps, shown_total
            if advance is None or total != shown_total:
                stack.close()
                shown_steps, shown_total = 0, total
                advance = stack.enter_context(show_progress(total, label))
            advance(finished - shown_steps)
            shown_steps = finished

        yield show


class StepCounter:
    """Count finished steps and report them to a `Progress`.

    Parameters
    ----------
    total
        Number of all steps.
    progress
        Called at once with zero finished steps; if None, nothing is reported.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress = total, progress
        self._finished = 0
        self.add(0)

    def add(self, steps: int = 1) -> None:
        """Count more steps as finished."""
        self._finished = min(self._total, self._finished + steps)
        if self._progress is not None:
            self._progress(self._finished, self._total)

    def finish(self) -> None:
        """Count all remaining steps as finished."""
        self.add(self._total - self._finished)


@contextmanager
def _bar(total: int, label: Callable[[], str]) -> Iterator[Callable[[int], None]]:
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
        task = bar.add_task(label(), total=total)
        yield lambda steps: bar.update(task, advance=steps, description=label())


class _Lines:
    def __init__(self, total: int, label: Callable[[], str]) -> None:
        self._total, self._label = total, label
        self._done = 0
        self._next = 1
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, steps: int) -> None:
        with self._lock:
            self._done += steps
            if not self._total or self._done * _LINES < self._total * self._next:
                return
            self._next = self._done * _LINES // self._total + 1
            elapsed = time.monotonic() - self._started
            remaining_s = elapsed / self._done * (self._total - self._done) if self._done else 0.0
            estimate = f", about {remaining_s:.0f} s left" if self._done < self._total else ""
            text = f"{self._label()} {self._done}/{self._total} after {elapsed:.0f} s{estimate}"
            print(text, file=sys.stderr, flush=True)
