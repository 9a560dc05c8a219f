"""Tests of the OpenStack failure dataset: their folders, faults and times."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.openstack.processes import process_of_log

SUBSYSTEMS = ("nova", "cinder", "neutron")
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) ")
_STARTED = re.compile(r"-(\d{9,11})\.out\.")
_EPOCH = re.compile(r"^(\d{9,11}\.\d+) ")
_HALF_HOUR_S = 1800
_NEVER = "0 activations"
COLUMNS = ("TEST", "FAULT_TYPE", "COMPONENT", "CLASS", "FUNCTION", "ROUND_1", "ROUND_2")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One test: a round of the workload with the fault, and the same round without."""

    name: str
    """For instance `Nova/Test_1`."""
    folder: Path
    row: Mapping[str, str]
    """What the table of its subsystem says about it."""

    def round(self, number: int) -> WorkloadRound:
        """Return round 1, which has the fault, or round 2, which has not."""
        return WorkloadRound(self.folder / "logs" / f"round_{number}")


@dataclass(frozen=True)
class WorkloadRound:
    """One run of the workload."""

    folder: Path

    @property
    def logs(self) -> dict[str, Path]:
        """Process -> its log."""
        return {
            process_of_log(path.parent.name, path.name): path
            for path in sorted(self.folder.glob("*/*.out"))
            if path.parent.name != "foreground_wl"
        }

    @property
    def traces(self) -> Path | None:
        """File with the spans; None where there is none."""
        return next(iter(sorted(self.folder.glob("trace_*.log"))), None)

    @property
    def files(self) -> tuple[Path, ...]:
        """Everything that is read of it."""
        others = (self.traces, next(iter(self._client_logs), None), self.folder / "trigger_log")
        return (*self.logs.values(), *(path for path in others if path is not None and path.is_file()))

    @property
    def _client_logs(self) -> list[Path]:
        return sorted(self.folder.glob("foreground_wl/*.out.*"))

    def window(self) -> tuple[int, int, int]:
        """Return when the workload began and ended, UTC ns, and by how many seconds log times are ahead of UTC.

        Raises
        ------
        DataError
            When the client's log is missing, or has no time.
        """
        found = self._client_logs
        began = _STARTED.search(found[0].name) if found else None
        if began is None:
            raise DataError(f"{self.folder / 'foreground_wl'} has no log of the client; restore it")
        stamps = [match[1] for line in _lines(found[0]) if (match := _STAMP.match(line))]
        if not stamps:
            raise DataError(f"{found[0]} has no line with a time; restore the file")
        local = (local_ns(stamps[0]), local_ns(stamps[-1]))
        # the name of the file says when it was made, in UTC; offsets of zones are whole half hours
        ahead_s = round((local[0] / SECOND_NS - int(began[1])) / _HALF_HOUR_S) * _HALF_HOUR_S
        return local[0] - ahead_s * SECOND_NS, local[1] - ahead_s * SECOND_NS + SECOND_NS, ahead_s

    def activations(self, ahead_s: int) -> list[int]:
        """Return when the faulty code ran, UTC ns; its file has epoch seconds or local times."""
        path = self.folder / "trigger_log"
        if not path.is_file():
            return []
        times = []
        for line in _lines(path):
            if match := _EPOCH.match(line):
                times.append(round(float(match[1]) * SECOND_NS))
            elif match := _STAMP.match(line):
                times.append(local_ns(match[1]) - ahead_s * SECOND_NS)
        return sorted(times)


def find_experiments(root: Path) -> list[Experiment]:
    """Return all tests below a folder that have both rounds, in order.

    Raises
    ------
    DataError
        For a table that cannot be read.
    """
    found = []
    for table in sorted(root.rglob("*.tsv")):
        if table.stem not in SUBSYSTEMS:
            continue
        for row in _table(table):
            folder = table.parent / table.stem.capitalize() / row["TEST"]
            if (folder / "logs" / "round_1").is_dir():
                name = f"{table.stem.capitalize()}/{row['TEST']}"
                found.append(Experiment(name=name, folder=folder, row=row))
    return sorted(found, key=lambda one: (one.name.partition("/")[0], int(one.name.rpartition("_")[2])))


def local_ns(stamp: str) -> int:
    """Return a time of a log as if it were UTC, in nanoseconds."""
    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS + moment.microsecond * 1000


def _table(path: Path) -> Sequence[Mapping[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); restore the file") from error
    missing = [name for name in COLUMNS if rows and rows[0].get(name) is None]
    if missing:
        raise DataError(f"{path} has no column {', '.join(missing)}; restore the file")
    if any(not re.fullmatch(r"Test_\d+", row["TEST"] or "") for row in rows):
        raise DataError(f"{path} has rows whose TEST is no Test_NUMBER; restore the file")
    return [{str(name): str(value or "").strip() for name, value in row.items()} for row in rows]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error
