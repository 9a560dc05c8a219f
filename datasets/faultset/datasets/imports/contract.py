"""Contract of import formats: cases, episodes, recordings, data issues and the registry of formats."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins, require_class
from faultset.datasets.imports.archives import list_missing, list_names

Batches = Callable[[], Iterable[pa.RecordBatch | pa.Table]]
"""Function that yields the pieces of a table without the column `episode`."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A foreign case that becomes one episode or recording; cheap to build and picklable.

    Attributes
    ----------
    key : str
        Unique within an import and the same in every run, for instance `RE2-OB/cartservice_cpu/1`.
    paths : tuple of Path
        Files or folders of the case.
    facts : Mapping
        Values that `load` needs from the search for cases; picklable.
    candidates : tuple of str
        Names of alternative input files, if the source has several versions of the same telemetry. `load` reads
        the first. `--input` moves the user's choice to the front.
    has_fault : bool or None
        Whether it has a fault; None if that is unknown before the case is read.
    """

    key: str
    paths: tuple[Path, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    has_fault: bool | None = None


Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class DataIssue:
    """An issue with foreign data that users should know about.

    Attributes
    ----------
    severity : {"error", "warning", "note"}
        error: the case cannot be imported; warning: the import works around it; note: worth knowing.
    location : str
        File, folder or case, relative to the examined path.
    problem : str
        The issue in one sentence.
    handling : str
        How the import handles it, in one sentence.
    """

    severity: Severity
    location: str
    problem: str
    handling: str


_collected: ContextVar[list[DataIssue] | None] = ContextVar("collected", default=None)


def report_issues(find: Callable[[], Iterable[DataIssue]]) -> None:
    """Report data issues from `cases` or `load`.

    Parameters
    ----------
    find
        Finds the issues. It is called only within `collect_issues`, because the search takes time.
    """
    issues = _collected.get()
    if issues is not None:
        issues.extend(find())


@contextmanager
def collect_issues() -> Iterator[list[DataIssue]]:
    """Collect the issues reported within the block."""
    issues: list[DataIssue] = []
    token = _collected.set(issues)
    try:
        yield issues
    finally:
        _collected.reset(token)


@dataclass(frozen=True, kw_only=True)
class ForeignEpisode:
    """An episode that was read from foreign data.

    Formats must leave out rows outside the view. Times are UTC nanoseconds, windows half-open.

    Attributes
    ----------
    app : str
        Name of the application.
    view_start_ns, view_end_ns : int
        The window that methods see.
    reference_end_ns : int
        End of the healthy reference; see `reference_end`.
    services : tuple of str
        All candidates; must contain every target and root cause.
    tables : Mapping
        Name of a table -> function that yields its rows in pieces, called once when the table is written. Missing
        tables are empty. `faultset.datasets.format.schemas.TABLES` defines the columns; leave out `episode`. Trace and
        span ids are converted to lower-case hex digits without dashes.
    label : Mapping
        Fields of the label without `episode` and the windows. A case with a fault needs `fault`, `targets`,
        `root_causes` and `inject_start`. `verdict` defaults to "none" without a fault and "unknown" with a fault; use
        "manifest" only if the source confirms it. Each root cause is a mapping with `kind`, `name`, `service`,
        `accepted` (services that count as correct) and optionally `metric`; `build_cause` builds one.
    source_intervals_s : Mapping
        Sampling interval of each table that has one, in seconds.
    reference_moved_ns : int
        Shift of the rows before `reference_end_ns`, if the source recorded the healthy time separately.
    calls : tuple of (str, str)
        Declared call graph as (caller, callee).
    workload_entry : str
        Service that receives the load; empty if unknown.
    metric_roles : tuple of Mapping
        Rows of `faultset.datasets.metrics.roles.MetricRole` for the source's metric names, as text: `source`,
        `metric`, `role`, `unit`, `kind`, `combine`, `meaning`.
    evidence : tuple of Mapping
        Rows of the table `evidence`: `check`, `subject`, `time`, `passed`, `detail`.
    inputs : tuple of Path
        Input files, recorded in the evidence; by default the paths of the case.
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


@dataclass(frozen=True, kw_only=True)
class ForeignChunk:
    """A chunk of a foreign recording: at most 31 days.

    Attributes
    ----------
    start_ns, end_ns : int
        Its half-open window; chunks are in time order and do not overlap.
    tables : Mapping
        As in `ForeignEpisode`, with the rows of the window.
    """

    start_ns: int
    end_ns: int
    tables: Mapping[str, Batches]


@dataclass(frozen=True, kw_only=True)
class ForeignRecording:
    """A foreign case with many incidents, or longer than an episode; it becomes a recording.

    Fields named as in `ForeignEpisode` have the same meaning. Times are UTC nanoseconds.

    Attributes
    ----------
    chunks : callable
        Yields the telemetry in chunks; called once when the recording is written.
    incidents : tuple of Mapping
        Rows of the table `incidents` without `episode` and `incident`. Each needs `fault`, `targets`, `root_causes` and
        `inject_start`; `recover_start` is its end. `verdict` defaults to "unknown".
    voids : tuple of Mapping
        Rows of the table `voids` without `episode`: periods that an evaluation ignores.
    training_end_ns : int or None
        End of the part that the source intends for training; None if there is no such part.
    trace_share : float
        Share of the traces that the source kept.
    """

    app: str
    services: tuple[str, ...]
    chunks: Callable[[], Iterable[ForeignChunk]]
    incidents: tuple[Mapping[str, Any], ...] = ()
    voids: tuple[Mapping[str, Any], ...] = ()
    training_end_ns: int | None = None
    source_intervals_s: Mapping[str, float | None] = field(default_factory=dict)
    calls: tuple[tuple[str, str], ...] = ()
    workload_entry: str = ""
    metric_roles: tuple[Mapping[str, str], ...] = ()
    trace_share: float = 1.0
    inputs: tuple[Path, ...] = ()


class ImportFormat(Protocol):
    """A layout of foreign data.

    The class takes no arguments and holds no data. Its methods may be called in any process. `cases` and `load` call
    `report_issues` for surprising data. Subclasses inherit `recognises`; other classes may define all members.
    """

    name: str
    """Name on the command line, such as `rcaeval`."""
    title: str
    """Name in messages, such as `RCAEval`."""
    weakness: str
    """Limits of the data, recorded in the provenance; may be empty."""
    layout: Sequence[tuple[str, str]]
    """Required content of a folder: a description, and a regular expression that matches a path below the folder.

    `faultset dataset doctor` uses it to describe what unrecognised data lacks."""

    def recognises(self, path: Path) -> bool:
        """Return whether a folder or file has this format, by default if nothing in the layout is missing.

        Must not raise and should read little.
        """
        return not list_missing(self.layout, list_names(path))

    def cases(self, path: Path) -> Sequence[Case]:
        """Return all cases below a path in a stable order; raise DataError if there are none."""
        ...

    def load(self, case: Case) -> ForeignEpisode | ForeignRecording:
        """Read a case; raise a DataError that names the file if it cannot be imported."""
        ...


def build_cause(
    service: str, *, kind: str = "Service", name: str | None = None, metric: str | None = None
) -> dict[str, Any]:
    """Return a root cause in a service; the service is the only accepted answer.

    Parameters
    ----------
    kind, name
        Kind and name of the object at fault; by default the service.
    metric
        Metric that shows the cause, if the source names one.

    Examples
    --------
    >>> build_cause("cart", kind="Pod", name="cart-0")
    {'kind': 'Pod', 'name': 'cart-0', 'service': 'cart', 'accepted': ['cart'], 'metric': None}
    """
    name = service if name is None else name
    return {"kind": kind, "name": name, "service": service, "accepted": [service], "metric": metric}


def build_evidence(
    check: str, subject: str, detail: str, *, passed: bool = True, time_ns: int | None = None
) -> dict[str, Any]:
    """Return a row of the table `evidence`."""
    return {"check": check, "subject": subject, "time": time_ns, "passed": passed, "detail": detail}


def build_gauge_roles(source: str, rows: Iterable[tuple[str, str, str, str, str]]) -> tuple[dict[str, str], ...]:
    """Return `metric_roles` of gauges.

    Parameters
    ----------
    source
        Name of the format.
    rows
        Metric or pattern, role, unit, how copies combine, and meaning of each.
    """
    names = ("metric", "role", "unit", "combine", "meaning")
    return tuple({"source": source, "kind": "gauge"} | dict(zip(names, row, strict=True)) for row in rows)


def choose_input(cases: Sequence[Case], name: str | None, title: str) -> Sequence[Case]:
    """Return the cases with the named file as the first candidate, if they have it.

    Parameters
    ----------
    name
        Name of a file; if None, the format's preference is kept.
    title
        Name of the format in errors.

    Raises
    ------
    DataError
        No case has a candidate of that name.
    """
    if name is None:
        return cases
    candidates = sorted({candidate for case in cases for candidate in case.candidates})
    if not candidates:
        raise DataError(f"--input needs data with alternative input files, which {title} data never has; leave it out")
    if name not in candidates:
        raise DataError(f"--input is {name}, but no case has that file; choose one of {', '.join(candidates)}")
    return [
        replace(case, candidates=(name, *(other for other in case.candidates if other != name)))
        if name in case.candidates
        else case
        for case in cases
    ]


def count_inputs(cases: Sequence[Case]) -> dict[str, int]:
    """Return the number of cases per input file, for cases with alternatives."""
    return dict(sorted(Counter(case.candidates[0] for case in cases if case.candidates).items()))


EMPTY_VIEW = "no telemetry is within the view"
"""Reason that a case cannot become an episode."""
REFERENCE_SHARE = 0.4
"""Share of a view used as the reference: 0.8 of the first half, as in collected episodes."""
BEFORE_ONSET_SHARE = 0.8
"""Share of the time before an early onset that is used as the reference."""


def reference_end(view_start_ns: int, view_end_ns: int, onset_ns: int | None, *, origin: str) -> int:
    """Return the end of the healthy reference: before the onset and, if possible, independent of it.

    The reference is the first 40 % of the view. If the fault begins earlier, it is the first 80 % of the time before
    the fault; its length then reveals the onset.

    Parameters
    ----------
    origin
        Name of the case in errors.

    Examples
    --------
    >>> reference_end(0, 1440, 720, origin="a case"), reference_end(0, 1000, 300, origin="a case")
    (576, 240)
    """
    if view_end_ns <= view_start_ns:
        raise DataError(f"{origin} must cover some time, but ends when it begins; leave it out")
    end = view_start_ns + round(REFERENCE_SHARE * (view_end_ns - view_start_ns))
    if onset_ns is None or end <= onset_ns:
        return max(end, view_start_ns + 1)
    end = view_start_ns + round(BEFORE_ONSET_SHARE * (onset_ns - view_start_ns))
    if end <= view_start_ns:
        raise DataError(f"{origin} has no healthy time: its fault begins at or before its first sample; leave it out")
    return end


GROUP = "faultset.importers"
_log = logging.getLogger(__name__)


def format_names() -> list[str]:
    """Return the names of all formats without loading them."""
    return list(plugins(GROUP))


def load_format(name: str) -> ImportFormat:
    """Return a format; raise UsageError for an unknown name or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="format", accept=_build)


def find_formats(path: Path) -> list[ImportFormat]:
    """Return all formats that recognise a path."""
    return [importer for importer in load_plugins(GROUP, _build).values() if is_recognised(importer, path)]


def is_recognised(importer: ImportFormat, path: Path) -> bool:
    """Return whether a format recognises a path; False if it raises an error."""
    try:
        return importer.recognises(path)
    except Exception:
        _log.debug("%s", path, exc_info=True)
        return False


@contextmanager
def reading(importer: ImportFormat, origin: str) -> Iterator[None]:
    """Translate unexpected errors raised by a format into a DataError that names the origin."""
    try:
        yield
    except FaultsetError:
        raise
    except Exception as error:
        _log.debug("%s", origin, exc_info=True)
        reason = (str(error).splitlines() or [""])[0][:200]
        raise DataError(
            f"{origin} cannot be read as {importer.title} data ({type(error).__name__}: {reason}); restore its files"
        ) from error


def describe_nearest(path: Path) -> str:
    """Return a sentence on the most similar format and what the path lacks; empty if none is similar."""
    folder = path.resolve()
    # Cases are often named after their folder.
    names = [f"{folder.parent.name}/{folder.name}/{name}" for name in list_names(path)]
    nearest: ImportFormat | None = None
    share, missing = 0.0, list[str]()
    for importer in load_plugins(GROUP, _build).values():
        absent = list_missing(importer.layout, names)
        matched_share = 1 - len(absent) / max(1, len(importer.layout))
        if matched_share > share:
            nearest, share, missing = importer, matched_share, absent
    if nearest is None:
        return ""
    present = " and ".join(item for item, _ in nearest.layout if item not in missing)
    lack = f"lacks {' and '.join(missing)}" if missing else "does not have them together in one folder"
    return f"It looks most like {nearest.title} data: it has {present} and {lack}."


def _build(name: str, plugin: Any) -> ImportFormat:
    require_class(plugin, "layout", "recognises", "cases", "load")
    importer: ImportFormat = plugin()
    if importer.name != name:
        raise UsageError(
            f'its attribute `name` is "{importer.name}", but must be the name of its entry point, "{name}"'
        )
    return importer


def split_window(start_ns: int, end_ns: int, length_ns: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive windows of a length; the last one may be shorter.

    >>> list(split_window(0, 10, 4))
    [(0, 4), (4, 8), (8, 10)]
    """
    edges = chain(range(start_ns, end_ns, length_ns), (end_ns,))
    start_ns = next(edges)
    for edge_ns in edges:
        yield start_ns, edge_ns
        start_ns = edge_ns
