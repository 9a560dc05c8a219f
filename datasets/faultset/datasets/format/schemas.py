"""Parquet schemas of an episode's tables: field names, types, units, order.

The first column is `episode`. Times are UTC nanoseconds; windows are half-open. `service` is the workload that owns the
pod; null if there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import pyarrow as pa
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from faultset.core.documents import STRICT
from faultset.core.errors import DataError
from faultset.core.printable import quoted

_EPISODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
_MAX_NAME_LENGTH = 1000
_DAY_NS = 86_400 * 1_000_000_000
LONGEST_VIEW_NS = 31 * _DAY_NS


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable text")
    return text


Name = Annotated[str, StringConstraints(max_length=_MAX_NAME_LENGTH), AfterValidator(_check_printable)]
"""Printable text of at most 1,000 characters."""
EpisodeId = Annotated[str, StringConstraints(pattern=f"^{_EPISODE_ID.pattern}$")]
"""An opaque id and folder name: letters, digits and `-`."""
VersionName = Annotated[str, StringConstraints(pattern=r"^(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})$")]
EpisodeFile = Annotated[
    str,
    StringConstraints(
        pattern=r"^(context\.json|telemetry/[a-z][a-z0-9_]{0,39}\.parquet|truth/[a-z]+\.(parquet|jsonl))$"
    ),
]
"""Path of a file below its episode's folder."""
RecordingFile = Annotated[
    str,
    StringConstraints(
        pattern=r"^(context\.json|chunks/\d{4}/(chunk\.json|telemetry/[a-z][a-z0-9_]{0,39}\.parquet"
        r"|truth/[a-z]+\.(parquet|jsonl)))$"
    ),
]
"""Path of a file below its recording's folder."""
TimeNs = Annotated[int, Field(ge=0, lt=1 << 62)]
"""Nanoseconds since 1970."""
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
IntervalS = Annotated[float, Field(ge=0.001, le=LONGEST_VIEW_NS / 1e9)]
"""Sampling interval in seconds."""


def is_episode_id(text: str) -> bool:
    return _EPISODE_ID.fullmatch(text) is not None


def check_episode_id(text: str) -> None:
    """Raise DataError unless a text is a valid episode id."""
    if not is_episode_id(text):
        raise DataError(f'episode id {quoted(text)} must be at most 100 letters, digits and "-"; choose another')


SCHEMA_VERSION = 1
"""Version of the layout of files and tables; readers refuse others."""

TIME = pa.timestamp("ns", tz="UTC")
NAME = pa.dictionary(pa.int32(), pa.string())


def _field(name: str, kind: pa.DataType, meaning: str, unit: str | None = None, nullable: bool = True) -> pa.Field:
    metadata = {"description": meaning} | ({"unit": unit} if unit else {})
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


_EPISODE = _field("episode", NAME, "opaque id of the episode or recording", nullable=False)

METRICS = pa.schema([
    _EPISODE,
    _field("time", TIME, "when the sample was taken, by the source's clock", nullable=False),
    _field("service", NAME, "workload that owns the pod; null for objects without one"),
    _field("pod", NAME, "pod name; null for cluster objects"),
    _field("container", NAME, "container name; null for pod-level series such as network counters"),
    _field("metric", NAME, "metric name as Prometheus stores it, unit suffix kept", nullable=False),
    _field("labels", NAME, "other labels as canonical JSON with sorted keys", nullable=False),
    _field("kind", NAME, "counter, gauge, or bucket/sum/count for parts of a histogram", nullable=False),
    _field("value", pa.float64(), "raw sample; counters are cumulative since their container started", nullable=False),
])  # fmt: skip

SPANS = pa.schema([
    _EPISODE,
    _field("time", TIME, "start of the span", nullable=False),
    _field("trace_id", pa.string(), "lower-case hex digits; 32 in collected data", nullable=False),
    _field("span_id", pa.string(), "lower-case hex digits; 16 in collected data", nullable=False),
    _field("parent_span_id", pa.string(), "null at the root of a trace"),
    _field("service", NAME, "workload that owns the pod that sent the span"),
    _field("reported_service", NAME, "service.name that the process reported", nullable=False),
    _field("peer_service", NAME, "called service or store of a client span"),
    _field("pod", NAME, "pod that sent the span"),
    _field("operation", NAME, "name of the span", nullable=False),
    _field("kind", NAME, "server, client, internal, producer or consumer", nullable=False),
    _field("duration_ns", pa.int64(), "end minus start", "ns", nullable=False),
    _field("status", NAME, "unset, ok or error, as the process set it", nullable=False),
    _field("status_code", pa.int32(), "HTTP or RPC status, if the span has one"),
    _field("attributes", pa.string(), "other attributes as canonical JSON", nullable=False),
])  # fmt: skip

LOGS = pa.schema([
    _EPISODE,
    _field("time", TIME, "when the container runtime read the line", nullable=False),
    _field("service", NAME, "workload that owns the pod"),
    _field("pod", NAME, "pod name", nullable=False),
    _field("container", NAME, "container name", nullable=False),
    _field("level", NAME, "trace, debug, info, warning, error, fatal; null if the line has none"),
    _field("message", pa.string(), "the line without its time stamp and level", nullable=False),
    _field("trace_id", pa.string(), "trace of the line, if the line states it"),
    _field("span_id", pa.string(), "span of the line, if the line states it"),
])  # fmt: skip

EVENTS = pa.schema([
    _EPISODE,
    _field("time", TIME, "when this occurrence was recorded", nullable=False),
    _field("type", NAME, "Normal or Warning", nullable=False),
    _field("reason", NAME, "Kubernetes event reason, for instance BackOff", nullable=False),
    _field("kind", NAME, "kind of the object it is about", nullable=False),
    _field("name", pa.string(), "name of the object it is about", nullable=False),
    _field("service", NAME, "workload that owns the object; null if there is none"),
    _field("message", pa.string(), "text of the event", nullable=False),
    _field("count", pa.int32(), "occurrences of this event so far", nullable=False),
])  # fmt: skip

OBJECTS = pa.schema([
    _EPISODE,
    _field("time", TIME, "when the state was observed: every 10 s and on change", nullable=False),
    _field("kind", NAME, "Deployment, Pod, Service, Endpoints, PersistentVolumeClaim, ...", nullable=False),
    _field("name", pa.string(), "object name", nullable=False),
    _field("service", NAME, "workload that owns the object; null if there is none"),
    _field("state", pa.string(), "fields that matter for diagnosis, as canonical JSON", nullable=False),
    _field("data", NAME, "texts of a ConfigMap by key, as canonical JSON; null for other kinds"),
])  # fmt: skip

REQUESTS = pa.schema([
    _EPISODE,
    _field("scheduled", TIME, "when the schedule of the load planned the request", nullable=False),
    _field("sent", TIME, "when the client began to send it; null if it was never sent"),
    _field("endpoint", NAME, "method and path of the request, for instance GET /hotels", nullable=False),
    _field("latency_ns", pa.int64(), "from scheduled to the end of the response; null if unfinished", "ns"),
    _field("status", pa.int32(), "HTTP status; null without a response"),
    _field("outcome", NAME, "ok, http_error, refused, timeout or unfinished", nullable=False),
])  # fmt: skip

TABLES: dict[str, pa.Schema] = {
    "metrics": METRICS,
    "spans": SPANS,
    "logs": LOGS,
    "events": EVENTS,
    "objects": OBJECTS,
    "requests": REQUESTS,
}


def time_column(table: str) -> str:
    return "scheduled" if table == "requests" else "time"


def without_episode(schema: pa.Schema) -> pa.Schema:
    """Return a table's schema without the `episode` column, which `EpisodeWriter` adds."""
    return schema.remove(schema.get_field_index("episode"))


_ROOT_CAUSE = pa.struct([
    pa.field("kind", pa.string()),
    pa.field("name", pa.string()),
    pa.field("service", pa.string()),
    pa.field("accepted", pa.list_(pa.string())),
    pa.field("metric", pa.string()),
])  # fmt: skip

_INTERVAL = pa.struct([
    pa.field("begin", TIME),
    pa.field("end", TIME),
    pa.field("first_intensity", pa.float64()),
    pa.field("last_intensity", pa.float64()),
])  # fmt: skip

_FAULT = pa.struct([
    pa.field("fault", pa.string()),
    pa.field("target", pa.string()),
    pa.field("system_level", pa.string()),
    pa.field("fault_type", pa.string()),
    pa.field("paper_number", pa.int32()),
    pa.field("category", pa.string()),
    pa.field("parameters", pa.string()),
    pa.field("inject_start", TIME),
    pa.field("inject_done", TIME),
    pa.field("effective", TIME),
    pa.field("intervals", pa.list_(_INTERVAL)),
])  # fmt: skip

LABEL = pa.schema([
    _field("episode", pa.string(), "opaque id of the episode or recording", nullable=False),
    _field("fault", pa.string(), "name of the fault, several joined by ' + '; null in a no-fault episode"),
    _field("no_fault_kind", pa.string(), "plain, disturbed or sham; null in a fault episode"),
    _field("targets", pa.list_(pa.string()), "services that the fault was applied to", nullable=False),
    _field("root_causes", pa.list_(_ROOT_CAUSE), "objects at fault, accepted names, metric if known", nullable=False),
    _field("system_level", pa.string(), "Hardware, Operating System, Virtualization or Application; several joined"),
    _field("fault_type", pa.string(), "the AIOpsLab fault type, several joined; null in a no-fault episode"),
    _field("paper_number", pa.int32(), "row of Table 2 in the AIOpsLab paper"),
    _field("category", pa.string(), "functional or symptomatic"),
    _field(
        "parameters",
        pa.string(),
        "parameters of the fault (by target if several) or of the harmless change",
        nullable=False,
    ),
    _field("inject_start", TIME, "when the first change of the injection began"),
    _field("inject_done", TIME, "when the platform had accepted the last change of the injection"),
    _field("effective", TIME, "first confirmed effect of the fault on an object, a process or client requests"),
    _field("recover_start", TIME, "when the first change of the undo began"),
    _field("recover_done", TIME, "when the platform had accepted the last change of the undo"),
    _field("healthy_again", TIME, "when the application passed its health checks after the undo"),
    _field("view_start", TIME, "start of the view", nullable=False),
    _field("view_end", TIME, "end of the view, half-open", nullable=False),
    _field("reference_end", TIME, "end of the healthy reference", nullable=False),
    _field("verdict", pa.string(), "manifest, latent, silent, unknown; none without a fault", nullable=False),
    _field("first_manifest", TIME, "first second in which tests of client requests detect the fault"),
    _field("profile", pa.string(), "lengths of the phases: quick, standard, long or custom", nullable=False),
    _field("workload", pa.string(), "mix, rate, load pattern and regions as canonical JSON", nullable=False),
    _field("seed", pa.int64(), "seed of the plan", nullable=False),
    _field("host", pa.string(), "host load, scheduling delay, parallel episodes as canonical JSON", nullable=False),
    _field("clock_offsets", pa.string(), "offset of the clock of each source in ns, as canonical JSON", nullable=False),
    _field("faults", pa.list_(_FAULT), "each fault; null if the source does not distinguish them"),
])  # fmt: skip

EVIDENCE = pa.schema([
    _field("episode", pa.string(), "opaque id of the episode or recording", nullable=False),
    _field(
        "check",
        pa.string(),
        "injection, recovery, sli, sli-before, latent, health, host, source, rollout, input, training",
        nullable=False,
    ),
    _field("subject", pa.string(), "checked object, endpoint or series", nullable=False),
    _field("time", TIME, "time of the observation; null for a whole window"),
    _field("passed", pa.bool_(), "whether the check passed", nullable=False),
    _field("statistic", pa.float64(), "measured effect"),
    _field("p_value", pa.float64(), "p-value of a statistical test"),
    _field("detail", pa.string(), "result in words", nullable=False),
])  # fmt: skip

LABEL_JSON_FIELDS = ("parameters", "workload", "host", "clock_offsets")
"""Fields of the label that hold canonical JSON; `parameters` of each of its faults also does."""

TRUTH_TABLES: dict[str, pa.Schema] = {"label": LABEL, "evidence": EVIDENCE}
"""Truth tables of an episode."""

_INCIDENT = _field("incident", pa.string(), "opaque id of the incident; null for checks of the recording")
_PARAMETERS = _field(
    "parameters", pa.string(), "parameters of the fault or of the decoy, as canonical JSON", nullable=False
)
_START = _field("start", TIME, "start of the interval", nullable=False)
_END = _field("end", TIME, "end of the interval, half-open", nullable=False)

INCIDENTS = pa.schema([
    EVIDENCE.field("episode"),
    _INCIDENT.with_nullable(False),
    _field("fault", pa.string(), "name of the fault, or anomaly in an imported series", nullable=False),
    *(LABEL.field(name) for name in ("targets", "root_causes", "system_level", "fault_type")),
    *(LABEL.field(name) for name in ("paper_number", "category")),
    _PARAMETERS,
    LABEL.field("inject_start").with_nullable(False),
    *(LABEL.field(name) for name in ("inject_done", "effective", "recover_start", "recover_done", "healthy_again")),
    _field("verdict", pa.string(), "manifest, latent, silent or unknown", nullable=False),
    *(LABEL.field(name) for name in ("first_manifest", "seed", "faults")),
])  # fmt: skip

RECORDING_EVIDENCE = EVIDENCE.insert(1, _INCIDENT)

DECOYS = pa.schema([
    EVIDENCE.field("episode"),
    _field("decoy", pa.string(), "kind of the harmless change", nullable=False),
    _field("service", pa.string(), "service that it changed"),
    _START,
    _END,
    _PARAMETERS,
])  # fmt: skip

LOAD = pa.schema([
    EVIDENCE.field("episode"),
    _START,
    _END,
    _field("planned_rps", pa.float64(), "mean rate of the schedule, in requests per second", "1/s"),
    _field("requests", pa.int64(), "requests that were due in the interval", nullable=False),
])  # fmt: skip

VOIDS = pa.schema([
    EVIDENCE.field("episode"),
    _START,
    _END,
    _field("reason", pa.string(), "host, fault, interrupted or unlabelled", nullable=False),
    _field("detail", pa.string(), "reason in words", nullable=False),
])  # fmt: skip

CHUNK_TRUTH_TABLES: dict[str, pa.Schema] = {
    "incidents": INCIDENTS,
    "evidence": RECORDING_EVIDENCE,
    "decoys": DECOYS,
    "load": LOAD,
    "voids": VOIDS,
}
"""Truth tables of a chunk of a recording."""
TRUTH_NAMES = frozenset(TRUTH_TABLES | CHUNK_TRUTH_TABLES)
"""Names of all truth tables."""


@lru_cache
def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the file: dictionaries in memory are stored as plain strings.

    Some readers do not support dictionary types; Parquet's dictionary encoding keeps the files small without them.
    """
    return pa.schema(
        [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in schema]
    )


def dictionary_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that are dictionaries (categories) in memory."""
    return [field.name for field in schema if pa.types.is_dictionary(field.type)]


ADDED_TYPES: dict[str, pa.DataType] = {
    "string": NAME,
    "text": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": TIME,
}
"""Types of a column of an added table; `string` has few distinct values, `text` many."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TIME = _field("time", TIME, "when the row was recorded", nullable=False)


@dataclass(frozen=True, kw_only=True)
class AddedColumn:
    """One column of an added table."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: Name
    type: Name
    """One of `ADDED_TYPES`."""
    meaning: Name
    unit: Name = ""
    """UCUM code, for instance s, By or 1; empty if the column is not a quantity."""
    nullable: bool = False


@dataclass(frozen=True, kw_only=True)
class AddedTable:
    """A telemetry table that a source adds to the standard ones; `columns` follow `episode` and `time`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: Name
    source: Name
    """Name of the source and its distribution."""
    meaning: Name
    columns: tuple[AddedColumn, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in {*TABLES, *TRUTH_NAMES}:
            raise DataError(
                f'"{self.name}" is not a valid name of an added table; use up to 40 characters from a-z, 0-9 and _, '
                f"starting with a letter, but none of {', '.join([*TABLES, *sorted(TRUTH_NAMES)])}"
            )
        if not self.columns:
            raise DataError(f"table {self.name} must have columns in addition to its time; declare them")
        seen = {"episode", "time"}
        for column in self.columns:
            if not _NAME.fullmatch(column.name) or column.name in seen:
                raise DataError(
                    f'"{column.name}" is not a valid new column of table {self.name}; use up to 40 characters from '
                    "a-z, 0-9 and _, starting with a letter, and each name once (episode and time already exist)"
                )
            if column.type not in ADDED_TYPES:
                raise DataError(
                    f'column {column.name} of table {self.name} has the unknown type "{column.type}"; choose one of '
                    f"{', '.join(ADDED_TYPES)}"
                )
            if not column.meaning.strip():
                raise DataError(f"column {column.name} of table {self.name} lacks a meaning; add one")
            seen.add(column.name)

    @property
    def schema(self) -> pa.Schema:
        """Fields, types and units, with `episode` and `time` first."""
        fields = [
            _field(column.name, ADDED_TYPES[column.type], column.meaning, column.unit or None, column.nullable)
            for column in self.columns
        ]
        return pa.schema([_EPISODE, _TIME, *fields])
