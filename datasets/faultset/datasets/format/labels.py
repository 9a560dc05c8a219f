"""The label of an episode, its ground truth: one field per column of `truth/label.parquet`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import ConfigDict, Field

from faultset.core.documents import STRICT, check_type, json_lines, parse_object
from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.core.regular_files import read_regular
from faultset.core.times import SECOND_NS
from faultset.datasets.format.episodes import JOURNAL_FILE, table_file
from faultset.datasets.format.schemas import EVIDENCE, LABEL, LABEL_JSON_FIELDS, EpisodeId, Name, TimeNs
from faultset.datasets.format.storage import TRUTH_LIMITS, open_table, translate_damage

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class AlarmLocation:
    """The service whose metric raised an alarm, which need not be the faulty one."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    service: Name
    """Service of the metric."""
    metric: Name | None = None
    """Stored name of the metric, or a pattern with `*` for several of its statistics; None if unknown."""


NoFaultKind = Literal["plain", "disturbed", "sham", "unlabelled"]
UNLABELLED: NoFaultKind = "unlabelled"
"""It is unknown whether there was a fault."""
Verdict = Literal["manifest", "latent", "silent", "unknown", "none"]
_Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """A faulty object."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Name
    """Kind of the object, for instance `Service`."""
    name: Name
    """Name of the object."""
    service: Name
    """Service that it belongs to: the correct answer of a localizer."""
    accepted: tuple[Name, ...]
    """Further services that are accepted as answers."""
    metric: Name | None = None
    """The metric that shows the cause, if the source of the data names it."""


@dataclass(frozen=True, kw_only=True)
class LabelledInterval:
    """A time interval in which a fault acted."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    begin_ns: TimeNs
    """Start."""
    end_ns: TimeNs
    """End, exclusive."""
    first_intensity: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of the fault's full strength at the start."""
    last_intensity: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share at the end; linear in between."""


@dataclass(frozen=True, kw_only=True)
class LabelledFault:
    """One of the faults of an episode."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    fault: Name
    """Name of the fault."""
    target: Name
    """Service that it was applied to."""
    system_level: Name | None = None
    """System level of the AIOpsLab paper."""
    fault_type: Name | None = None
    """Fault type of the AIOpsLab paper."""
    paper_number: _Whole | None = None
    """Row of Table 2 in the AIOpsLab paper."""
    category: Name | None = None
    """functional or symptomatic."""
    parameters: Mapping[str, Any]
    """Its seeded parameters."""
    inject_start_ns: TimeNs | None = None
    """Time just before the first change of its injection."""
    inject_done_ns: TimeNs | None = None
    """Time when all changes of its injection were complete."""
    effective_ns: TimeNs | None = None
    """Time of its first confirmed effect."""
    intervals: tuple[LabelledInterval, ...] = ()
    """Times when it acted, with its intensity; empty if they were not recorded."""

    @property
    def is_delayed(self) -> bool:
        """Whether it started to act only after its injection was complete."""
        done_ns = self.inject_done_ns
        return bool(self.intervals) and done_ns is not None and self.intervals[0].begin_ns > done_ns


@dataclass(frozen=True, kw_only=True)
class GroundTruth:
    """A fault with its effects and its end: the common fields of episode labels and incidents of recordings.

    Times are UTC nanoseconds, or None for events that did not happen.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    episode: EpisodeId
    """Id of the episode or recording."""
    fault: Name | None
    """Name of the fault, several joined by " + "; None in a no-fault episode."""
    targets: tuple[Name, ...]
    """Services that the fault was applied to."""
    root_causes: tuple[RootCause, ...]
    """Faulty objects; empty in a no-fault episode."""
    system_level: Name | None
    """System level of the AIOpsLab paper, for instance "Virtualization"; several joined by " + "."""
    fault_type: Name | None
    """Fault type of the AIOpsLab paper, for instance "Misconfiguration"; several joined by " + "."""
    paper_number: _Whole | None
    """Row of Table 2 in the AIOpsLab paper."""
    category: Name | None
    """functional or symptomatic."""
    parameters: Mapping[str, Any]
    """Seeded parameters of the fault (by target if several) or of the harmless change."""
    inject_start_ns: TimeNs | None
    """Time just before the first change of the injection."""
    inject_done_ns: TimeNs | None
    """Time when all changes of the injection were complete."""
    effective_ns: TimeNs | None
    """Time of the first confirmed effect; with several faults, the latest one."""
    recover_start_ns: TimeNs | None
    """Time just before the first change was undone."""
    recover_done_ns: TimeNs | None
    """Time when all changes were undone."""
    healthy_again_ns: TimeNs | None
    """Time when the application passed its health checks again."""
    verdict: Verdict
    """manifest, latent, silent or unknown; none without a fault."""
    first_manifest_ns: TimeNs | None
    """First second in which clients noticed the fault."""
    seed: _Whole
    """Seed of everything random in the episode or incident."""
    faults: tuple[LabelledFault, ...] = ()
    """Each fault; empty if there are none or if the source does not distinguish them."""

    @property
    def is_faulty(self) -> bool:
        """Whether a fault was injected."""
        return self.fault is not None

    @property
    def onset_ns(self) -> int | None:
        """Time when the first fault started to act: at its injection, or later if all faults were delayed."""
        delayed_ns = [fault.intervals[0].begin_ns for fault in self.faults if fault.is_delayed]
        if self.fault is not None and delayed_ns and len(delayed_ns) == len(self.faults):
            return min(delayed_ns)
        return None if self.fault is None else self.inject_start_ns

    @property
    def fault_names(self) -> tuple[str, ...]:
        """Names of the faults."""
        if self.faults:
            return tuple(fault.fault for fault in self.faults)
        return () if self.fault is None else (self.fault,)

    @property
    def problems(self) -> tuple[tuple[str, ...], ...]:
        """Name and target of each fault; one entry with all targets if the source does not distinguish them."""
        if self.faults:
            return tuple((fault.fault, fault.target) for fault in self.faults)
        return () if self.fault is None else ((self.fault, *sorted(self.targets)),)

    def as_row(self) -> dict[str, Any]:
        """Return the fields as a row of the table, with times as integers."""
        row = _remove_suffix(asdict(self), TRUTH_TIMES)
        row["faults"] = [_fault_row(fault) for fault in row["faults"]] or None
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any], *, origin: str) -> Self:
        """Convert a row of the table, with times as integers and decoded JSON fields."""
        fields = _add_suffix(row, TRUTH_TIMES)
        fields["faults"] = [_fault_fields(fault) for fault in row["faults"] or ()]
        for cause in row["root_causes"] or ():
            if isinstance(cause, dict) and cause.get("accepted") is None:
                cause["accepted"] = []
        return check_type(fields, cls, origin)


@dataclass(frozen=True, kw_only=True)
class Label(GroundTruth):
    """Ground truth of an episode. Times are UTC nanoseconds, or None for events that did not happen."""

    no_fault_kind: NoFaultKind | None
    """plain, disturbed, sham or unlabelled; None in a fault episode."""
    view_start_ns: TimeNs
    """Start of the view."""
    view_end_ns: TimeNs
    """End of the view, exclusive."""
    reference_end_ns: TimeNs
    """End of the healthy reference."""
    profile: Name
    """Lengths of the phases: quick, standard, long or custom; `imported` or `cut` for episodes without phases."""
    workload: Mapping[str, Any]
    """Rate and mix of the load."""
    host: Mapping[str, Any]
    """Load of the host while the episode ran."""
    clock_offsets: Mapping[Name, _Whole]
    """Offset of each source's clock in nanoseconds."""

    def __repr__(self) -> str:
        onset_s = self.seconds_into_view(self.onset_ns)
        summary = self._description if self.fault is None else f"{self._description}, {self.verdict}"
        when = "" if onset_s is None else f"onset {onset_s:.1f} s into "
        return f"<Label {self.episode}: {summary}, {when}a view of {self.seconds_into_view(self.view_end_ns):.1f} s>"

    def __str__(self) -> str:
        """Return a short table with times in seconds since the start of the view."""
        causes = (f"{cause.kind} {cause.name}, service {cause.service}" for cause in self.root_causes)
        rows = {
            "episode": self.episode,
            "what": self._description,
            "verdict": self.verdict,
            "root cause": "; ".join(causes),
            "level, type": ", ".join(filter(None, (self.system_level, self.fault_type))),
            "healthy until": self.reference_end_ns,
            "onset": self.onset_ns,
            "noticed by clients": self.first_manifest_ns,
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
    def _description(self) -> str:
        if self.fault is None:
            return f"no fault ({self.no_fault_kind})"
        return join_distinct(" on ".join((name, ", ".join(targets))) for name, *targets in self.problems)

    def seconds_into_view(self, time_ns: int | None) -> float | None:
        """Return a time in seconds since the start of the view; None if it is None."""
        return None if time_ns is None else (time_ns - self.view_start_ns) / SECOND_NS

    @property
    def alarm_location(self) -> AlarmLocation | None:
        """Service and metric of the alarm, from the parameter `alarm`; None if the source does not name it.

        Raises
        ------
        DataError
            The parameter is malformed.
        """
        alarm = self.parameters.get("alarm")
        return None if alarm is None else check_type(alarm, AlarmLocation, f"the parameter alarm of {self.episode}")


def join_distinct(names: Iterable[str]) -> str:
    """Join the distinct names of faults, levels or types.

    >>> join_distinct(["Application", "Operating System", "Application"])
    'Application + Operating System'
    """
    return " + ".join(dict.fromkeys(names))


def _fault_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    intervals = [_add_suffix(interval, INTERVAL_TIMES) for interval in row["intervals"] or ()]
    return _add_suffix(row, FAULT_TIMES) | {"intervals": intervals}


def _fault_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    intervals = [_remove_suffix(interval, INTERVAL_TIMES) for interval in fields["intervals"]]
    return _remove_suffix(fields, FAULT_TIMES) | {"intervals": intervals or None}


def _add_suffix(row: Mapping[str, Any], times: frozenset[str]) -> dict[str, Any]:
    return {name + "_ns" if name in times else name: value for name, value in row.items()}


def _remove_suffix(fields: Mapping[str, Any], times: frozenset[str]) -> dict[str, Any]:
    return {name.removesuffix("_ns") if name[:-3] in times else name: value for name, value in fields.items()}


def _times_of(*kinds: type) -> frozenset[str]:
    names = [name for kind in kinds for name in kind.__annotations__]
    return frozenset(name.removesuffix("_ns") for name in names if name.endswith("_ns"))


TRUTH_TIMES = _times_of(GroundTruth, Label)
"""Time columns of labels and incidents; their fields end in `_ns`."""
FAULT_TIMES = _times_of(LabelledFault)
"""Time columns of a label's faults."""
INTERVAL_TIMES = _times_of(LabelledInterval)
"""Time columns of the intervals of a fault."""


def read_label(episode_path: Path | str) -> Label:
    """Read the label of an episode; raise DataError if the file is missing or damaged."""
    path = Path(episode_path) / table_file("label")
    rows = decoded_rows(path, "label", LABEL, LABEL_JSON_FIELDS)
    if len(rows) != 1:
        raise DataError(f"{path} must have one row, but has {len(rows)}; restore the file")
    return Label.from_row(rows[0], origin=str(path))


def decoded_rows(path: Path, table: str, schema: pa.Schema, json_fields: Collection[str]) -> list[dict[str, Any]]:
    """Read a truth table as rows with times as integers and decoded JSON."""
    with open_table(path, table, schema) as file, translate_damage(path):
        content = file.read(use_threads=False)
        content.validate(full=True)
        columns = [_convert_times(column).to_pylist() for column in content.columns]
    rows = [dict(zip(content.column_names, values, strict=True)) for values in zip(*columns, strict=True)]
    for row in rows:
        for name in json_fields:
            row[name] = parse_object(row[name] or "", f"field {name} of {path}")
        for fault in row.get("faults") or ():
            fault["parameters"] = parse_object(fault["parameters"] or "", f"parameters of a fault in {path}")
    return rows


def _convert_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = _replace_time_types(column.type)
    return column if kind is column.type or kind == column.type else column.cast(kind)


@lru_cache
def _replace_time_types(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_replace_time_types(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _replace_time_types(field.type)) for field in kind])
    return kind


def read_evidence(episode_path: Path | str) -> pd.DataFrame:
    """Read the checks of an episode and their results."""
    return evidence_table(episode_path).to_pandas()


def evidence_table(episode_path: Path | str) -> pa.Table:
    """Read the checks of an episode as an Arrow table; raise DataError if the file is missing or damaged."""
    path = Path(episode_path) / table_file("evidence")
    with open_table(path, "evidence", EVIDENCE) as file, translate_damage(path):
        table = file.read(use_threads=False)
        table.validate(full=True)
    return table


def read_journal(episode_path: Path | str) -> list[dict[str, Any]]:
    """Return the recorded changes to the platform in order; lines that a crash truncated are skipped."""
    path = Path(episode_path) / JOURNAL_FILE
    content = read_regular(path, limit_bytes=TRUTH_LIMITS.file_bytes, below=path.parents[1])
    return list(json_lines(content, str(path)))
