"""What a format of foreign data has to offer so that it can be imported and examined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

Batches = Callable[[], Iterable[pa.RecordBatch | pa.Table]]
"""Gives one table in pieces, without the column `episode`, each time it is called."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One foreign case, found but not yet read; it becomes one episode. Cheap to make, and picklable."""

    key: str
    """Unique within an import and the same in every run, for instance `RE2-OB/cartservice_cpu/1`."""
    paths: tuple[Path, ...]
    """Files or folders that the case is read from."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the format noted while looking for cases and needs again in `load`; plain picklable values."""


@dataclass(frozen=True, kw_only=True)
class DataIssue:
    """One thing about foreign data that a reader should know before using it."""

    severity: Literal["error", "warning", "note"]
    """error: the case cannot be imported; warning: the import works around it; note: worth knowing."""
    place: str
    """File, folder or case, relative to the path that was examined."""
    found: str
    """What was found, in one sentence."""
    handling: str
    """What the import does about it, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class ForeignEpisode:
    """One foreign case in our terms.

    Rows outside the view must be left out by the format. All times are UTC nanoseconds, windows half-open.
    """

    app: str
    view_start_ns: int
    view_end_ns: int
    reference_end_ns: int
    """End of the part that is known to be healthy; see `faultset.datasets.imports.windows.reference_end`."""
    services: tuple[str, ...]
    """Closed list of candidates; every target and root cause must be among them."""
    tables: Mapping[str, Batches]
    """Table -> its rows, read only when they are written, one table after the other; left out ones are empty."""
    label: Mapping[str, Any]
    """Fields of the label without `episode` and the windows.

    `fault`, `targets`, `root_causes` and `inject_start` are needed for a case with a fault. `verdict` is by default
    "none" without a fault and "unknown" with one; "manifest" only where the source itself says so.
    """
    source_intervals_s: Mapping[str, float | None] = field(default_factory=dict)
    """Sampling interval of each table that has one, in seconds."""
    reference_moved_ns: int = 0
    """By how much rows before `reference_end_ns` were moved, where the source gives the healthy time apart."""
    calls: tuple[tuple[str, str], ...] = ()
    workload_entry: str = ""
    metric_roles: tuple[Mapping[str, str], ...] = ()
    """Rows of `faultset.datasets.metrics.roles.MetricRole` for the source's metric names, as text."""
    evidence: tuple[Mapping[str, Any], ...] = ()


class ImportFormat(Protocol):
    """A layout of foreign data. Made without arguments; holds no data; every method may be called in any process."""

    name: str
    """As the user types it: `rcaeval`."""
    title: str
    """As people know it: `RCAEval`."""
    weakness: str
    """What a reader must know about the layout, recorded in the provenance; empty for nothing."""

    def recognises(self, path: Path) -> bool:
        """Say whether a folder or file looks like this format. Never raises, reads little."""
        ...

    def cases(self, path: Path) -> Sequence[Case]:
        """Find all cases below a path, in a stable order; raise DataError when there are none."""
        ...

    def load(self, case: Case) -> ForeignEpisode:
        """Read one case; raise DataError, naming the file, for one that cannot be imported."""
        ...

    def data_issues(self, path: Path) -> Sequence[DataIssue]:
        """Look at the data without importing it and report its data issues."""
        ...
