"""What a format of foreign data has to offer so that it can be imported and examined."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

from faultset.core.errors import DataError

Batches = Callable[[], Iterable[pa.RecordBatch | pa.Table]]
"""Gives one table in pieces, without the column `episode`, each time it is called."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One foreign case that was not read yet; it becomes one episode. Cheap to make, and picklable.

    Attributes
    ----------
    key : str
        Unique within an import and the same in every run, for instance `RE2-OB/cartservice_cpu/1`.
    paths : tuple of Path
        Files or folders that the case is read from.
    facts : Mapping
        What the format noted while looking for cases and needs again in `load`; plain picklable values.
    candidates : tuple of str
        Names of the files that could each be its input, where the source has several versions of the same telemetry.
        `load` reads the first. `--input` moves the file that a user chose to the front.
    has_fault : bool or None
        Whether it has a fault; None where only reading the case tells.
    """

    key: str
    paths: tuple[Path, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    has_fault: bool | None = None


@dataclass(frozen=True, kw_only=True)
class DataIssue:
    """One thing about foreign data that a reader should know before using it.

    Attributes
    ----------
    severity : {"error", "warning", "note"}
        error: the case cannot be imported; warning: the import works around it; note: worth knowing.
    place : str
        File, folder or case, relative to the path that was examined.
    found : str
        What was found, in one sentence.
    handling : str
        What the import does about it, in one sentence.
    """

    severity: Literal["error", "warning", "note"]
    place: str
    found: str
    handling: str


_collected: ContextVar[list[DataIssue] | None] = ContextVar("collected", default=None)


def report_issues(find: Callable[[], Iterable[DataIssue]]) -> None:
    """Report data issues while cases are found or read.

    Parameters
    ----------
    find
        Looks for the issues. It is called only while `collect_issues` is active: an import does not pay for it.
    """
    issues = _collected.get()
    if issues is not None:
        issues.extend(find())


@contextmanager
def collect_issues() -> Iterator[list[DataIssue]]:
    """Collect the issues that are reported within the block."""
    issues: list[DataIssue] = []
    token = _collected.set(issues)
    try:
        yield issues
    finally:
        _collected.reset(token)


@dataclass(frozen=True, kw_only=True)
class ForeignEpisode:
    """One foreign case in our terms.

    Rows outside the view must be left out by the format. All times are UTC nanoseconds, windows half-open.

    Attributes
    ----------
    app : str
        Name of the application; episodes of one application are compared with each other.
    view_start_ns, view_end_ns : int
        The window that methods see.
    reference_end_ns : int
        End of the part that is known to be healthy; see `faultset.datasets.imports.windows.reference_end`.
    services : tuple of str
        Closed list of candidates; every target and root cause must be among them.
    tables : Mapping
        Name of a table -> a function that gives its rows in pieces. Tables are read when they are written, one after
        the other; a table that is left out is empty. Columns are those of `faultset.datasets.format.schemas.TABLES`
        without `episode`. Ids of traces and spans are brought to lower-case hex digits without dashes.
    label : Mapping
        Fields of the label without `episode` and the windows. `fault`, `targets`, `root_causes` and `inject_start` are
        needed for a case with a fault. `verdict` is by default "none" without a fault and "unknown" with one;
        "manifest" only where the source itself says so. Each root cause is a mapping with `kind`, `name`, `service`,
        `accepted` (services that are right answers) and optionally `metric`.
    source_intervals_s : Mapping
        Sampling interval of each table that has one, in seconds.
    reference_moved_ns : int
        By how much rows before `reference_end_ns` were moved, where the source gives the healthy time apart.
    calls : tuple of (str, str)
        Declared call graph as (caller, callee).
    workload_entry : str
        Service that the load talks to; empty where that is not known.
    metric_roles : tuple of Mapping
        Rows of `faultset.datasets.metrics.roles.MetricRole` for the source's metric names, as text: `source`,
        `metric`, `role`, `unit`, `kind`, `combine`, `meaning`.
    evidence : tuple of Mapping
        Rows of the table `evidence`: `check`, `subject`, `time`, `passed`, `detail`.
    inputs : tuple of Path
        Files that the episode is read from, recorded in its evidence; by default the paths of the case.
    """

    app: str
    view_start_ns: int
    view_end_ns: int
    reference_end_ns: int
    services: tuple[str, ...]
    tables: Mapping[str, Batches]
    label: Mapping[str, Any]
    source_intervals_s: Mapping[str, float | None] = field(default_factory=dict)
    reference_moved_ns: int = 0
    calls: tuple[tuple[str, str], ...] = ()
    workload_entry: str = ""
    metric_roles: tuple[Mapping[str, str], ...] = ()
    evidence: tuple[Mapping[str, Any], ...] = ()
    inputs: tuple[Path, ...] = ()


class ImportFormat(Protocol):
    """A layout of foreign data. Made without arguments; holds no data; every method may be called in any process.

    `cases` and `load` report what is surprising about the data with `report_issues`.
    """

    name: str
    """As the user types it: `rcaeval`."""
    title: str
    """As people know it: `RCAEval`."""
    weakness: str
    """What a reader must know about the layout, recorded in the provenance; empty for nothing."""
    layout: Sequence[tuple[str, str]]
    """What a folder of this format holds: in words, and a regular expression that one of the paths below it matches.

    The doctor says with it what data of no known format lacks."""

    def recognises(self, path: Path) -> bool:
        """Say whether a folder or file looks like this format. Never raises, reads little."""
        ...

    def cases(self, path: Path) -> Sequence[Case]:
        """Find all cases below a path, in a stable order; raise DataError when there are none."""
        ...

    def load(self, case: Case) -> ForeignEpisode:
        """Read one case; raise DataError, naming the file, for one that cannot be imported."""
        ...


def choose_input(cases: Sequence[Case], name: str | None, title: str) -> Sequence[Case]:
    """Return the cases so that those with a candidate of that name are read from it; the others stay as they are.

    Parameters
    ----------
    name
        Name of a file; None for the file that the format prefers.
    title
        Name of the format in the error.

    Raises
    ------
    DataError
        No case has a candidate of that name.
    """
    if name is None:
        return cases
    candidates = sorted({candidate for case in cases for candidate in case.candidates})
    if not candidates:
        raise DataError(f"{title} data has one version of each file; leave out --input")
    if name not in candidates:
        raise DataError(f"no case can be read from {name}; choose one of {', '.join(candidates)}")
    return [
        replace(case, candidates=(name, *(other for other in case.candidates if other != name)))
        if name in case.candidates
        else case
        for case in cases
    ]


def count_inputs(cases: Sequence[Case]) -> dict[str, int]:
    """Return how many cases are read from each file, of those that have a choice."""
    return dict(sorted(Counter(case.candidates[0] for case in cases if case.candidates).items()))


def describe_inputs(cases: Sequence[Case]) -> str:
    """Return a sentence on the files that cases are read from; empty where there is no choice."""
    counts = count_inputs(cases)
    if not counts:
        return ""
    if len(counts) == 1:
        return f"Input file: {next(iter(counts))}."
    files = (f"{name} ({count} {'case' if count == 1 else 'cases'})" for name, count in counts.items())
    return f"Input files: {', '.join(files)}."


def input_issues(cases: Sequence[Case]) -> Iterator[DataIssue]:
    """Yield an issue for each case that could be read from several files, with the one that is read."""
    for case in cases:
        if len(case.candidates) > 1:
            yield DataIssue(
                severity="warning",
                place=case.key,
                found=f"It has several input files: {', '.join(sorted(case.candidates))}.",
                handling=f"{case.candidates[0]} is read; --input FILE chooses another.",
            )


def input_evidence(case: Case, foreign: ForeignEpisode, importer: str) -> list[dict[str, Any]]:
    """Return a row of evidence for each file that an episode was read from, relative to the folder of its case."""
    folders = [path if path.is_dir() else path.parent for path in case.paths]
    base = os.path.commonpath(folders) if folders else ""
    names = {Path(os.path.relpath(path, base)).as_posix() for path in foreign.inputs or case.paths}
    return [
        {"check": "input", "subject": name, "time": None, "passed": True, "detail": f"read by the importer {importer}"}
        for name in sorted(names)
    ]
