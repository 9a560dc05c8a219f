"""The label of an episode: what really happened in it, one field for each column of `truth/label.parquet`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import ConfigDict, Field

from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.core.reading.documents import STRICT, checked, json_lines, parse_object
from faultset.core.reading.regular_files import read_regular
from faultset.core.times import SECOND_NS
from faultset.datasets.format.episodes import JOURNAL_FILE, table_file
from faultset.datasets.format.schemas import EVIDENCE, LABEL, LABEL_JSON_FIELDS, EpisodeId, Name, TimeNs
from faultset.datasets.format.storage import TRUTH_LIMITS, open_table, translate_damage

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class AlarmPlace:
    """The service whose metric raised an alarm; where a fault shows, which need not be where it is."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    service: Name
    """Service on which it was seen."""
    metric: Name | None = None
    """Stored name of the metric, or a pattern with `*` for several statistics of it; None where it is not known."""


NoFaultKind = Literal["plain", "disturbed", "sham", "unlabelled"]
Verdict = Literal["manifest", "latent", "silent", "unknown", "none"]
_Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """An object at fault."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Name
    """Kind of the object, for instance `Service`."""
    name: Name
    """Name of the object."""
    service: Name
    """Service that it belongs to; a localizer has to name this one."""
    accepted: tuple[Name, ...]
    """Names of services that are a right answer too."""
    metric: Name | None = None
    """The metric that shows the cause, where the source of the data names one."""


@dataclass(frozen=True, kw_only=True)
class LabelledInterval:
    """A time in which a fault acted."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    begin_ns: TimeNs
    """Its begin."""
    end_ns: TimeNs
    """Its end, half-open."""
    first_intensity: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of the fault's full strength at the begin."""
    last_intensity: Annotated[float, Field(ge=0.0, le=1.0)]
    """The same at the end; in between it is linear."""


@dataclass(frozen=True, kw_only=True)
class LabelledFault:
    """One of the faults of an episode."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    fault: Name
    """Name of the fault."""
    target: Name
    """Service that it was applied to."""
    system_level: Name | None = None
    """Where the fault is, in the words of the AIOpsLab paper."""
    fault_type: Name | None = None
    """What kind of fault it is, in the words of the AIOpsLab paper."""
    paper_number: _Whole | None = None
    """Row of Table 2 in the AIOpsLab paper."""
    category: Name | None = None
    """functional or symptomatic."""
    parameters: Mapping[str, Any]
    """Its seeded parameters."""
    inject_start_ns: TimeNs | None = None
    """Just before its first change."""
    inject_done_ns: TimeNs | None = None
    """All its changes are made."""
    effective_ns: TimeNs | None = None
    """First confirmed sign of it."""
    intervals: tuple[LabelledInterval, ...] = ()
    """When it acted, and how strongly; between them it did not. Empty where that is not recorded."""

    @property
    def is_delayed(self) -> bool:
        """Whether it began to act some time after its injection."""
        done_ns = self.inject_done_ns
        return bool(self.intervals) and done_ns is not None and self.intervals[0].begin_ns > done_ns


@dataclass(frozen=True, kw_only=True)
class Label:
    """What really happened in an episode. Times are UTC nanoseconds; what never happened is None."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    episode: EpisodeId
    """Id of the episode."""
    fault: Name | None
    """Name of the fault, of several joined by " + "; None in a no-fault episode."""
    no_fault_kind: NoFaultKind | None
    """plain, disturbed or sham; None in a fault episode."""
    targets: tuple[Name, ...]
    """Services that the fault was applied to."""
    root_causes: tuple[RootCause, ...]
    """Objects at fault; empty in a no-fault episode."""
    system_level: Name | None
    """Where the fault is, in the words of the AIOpsLab paper, as "Virtualization"; several joined by " + "."""
    fault_type: Name | None
    """What kind of fault it is, in the words of the AIOpsLab paper, as "Misconfiguration"; several joined."""
    paper_number: _Whole | None
    """Row of Table 2 in the AIOpsLab paper."""
    category: Name | None
    """functional or symptomatic."""
    parameters: Mapping[str, Any]
    """Seeded parameters of the fault, of several by target, or of a harmless change instead of one."""
    inject_start_ns: TimeNs | None
    """Onset: just before the first change."""
    inject_done_ns: TimeNs | None
    """All changes are made."""
    effective_ns: TimeNs | None
    """First confirmed sign of the fault; of several, of the last that was confirmed."""
    recover_start_ns: TimeNs | None
    """Just before the first change is undone."""
    recover_done_ns: TimeNs | None
    """All changes are undone."""
    healthy_again_ns: TimeNs | None
    """The application passes its health checks again."""
    view_start_ns: TimeNs
    """Beginning of the view."""
    view_end_ns: TimeNs
    """End of the view, half-open."""
    reference_end_ns: TimeNs
    """End of the window that is known to be healthy."""
    verdict: Verdict
    """manifest, latent, silent or unknown; none where no fault was injected."""
    first_manifest_ns: TimeNs | None
    """First second in which clients felt the fault."""
    profile: Name
    """Lengths of the phases: quick, standard or custom."""
    workload: Mapping[str, Any]
    """Rate and mix of the load."""
    seed: _Whole
    """What everything random in the episode follows from."""
    host: Mapping[str, Any]
    """Load of the host while the episode ran."""
    clock_offsets: Mapping[Name, _Whole]
    """Offset of each source's clock in nanoseconds."""
    faults: tuple[LabelledFault, ...] = ()
    """Every fault by itself; empty without one, and where the source does not tell them apart."""

    def __repr__(self) -> str:
        onset_s = self.seconds_into_view(self.onset_ns)
        what = self._what if self.fault is None else f"{self._what}, {self.verdict}"
        when = "" if onset_s is None else f"onset {onset_s:.1f} s into "
        return f"<Label {self.episode}: {what}, {when}a view of {self.seconds_into_view(self.view_end_ns):.1f} s>"

    def __str__(self) -> str:
        """Return a short table, times as seconds since the view began."""
        causes = (f"{cause.kind} {cause.name}, service {cause.service}" for cause in self.root_causes)
        rows = {
            "episode": self.episode,
            "what": self._what,
            "verdict": self.verdict,
            "root cause": "; ".join(causes),
            "level, type": ", ".join(filter(None, (self.system_level, self.fault_type))),
            "healthy until": self.reference_end_ns,
            "onset": self.onset_ns,
            "felt by clients": self.first_manifest_ns,
            "undone": self.recover_start_ns,
            "healthy again": self.healthy_again_ns,
            "end": self.view_end_ns,
            "parameters": printable(", ".join(f"{name}={value}" for name, value in self.parameters.items())),
        }
        width = max(map(len, rows)) + 2
        return "\n".join(
            f"{name:{width}}{value if isinstance(value, str) else f'{self.seconds_into_view(value):.1f} s'}"
            for name, value in rows.items()
            if value not in (None, "")
        )

    @property
    def _what(self) -> str:
        if self.fault is None:
            return f"no fault ({self.no_fault_kind})"
        return joined(" on ".join((name, ", ".join(targets))) for name, *targets in self.problems)

    def seconds_into_view(self, time_ns: int | None) -> float | None:
        """Return a time as seconds since the view began; None for None."""
        return None if time_ns is None else (time_ns - self.view_start_ns) / SECOND_NS

    @property
    def is_faulty(self) -> bool:
        """Whether a fault was injected."""
        return self.fault is not None

    @property
    def onset_ns(self) -> int | None:
        """When the first fault began to act: at its injection, or after it where all of them were delayed."""
        begins = [one.intervals[0].begin_ns for one in self.faults if one.is_delayed]
        if self.fault is not None and begins and len(begins) == len(self.faults):
            return min(begins)
        return None if self.fault is None else self.inject_start_ns

    @property
    def fault_names(self) -> tuple[str, ...]:
        """Name of every fault."""
        if self.faults:
            return tuple(one.fault for one in self.faults)
        return () if self.fault is None else (self.fault,)

    @property
    def problems(self) -> tuple[tuple[str, ...], ...]:
        """Name and target of every fault; one entry with all targets where the source does not tell them apart."""
        if self.faults:
            return tuple((one.fault, one.target) for one in self.faults)
        return () if self.fault is None else ((self.fault, *sorted(self.targets)),)

    @property
    def alarm_place(self) -> AlarmPlace | None:
        """Where the source of the data says that the alarm was seen: the parameter `alarm`; None where it does not.

        Raises
        ------
        DataError
            The parameter is there and is no place.
        """
        given = self.parameters.get("alarm")
        return None if given is None else checked(given, AlarmPlace, f"the parameter alarm of {self.episode}")

    @classmethod
    def from_row(cls, row: Mapping[str, Any], *, origin: str) -> Label:
        """Make a label of a row of the table: times as integers under the columns' names, JSON fields decoded.

        Raises
        ------
        DataError
            A field is not what it must be; `origin` names the file.
        """
        fields = _with_suffix(row, LABEL_TIMES)
        fields["faults"] = [_fault_fields(one) for one in row["faults"] or ()]
        for cause in row["root_causes"] or ():
            if isinstance(cause, dict) and cause.get("accepted") is None:
                cause["accepted"] = []
        return checked(fields, cls, origin)

    def as_row(self) -> dict[str, Any]:
        """Return the label under the names of the table's columns, as `EpisodeWriter.write_truth` takes it."""
        row = _without_suffix(asdict(self), LABEL_TIMES)
        row["faults"] = [_fault_row(one) for one in row["faults"]] or None
        return row


def joined(names: Iterable[str]) -> str:
    """Return names of several faults, levels or types as one, each once.

    >>> joined(["Application", "Operating System", "Application"])
    'Application + Operating System'
    """
    return " + ".join(dict.fromkeys(names))


def _fault_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    intervals = [_with_suffix(one, INTERVAL_TIMES) for one in row["intervals"] or ()]
    return _with_suffix(row, FAULT_TIMES) | {"intervals": intervals}


def _fault_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    intervals = [_without_suffix(one, INTERVAL_TIMES) for one in fields["intervals"]]
    return _without_suffix(fields, FAULT_TIMES) | {"intervals": intervals or None}


def _with_suffix(row: Mapping[str, Any], times: frozenset[str]) -> dict[str, Any]:
    return {name + "_ns" if name in times else name: value for name, value in row.items()}


def _without_suffix(fields: Mapping[str, Any], times: frozenset[str]) -> dict[str, Any]:
    return {name.removesuffix("_ns") if name[:-3] in times else name: value for name, value in fields.items()}


def _times_of(kind: type) -> frozenset[str]:
    return frozenset(name.removesuffix("_ns") for name in kind.__annotations__ if name.endswith("_ns"))


LABEL_TIMES = _times_of(Label)
"""Columns of the table that are times; their fields end in `_ns`."""
FAULT_TIMES = _times_of(LabelledFault)
"""The same of every fault in it."""
INTERVAL_TIMES = _times_of(LabelledInterval)
"""The same of its intervals."""


def read_label(episode_path: Path | str) -> Label:
    """Return what really happened in an episode; raise DataError when the file is missing or damaged."""
    path = Path(episode_path) / table_file("label")
    with open_table(path, "label", LABEL) as file, translate_damage(path):
        rows = file.metadata.num_rows
        if rows != 1:
            raise DataError(f"{path} must have one row, it has {rows}; restore the file")
        table = file.read(use_threads=False)
        table.validate(full=True)
        row = {
            name: _with_numbers(column)[0].as_py()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    for name in LABEL_JSON_FIELDS:
        row[name] = parse_object(row[name] or "", f"field {name} of {path}")
    for fault in row.get("faults") or ():
        fault["parameters"] = parse_object(fault["parameters"] or "", f"parameters of a fault in {path}")
    return Label.from_row(row, origin=str(path))


def _with_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = _times_as_numbers(column.type)
    return column if kind is column.type or kind == column.type else column.cast(kind)


@lru_cache
def _times_as_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_times_as_numbers(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _times_as_numbers(field.type)) for field in kind])
    return kind


def read_evidence(episode_path: Path | str) -> pd.DataFrame:
    """Return the checks that were made on an episode and what they saw."""
    return evidence_table(episode_path).to_pandas()


def evidence_table(episode_path: Path | str) -> pa.Table:
    """Return the same as an Arrow table; raise DataError when the file is missing or damaged."""
    path = Path(episode_path) / table_file("evidence")
    with open_table(path, "evidence", EVIDENCE) as file, translate_damage(path):
        table = file.read(use_threads=False)
        table.validate(full=True)
    return table


def read_journal(episode_path: Path | str) -> list[dict[str, Any]]:
    """Return the records of what was done to the platform, in order; lines torn by a crash are left out."""
    path = Path(episode_path) / JOURNAL_FILE
    content = read_regular(path, limit_bytes=TRUTH_LIMITS.file_bytes, below=path.parents[1])
    return list(json_lines(content, str(path)))
