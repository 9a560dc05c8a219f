"""Print results of commands as tables or JSON, and show progress on stderr."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from faultset.core.printable import printable

_PIPE_WIDTH = 1000


_LOGGER = logging.getLogger("faultset")


def set_verbosity(*, verbose: int = 0, quiet: bool = False) -> None:
    """Set which log messages of faultset are shown.

    Parameters
    ----------
    verbose
        0 shows warnings, 1 also the steps of a command, 2 everything.
    quiet
        Show errors only and no progress.
    """
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    _LOGGER.setLevel(level)
    if logging.lastResort is not None:  # the handler that writes to stderr if logging is not configured
        logging.lastResort.setLevel(level)


def is_quiet() -> bool:
    """Return whether progress is hidden."""
    return not _LOGGER.isEnabledFor(logging.WARNING)


def escape_unencodable() -> None:
    """Make stdout and stderr print escape codes for characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show_records(
    records: Iterable[Mapping[str, Any]],
    *,
    columns: Mapping[str, str] | Sequence[str],
    as_json: bool = False,
    title: str | None = None,
    wrap_at: int | None = None,
) -> None:
    """Print records as a table, or as a JSON list with `as_json`.

    Parameters
    ----------
    records
        One mapping per row. The table shows `columns`, JSON shows everything.
    columns
        Keys to show, or key -> heading.
    as_json
        Value of `faultset.core.console.json_option`.
    title
        Line above the table.
    wrap_at
        Width in characters at which cells wrap when the output is not a terminal; by default they do not wrap.
    """
    if as_json:
        show_json(list(records))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    headings = columns if isinstance(columns, Mapping) else {key: key for key in columns}
    rows = list(records)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for key, heading in headings.items():
        numeric = bool(rows) and all(isinstance(row.get(key), int | float | None) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_format_cell(row.get(key))) for key in headings))
    terminal = Console(file=sys.stdout, highlight=False)
    width = wrap_at or _PIPE_WIDTH
    console = terminal if terminal.is_terminal else Console(file=sys.stdout, highlight=False, width=width)
    console.print(table)


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    import click

    click.echo(json.dumps(value, indent=2, default=str))


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(printable(str(item)) for item in value)
    return printable(str(value))


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
