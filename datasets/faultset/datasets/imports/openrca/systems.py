"""OpenRCA's folders, and its records as half hours in which something failed.

Records and day folders are in the local time of the source, eight hours ahead of UTC; telemetry has epoch numbers.
Questions are asked about half hours, so all records of one half hour are one case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import epoch_ns

LOCAL = timezone(timedelta(hours=8))
SLOT_NS = 1800 * SECOND_NS
BEFORE_NS = SLOT_NS
"""Time of a view before the half hour; a little less of it is the reference."""
AFTER_NS = 600 * SECOND_NS
"""Time of a view after the half hour, for faults at its end."""

_REPLICA = re.compile(r"\d*-\d+$")
_PROTOCOL = re.compile(r"-(grpc|http)$")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of `record.csv`."""

    level: str
    component: str
    time_ns: int
    datetime: str
    reason: str

    @property
    def stated_ns(self) -> int | None:
        """The column `datetime`, read as the source's local time; None when it cannot be read."""
        try:
            moment = datetime.strptime(self.datetime.strip(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=LOCAL)
        except ValueError:
            return None
        return int(moment.timestamp()) * SECOND_NS


@dataclass(frozen=True, kw_only=True)
class System:
    """One system: a folder with records and telemetry."""

    root: Path
    app: str
    records: tuple[Record, ...]

    @property
    def has_pods(self) -> bool:
        """Whether components are pods of services; otherwise they are what they are called."""
        return self.app.startswith("market")

    def day_folders(self, start_ns: int, end_ns: int) -> list[Path]:
        """Return the folders of all local days that a window touches, those that are there."""
        first, last = (_local(moment).date() for moment in (start_ns, end_ns - 1))
        days = [first + timedelta(days=step) for step in range((last - first).days + 1)]
        folders = [self.root / "telemetry" / day.strftime("%Y_%m_%d") for day in days]
        return [folder for folder in folders if folder.is_dir()]

    def component_of(self, cmdb_id: str) -> str:
        """Return the candidate that an id stands for.

        Market's ids are pods, pods with their node, services with a protocol or a port, and nodes; a pod's
        candidate is its service.
        """
        if not self.has_pods:
            return cmdb_id
        parts = cmdb_id.split(".")
        name = parts[1] if len(parts) == 2 and parts[0].startswith("node-") else parts[0]
        if name.startswith("node-"):
            return name
        return _REPLICA.sub("", _PROTOCOL.sub("", name)) or name


def find_systems(root: Path) -> list[System]:
    """Return all systems below a folder, in order; DataError for records that cannot be read."""
    return [
        System(root=path.parent, app=_app(path.parent), records=_records(path))
        for path in sorted(root.rglob("record.csv"))
        if (path.parent / "telemetry").is_dir()
    ]


def slots(system: System) -> Iterator[tuple[int, tuple[Record, ...]]]:
    """Yield each half hour with records, by its start, with the records in order of time."""
    grouped: dict[int, list[Record]] = {}
    for record in system.records:
        grouped.setdefault(record.time_ns // SLOT_NS * SLOT_NS, []).append(record)
    for start in sorted(grouped):
        yield start, tuple(sorted(grouped[start], key=lambda record: (record.time_ns, record.component)))


def slot_name(start_ns: int) -> str:
    """Return a half hour in the source's local time.

    Examples
    --------
    >>> slot_name(1614841200000000000)
    '2021-03-04T15:00'
    """
    return _local(start_ns).strftime("%Y-%m-%dT%H:%M")


def label_of(system: System, records: Sequence[Record]) -> dict[str, Any]:
    """Return the fields of the label: level and reason in the source's own words."""
    targets = list(dict.fromkeys(system.component_of(record.component) for record in records))
    causes: list[Mapping[str, Any]] = [
        {
            "kind": record.level.capitalize(),
            "name": record.component,
            "service": system.component_of(record.component),
            "accepted": [system.component_of(record.component)],
        }
        for record in records
    ]
    return {
        "fault": " + ".join(sorted({record.reason for record in records})),
        "targets": targets,
        "root_causes": causes,
        "faults": [
            {
                "fault": record.reason,
                "target": system.component_of(record.component),
                "system_level": record.level,
                "fault_type": record.reason,
                "parameters": {},
                "inject_start": record.time_ns,
            }
            for record in records
        ],
        "system_level": " + ".join(sorted({record.level for record in records})),
        "fault_type": " + ".join(sorted({record.reason for record in records})),
        "inject_start": records[0].time_ns,
        "parameters": {
            "records": [
                {"component": r.component, "datetime": r.datetime, "level": r.level, "reason": r.reason}
                for r in records
            ]
        },
    }


def _local(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, tz=UTC).astimezone(LOCAL)


def _app(folder: Path) -> str:
    name = folder.name.lower()
    return f"market-{name}" if name.startswith("cloudbed") else name


def _records(path: Path) -> tuple[Record, ...]:
    import pandas as pd

    wanted = ["level", "component", "timestamp", "datetime", "reason"]
    try:
        table = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
        rows = table[table["timestamp"] != "timestamp"].drop_duplicates()
        times = epoch_ns(rows["timestamp"].astype(float).to_numpy())
        # Telecom's records have no level: all of them are of containers, hosts or databases.
        levels = rows["level"] if "level" in rows else ["component"] * len(rows)
        parts = zip(
            levels, times.tolist(), *(rows[name] for name in wanted if name not in ("level", "timestamp")), strict=True
        )
        return tuple(
            Record(level=level, component=component.strip(), time_ns=time, datetime=stated, reason=reason.strip())
            for level, time, component, stated, reason in parts
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a list of records ({error!r}); restore the file") from error
