"""What an import will take, estimated from the first case that was imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faultset.datasets.imports.contract import Case

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True, kw_only=True)
class ImportCost:
    """Size of an import and what it takes."""

    cases: int
    """Cases of the source."""
    waiting: int
    """Cases that are not imported yet."""
    faulty: int
    """Cases with a fault."""
    healthy: int
    """Cases without a fault; of the others only reading them tells."""
    workers: int
    """Number of cases that are read at once."""
    seconds: float
    """Estimated time of the import."""
    disk_bytes: int
    """Estimated size of the new episodes."""

    def __str__(self) -> str:
        unknown = self.cases - self.faulty - self.healthy
        counts = f"{self.faulty} with a fault, {self.healthy} without" + (f", {unknown} unknown" if unknown else "")
        already = "" if self.waiting == self.cases else f", {self.waiting} of them to import"
        noun = "case" if self.cases == 1 else "cases"
        return (
            f"{self.cases} {noun} ({counts}){already}: about {_time_text(self.seconds)} and "
            f"{_size_text(self.disk_bytes)}, {self.workers} at a time"
        )


def estimate_cost(
    cases: Sequence[Case], waiting: int, workers: int, case_seconds: float, case_bytes: int
) -> ImportCost:
    """Return what an import takes when every case takes what one has taken."""
    return ImportCost(
        cases=len(cases),
        waiting=waiting,
        faulty=sum(case.has_fault is True for case in cases),
        healthy=sum(case.has_fault is False for case in cases),
        workers=workers,
        seconds=case_seconds * waiting / workers,
        disk_bytes=case_bytes * waiting,
    )


def _time_text(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _size_text(size: int) -> str:
    factor, unit = next((row for row in _UNITS if size >= row[0]), _UNITS[-1])
    return f"{size / factor:.0f} {unit}"
