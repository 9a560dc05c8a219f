"""Many cases at once, each in a process that may fail or be killed without harm to the others."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import DataError, DiskFullError
from faultset.datasets.format.summaries import EpisodeSummary
from faultset.datasets.imports.case_episodes import import_case
from faultset.datasets.imports.contract import Case, ImportFormat
from faultset.datasets.imports.registry import format_named

Outcome = str | EpisodeSummary
"""Summary of the episode, or why the case could not be imported."""


@dataclass(frozen=True, kw_only=True)
class ImportedCase:
    """What became of a case, and how long it took."""

    case: Case
    outcome: Outcome
    seconds: float = 0.0
    was_first: bool = False
    """Whether its process had imported none before: libraries were loaded in its time."""


_WATCH_S = 1.0
_KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 28), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
"""For glibc: cases are of one size, and memory that is given back is asked for again by the next one."""
_log = logging.getLogger(__name__)


def worker_count(cases: int, workers: int | None) -> int:
    """Return how many cases are imported at once."""
    return max(1, min(workers or len(os.sched_getaffinity(0)), cases))


def imported_cases(name: str, cases: Sequence[Case], out: Path, workers: int | None) -> Iterator[ImportedCase]:
    """Yield each case when it is done, with the reason where it could not be imported.

    Parameters
    ----------
    name
        Name of the format.
    cases
        What to import.
    out
        Dataset folder.
    workers
        Processes; as many as there are processors by default.
    """
    count = worker_count(len(cases), workers)
    if count == 1:
        importer = format_named(name)
        for number, case in enumerate(cases):
            yield _import_timed(importer, case, out, was_first=number == 0)
        return
    left = {case.key: case for case in cases}
    for imported in _in_pool(name, cases, out, count):
        del left[imported.case.key]
        yield imported
    # A process was killed: the others' cases one at a time, so that it is known which one does it.
    for case in left.values():
        reason = f"{case.key}: the process that read it was killed (out of memory?)"
        yield next(_in_pool(name, [case], out, 1), ImportedCase(case=case, outcome=reason))


def _in_pool(name: str, cases: Sequence[Case], out: Path, count: int) -> Iterator[ImportedCase]:
    """Yield what was done; end early when a process was killed."""
    # Spawned, not forked: libraries with threads of their own do not survive a fork.
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_die_with_parent) as pool:
        try:
            with _environment(_KEEP_FREED_MEMORY):
                running: list[Future[ImportedCase]] = [pool.submit(_of_format, name, case, out) for case in cases]
            for future in as_completed(running):
                yield future.result()
        except BrokenProcessPool:
            pool.shutdown(wait=True, cancel_futures=True)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def import_or_say_why(found: ImportFormat, case: Case, out: Path) -> Outcome:
    """Write one case as an episode; a case that cannot be read is no error, only a full disk is.

    Raises
    ------
    DiskFullError
        No space is left on the disk of the dataset.
    """
    try:
        return import_case(found, case, out)
    except DiskFullError:
        raise
    except DataError as error:
        return str(error)
    except Exception as error:  # whatever a case that nobody has foreseen does to a reader
        _log.debug("case %s", case.key, exc_info=True)
        reason = (str(error).splitlines() or [""])[0][:200]
        return f"{case.key} cannot be read ({type(error).__name__}: {reason}); restore its files"


@functools.cache
def _format(name: str) -> ImportFormat:
    return format_named(name)


def _of_format(name: str, case: Case, out: Path) -> ImportedCase:
    """Import a case in a process of the pool, which looks for its format once."""
    was_first = _format.cache_info().currsize == 0
    return _import_timed(_format(name), case, out, was_first=was_first)


def _import_timed(importer: ImportFormat, case: Case, out: Path, *, was_first: bool) -> ImportedCase:
    started = time.monotonic()
    outcome = import_or_say_why(importer, case, out)
    return ImportedCase(case=case, outcome=outcome, seconds=time.monotonic() - started, was_first=was_first)


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Give processes that are started within the block more variables; what is set already stays."""
    new = {name: text for name, text in added.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def _die_with_parent() -> None:
    """End this process when the import is gone: a pool whose owner was killed would wait for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
