"""Facts about an episode or a recording that methods may use, without its telemetry."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import pyarrow as pa
from pydantic import ConfigDict, Field

from faultset.core.documents import LIMIT_BYTES, STRICT, check_type, parse_object
from faultset.core.errors import DataError
from faultset.core.printable import quoted
from faultset.core.regular_files import read_regular
from faultset.datasets.format.schemas import (
    LONGEST_VIEW_NS,
    SCHEMA_VERSION,
    TABLES,
    AddedTable,
    EpisodeId,
    IntervalS,
    Name,
    TimeNs,
)

CONTEXT_FILE = "context.json"
IMPORTED = "imported"
"""Platform of episodes imported from other data, whose platform is unknown."""


@dataclass(frozen=True, kw_only=True)
class SystemContext:
    """Facts about the system that an episode or a recording observes; content of its `context.json`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    app: Name
    """Name of the application."""
    platform: Name
    """Platform that it ran on."""
    source_intervals_s: Mapping[Name, IntervalS | None]
    """Sampling interval of each table in seconds; None for tables of events."""
    services: tuple[Name, ...]
    """All services; a faulty service is always one of them."""
    calls: tuple[tuple[Name, Name], ...]
    """Declared call graph as (caller, callee)."""
    workload_entry: Name
    """Service that receives the requests of clients."""
    metric_roles: tuple[Mapping[Name, Name], ...] = field(default=())
    """Roles of metrics that are missing in the built-in catalogue; see `faultset.datasets.metrics.roles`."""
    added_tables: tuple[AddedTable, ...] = field(default=())
    """Telemetry tables in addition to the standard ones."""
    workload: Mapping[Name, Any] = field(default_factory=dict[str, Any])
    """Load of the campaign: mix, mean rate, pattern, regions."""
    stores: Mapping[Name, Name] = field(default_factory=dict[str, str])
    """Server of each store; empty if all stores are Redis."""

    @property
    def app_title(self) -> str:
        """Name of the application, and whether it used original stores."""
        return f"{self.app}, original stores" if self.stores else self.app

    @property
    def sampling_step_s(self) -> float:
        """Sampling interval of metrics in seconds; 1 if it is unknown."""
        return self.source_intervals_s.get("metrics") or 1.0

    @property
    def tables(self) -> dict[str, pa.Schema]:
        """Schemas of the telemetry tables by name."""
        return TABLES | {added.name: added.schema for added in self.added_tables}

    def to_json(self) -> str:
        content: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        for entry in fields(self):
            content[entry.name] = getattr(self, entry.name)
        content["metric_roles"] = [dict(row) for row in self.metric_roles]
        content["added_tables"] = [asdict(added) for added in self.added_tables]
        for name in ("source_intervals_s", "workload", "stores"):
            content[name] = dict(content[name])
        return json.dumps(content, indent=2, sort_keys=True, default=asdict) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str, *, origin: str = CONTEXT_FILE) -> Self:
        """Parse the text of `context.json`; `origin` names it in errors."""
        content = parse_object(text, origin)
        check_schema_version(content.pop("schema_version", None), origin)
        return check_type(content, cls, origin)


@dataclass(frozen=True, kw_only=True)
class EpisodeContext(SystemContext):
    """The content of an episode's `context.json`.

    Times are UTC nanoseconds and windows are half-open: the view is `[view_start_ns, view_end_ns)`, and its healthy
    reference is `[view_start_ns, reference_end_ns)`.
    """

    episode: EpisodeId
    """Opaque id."""
    view_start_ns: TimeNs
    """Start of the view."""
    view_end_ns: TimeNs
    """End of the view."""
    reference_end_ns: TimeNs
    """End of the healthy reference."""
    reference_moved_ns: Annotated[int, Field(gt=-(1 << 62), lt=1 << 62)] = 0
    """Time shift of the reference's telemetry; subtract it to get the original time stamps."""

    def __post_init__(self) -> None:
        if not self.view_start_ns < self.reference_end_ns <= self.view_end_ns:
            raise DataError(
                f"episode {self.episode}: the reference must end inside the view "
                f"[{self.view_start_ns}, {self.view_end_ns}), but ends at {self.reference_end_ns}"
            )
        if self.view_end_ns - self.view_start_ns > LONGEST_VIEW_NS:
            raise DataError(
                f"episode {self.episode}: the view must be at most {LONGEST_VIEW_NS // 86_400_000_000_000} days long, "
                f"but is {(self.view_end_ns - self.view_start_ns) / 86_400e9:.0f}"
            )

    @property
    def resolution_s(self) -> float:
        """Step in seconds to which methods resample metrics."""
        return resolution_s(self.sampling_step_s, (self.reference_end_ns - self.view_start_ns) / 1e9)


TraceShare = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling of traces and log lines; the scrape interval is in `source_intervals_s`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    traces: TraceShare = 1.0
    """Share of the ordinary traces that is kept, chosen by their ids."""
    slow_traces_s: Annotated[float, Field(gt=0)] | None = None
    """Keep all traces of at least this duration and all with an error; if None, they are sampled like all others."""
    log_levels: tuple[Name, ...] = ()
    """Levels of the log lines that are kept; empty for all."""

    def samples(self, trace_id: str) -> bool:
        """Return whether a trace is in the sample; the collector also keeps slow and failed traces."""
        # the last digits, because some tracers put the time into the first
        return int(trace_id[-8:] or "0", 16) < self.traces * 16**8

    def __str__(self) -> str:
        """Describe the settings in one sentence."""
        traces = "all traces" if self.traces >= 1 else f"{self.traces:.0%} of the traces"
        if self.traces < 1 and self.slow_traces_s is not None:
            traces += f" and all with an error or of at least {self.slow_traces_s:g} s"
        logs = f"log lines of the levels {', '.join(self.log_levels)}" if self.log_levels else "all log lines"
        return f"{traces}; {logs}"


@dataclass(frozen=True, kw_only=True)
class RecordingContext(SystemContext):
    """The content of a recording's `context.json`; its chunks say when it was recorded."""

    recording: EpisodeId
    """Opaque id."""
    sampling: Sampling = field(default_factory=Sampling)
    """Sampling of traces and log lines."""

    def of_episode(self, episode: str, *, start_ns: int, end_ns: int, reference_end_ns: int) -> EpisodeContext:
        """Return the context of an episode that is cut from the recording."""
        shared = {entry.name: getattr(self, entry.name) for entry in fields(SystemContext)}
        return EpisodeContext(
            episode=episode,
            view_start_ns=start_ns,
            view_end_ns=end_ns,
            reference_end_ns=reference_end_ns,
            **shared,
        )


def resolution_s(step_s: float, reference_s: float) -> float:
    """Return the smallest multiple of the sampling step with at most 60 samples in the reference.

    >>> resolution_s(1, 36), resolution_s(1, 144), resolution_s(5, 240), resolution_s(15, 600)
    (1, 3, 5, 15)
    """
    return step_s * max(1, math.ceil(round(reference_s / 60 / step_s, 6)))


def read_context(episode_path: Path) -> EpisodeContext:
    """Read `context.json` of an episode folder."""
    path = Path(episode_path) / CONTEXT_FILE
    if not path.is_symlink() and not path.exists():
        raise DataError(
            f"{episode_path} is not an episode: it has no {CONTEXT_FILE}; give a folder under DATASET/episodes"
        )
    return EpisodeContext.from_json(read_regular(path, limit_bytes=LIMIT_BYTES), origin=str(path))


def read_recording_context(recording_path: Path) -> RecordingContext:
    """Read `context.json` of a recording's folder; raise DataError if it is missing or damaged."""
    path = Path(recording_path) / CONTEXT_FILE
    return RecordingContext.from_json(read_regular(path, limit_bytes=LIMIT_BYTES), origin=str(path))


def check_schema_version(version: object, origin: str) -> None:
    """Raise DataError unless this release uses the same schema version."""
    if type(version) is int and version == SCHEMA_VERSION:
        return
    raise DataError(
        f"{origin} must have schema version {SCHEMA_VERSION}, but has {quoted(version)}; read it with the release that "
        "wrote it, or collect it again"
    )
