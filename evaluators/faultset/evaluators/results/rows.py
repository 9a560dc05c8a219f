"""Result rows: one per baseline, episode, protocol and seed, with the raw answer and the ground truth.

All reported numbers are computed from these rows, so a corrected metric needs no new run. A failed run is a row too.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from faultset.baselines.api.contract import Task
from faultset.core.errors import DataError
from faultset.core.files import parquet_path, replacing
from faultset.evaluators.results.stored_answers import StoredAnswer
from faultset.evaluators.results.truth import FaultTruth, Truth

Status = Literal[
    "ok", "invalid", "error", "timeout", "memory", "exit", "output", "no_alarm", "missing", "cannot", "no_answer",
    "unparsed", "step_limit", "token_limit", "cost_limit", "harness_error", "cheated"]  # fmt: skip
"""ok · invalid: not a valid answer · error: exception · timeout · memory · exit: its process ended · output: too much
output · no_alarm: not run, because the detector raised no alarm · missing: no answer to the episode · cannot: the
episode lacks the tables, or the healthy reference in them, that the method needs. The others belong to agents; see
docs/how-to/agents.md."""

Protocol = Literal["detected", "own", "oracle", "delayed", "evidence", "detected_evidence", "calibration"]
"""Input of a method. detected: the alarm of one named detector; own: the alarm of the detector that it was designed
for; oracle: the true onset; delayed: a time some seconds after the onset; evidence: the true onset, with a view that
ends some seconds later; detected_evidence: the detector's alarm, with a view that ends some seconds later; calibration:
a detector on a healthy training episode, for threshold policies."""

CANNOT: Status = "cannot"
NO_FAILURES: frozenset[Status] = frozenset({"ok", "no_alarm", CANNOT})
"""Statuses that are not failures of the method."""
TASKS: tuple[Task, ...] = get_args(Task)
PROTOCOLS: tuple[Protocol, ...] = ("detected", "oracle")
"""Protocols with tables, in display order."""
ROWS_VERSION = 1
"""Layout of stored rows; `read_rows` accepts only this one."""
_NAME = pa.dictionary(pa.int32(), pa.string())

RESULTS = pa.schema(
    [
        pa.field("baseline", _NAME, nullable=False),
        pa.field("kind", _NAME, nullable=False),
        pa.field("needs", pa.list_(pa.string()), nullable=False),
        pa.field("settings", _NAME, nullable=False),
        pa.field("dataset", _NAME, nullable=False),
        pa.field("version", _NAME, nullable=False),
        pa.field("split", _NAME, nullable=False),
        pa.field("fold", pa.int32(), nullable=False),
        pa.field("episode", _NAME, nullable=False),
        pa.field("task", _NAME, nullable=False),
        pa.field("protocol", _NAME, nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("status", _NAME, nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("given_alarm_ns", pa.int64()),
        pa.field("alarm_source", _NAME),
        pa.field("delay_s", pa.float64()),
        pa.field("evidence_s", pa.float64()),
        pa.field("alarm_ns", pa.int64()),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("ranking", pa.string(), nullable=False),
        pa.field("majority_label", pa.list_(pa.string())),
        pa.field("class_trained", pa.bool_()),
        pa.field("seconds", pa.float64()),
        pa.field("cpu_seconds", pa.float64()),
        pa.field("fit_seconds", pa.float64()),
        pa.field("peak_bytes", pa.int64()),
        pa.field("app", _NAME, nullable=False),
        pa.field("fault", _NAME),
        pa.field("no_fault_kind", _NAME),
        pa.field("targets", pa.list_(pa.string()), nullable=False),
        pa.field("causes", pa.list_(pa.list_(pa.string())), nullable=False),
        pa.field("candidates", pa.list_(pa.string()), nullable=False),
        pa.field("pod_causes", pa.list_(pa.string())),
        pa.field("metric_causes", pa.list_(pa.list_(pa.string()))),
        pa.field("calls", pa.list_(pa.list_(pa.string()))),
        pa.field("system_level", _NAME),
        pa.field("fault_type", _NAME),
        pa.field("faults", pa.list_(pa.list_(pa.string()))),
        pa.field("pauses", pa.list_(pa.list_(pa.int64()))),
        pa.field("verdict", _NAME, nullable=False),
        pa.field("profile", _NAME, nullable=False),
        pa.field("view_start_ns", pa.int64(), nullable=False),
        pa.field("view_end_ns", pa.int64(), nullable=False),
        pa.field("reference_end_ns", pa.int64(), nullable=False),
        pa.field("onset_ns", pa.int64()),
        pa.field("manifest_ns", pa.int64()),
        pa.field("code", _NAME, nullable=False),
        pa.field("method_code", _NAME, nullable=False),
        pa.field("libraries", _NAME, nullable=False),
    ],
    metadata={"faultset.rows": str(ROWS_VERSION)},
)


Key = tuple[str, str, str, str, str, str, str, float, int, int, str]


def amount_of(delay_s: float | None, evidence_s: float | None) -> float:
    """Return the delay or evidence budget in seconds, which distinguishes rows of one protocol; -1 for neither."""
    return next((value for value in (delay_s, evidence_s) if value is not None), -1.0)


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One answer, or why there is none."""

    baseline: str
    """Name of the method."""
    kind: str
    """Kind of the method; see `BaselineSpec.kind`."""
    needs: tuple[str, ...]
    """Inputs of the method beyond telemetry."""
    settings: str
    """Hash of the settings that affect answers."""
    dataset: str
    """Name of the dataset."""
    version: str
    """Version of the dataset."""
    split: str
    """Split or cross-validation scheme."""
    fold: int
    """Fold in which the episode was tested."""
    task: str
    """detection, localization or rca."""
    protocol: str
    """Input of the method; see `Protocol`."""
    seed: int
    """Seed of a stochastic method; 0 otherwise."""
    status: Status
    """"ok", or why there is no answer."""
    reason: str = ""
    """Details of the status; empty if it is "ok"."""
    given_alarm_ns: int | None = None
    """Alarm or onset passed to a localizer or diagnoser, UTC nanoseconds."""
    alarm_source: str | None = None
    """Detector that raised the alarm, or "truth"."""
    delay_s: float | None = None
    """In protocol "delayed": seconds from the true onset to the alarm that the method gets."""
    evidence_s: float | None = None
    """Seconds of the view kept after the true onset; in "detected_evidence", after the alarm that the method gets."""
    alarm_ns: int | None = None
    """A detector's alarm, UTC nanoseconds; None if it raised none."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """The complete answer, in the format of its task."""
    ranking: Mapping[str, float] = field(default_factory=dict)
    """A localizer's score per service; higher is more suspicious."""
    majority_label: tuple[str, str] | None = None
    """Most frequent (system level, fault type) among the training labels of this fold."""
    class_trained: bool | None = None
    """For diagnoses: whether a training label of this fold matches one of the episode's faults."""
    seconds: float | None = None
    """Elapsed time; longer when other methods run at the same time."""
    cpu_seconds: float | None = None
    """CPU time of the answer."""
    fit_seconds: float | None = None
    """Elapsed time of the fit."""
    peak_bytes: int | None = None
    """Peak memory of the method's process."""
    code: str = ""
    """Version of faultset, with its commit if known."""
    method_code: str = ""
    """Distribution, version and hash of the baseline's code; empty if unknown."""
    libraries: str = ""
    """Versions of the libraries that methods use."""
    truth: Truth
    """Ground truth of the episode."""

    @property
    def episode(self) -> str:
        """Id of the episode."""
        return self.truth.episode

    @property
    def alarm_given_early(self) -> bool:
        """Return whether the alarm passed to a localizer or diagnoser was before the true onset."""
        onset = self.truth.onset_ns
        return self.given_alarm_ns is not None and onset is not None and self.given_alarm_ns < onset

    @property
    def key(self) -> Key:
        """Return the identity of the answer; rows with the same key are interchangeable."""
        return (
            self.baseline,
            self.settings,
            self.dataset,
            self.version,
            self.episode,
            self.task,
            self.protocol,
            amount_of(self.delay_s, self.evidence_s),
            self.fold,
            self.seed,
            self.method_code,
        )


def write_rows(rows: Iterable[ResultRow], path: Path) -> None:
    """Write rows as Parquet, sorted by key so that repeated runs give the same order."""
    import pyarrow.parquet as pq

    ordered = sorted(rows, key=lambda row: row.key)
    with replacing(parquet_path(path)) as temporary, pq.ParquetWriter(temporary, RESULTS, compression="zstd") as writer:
        for start in range(0, len(ordered), _GROUP_ROWS):
            writer.write_table(rows_to_table(ordered[start : start + _GROUP_ROWS]))


def read_rows(path: Path) -> list[ResultRow]:
    """Read rows written by `write_rows`.

    Raises
    ------
    DataError
        The file is missing, unreadable or has a different layout.
    """
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(parquet_path(path))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as results ({error}); run evaluate again") from error
    version = (table.schema.metadata or {}).get(b"faultset.rows", b"none").decode()
    if version != str(ROWS_VERSION):
        raise DataError(f"{path} holds results in layout {version}, expected {ROWS_VERSION}; run evaluate again")
    episodes = table.column("episode").to_pylist()
    first = {episode: number for number, episode in reversed(list(enumerate(episodes)))}
    # all rows of an episode share one truth
    records = table.select([n for n in _TRUTH_FIELDS if n in table.column_names]).take(list(first.values())).to_pylist()
    truths = {record["episode"]: _build_truth(record) for record in records}
    return list(table_to_rows(table, truths))


_GROUP_ROWS = 4096
_TRUTH_FIELDS = tuple(f.name for f in dataclasses.fields(Truth))
_TRUTH_LISTS = ("targets", "candidates", "pod_causes")
_TRUTH_PAIRS = ("causes", "metric_causes", "calls", "pauses")
_ROW_FIELDS = tuple(f.name for f in dataclasses.fields(ResultRow) if f.name != "truth")
OWN_COLUMNS = pa.schema(
    [RESULTS.field(name) for name in RESULTS.names if name not in _TRUTH_FIELDS or name == "episode"]
)
"""Columns of a row, without the columns of its episode's truth."""


def rows_to_table(rows: Sequence[ResultRow], schema: pa.Schema = RESULTS) -> pa.Table:
    """Return rows as an Arrow table with the columns of `schema`."""
    truths = {row.episode: row.truth for row in rows}
    positions = {episode: number for number, episode in enumerate(truths)}
    numbers = pa.array([positions[row.episode] for row in rows], type=pa.int64())
    columns = []
    for column in schema:
        if column.name in _TRUTH_FIELDS:
            by_episode = pa.array(
                [getattr(truth, column.name) for truth in truths.values()], type=_get_plain_type(column.type)
            )
            values = by_episode.take(numbers)
        elif column.name == "answer":
            values = pa.array([StoredAnswer.of(row.answer).text for row in rows], type=pa.string())
        elif column.name == "ranking":
            values = pa.array([json.dumps(row.ranking, separators=(",", ":")) for row in rows], type=pa.string())
        else:
            values = pa.array([getattr(row, column.name) for row in rows], type=_get_plain_type(column.type))
        columns.append(values.dictionary_encode() if pa.types.is_dictionary(column.type) else values)
    return pa.Table.from_arrays(columns, schema=schema)


def table_to_rows(table: pa.Table, truths: Mapping[str, Truth]) -> Iterable[ResultRow]:
    """Yield the rows of a table; `truths` must contain all of its episodes."""
    names = [name for name in _ROW_FIELDS if name in table.column_names]
    columns = [_interned_values(table.column(name)) for name in names]
    for episode, *values in zip(table.column("episode").to_pylist(), *columns, strict=True):
        record = dict(zip(names, values, strict=True))
        record["needs"] = tuple(record["needs"])
        record["majority_label"] = tuple(record["majority_label"]) if record.get("majority_label") else None
        record["answer"] = StoredAnswer(record["answer"])
        record["ranking"] = json.loads(record["ranking"])
        yield ResultRow(truth=truths[episode], **record)


def _get_plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _interned_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; equal strings of a dictionary column are one object."""
    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()
    values: list[Any] = []
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        values += [None if code is None else sys.intern(words[code]) for code in chunk.indices.to_pylist()]
    return values


def _build_truth(record: Mapping[str, Any]) -> Truth:
    values = dict(record)
    values |= {name: tuple(values.get(name) or ()) for name in _TRUTH_LISTS}
    values |= {name: tuple(tuple(names) for names in values.get(name) or ()) for name in _TRUTH_PAIRS}
    values["faults"] = tuple(FaultTruth(*fields) for fields in values.get("faults") or ())
    return Truth(**values)


_SCHEMA = pa.schema(
    [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field  # type: ignore[attr-defined]
        for field in OWN_COLUMNS
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def compress_rows(rows: Sequence[ResultRow]) -> bytes:
    """Return rows without the truth of their episodes as a compressed Arrow stream, a tenth as large as the objects."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, _SCHEMA, options=_OPTIONS) as writer:
        writer.write_table(rows_to_table(rows, _SCHEMA))
    return stream.getvalue()


def decompress_rows(stream: bytes, truths: Mapping[str, Truth]) -> Iterable[ResultRow]:
    """Return the rows of a stream; `truths` must contain all of its episodes.

    Raises
    ------
    pyarrow.ArrowException, KeyError, ValueError, TypeError
        The stream was not written by `compress_rows`, or not with these episodes.
    """
    return table_to_rows(pa.ipc.open_stream(stream).read_all(), truths)


class CompressedRows:
    """Collects rows in batches; they stay compressed until all have arrived."""

    def __init__(self) -> None:
        self._streams: list[bytes] = []
        self._truths: dict[str, Truth] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Add a batch."""
        if rows:
            self._streams.append(compress_rows(rows))
            for row in rows:
                self._truths.setdefault(row.episode, row.truth)
            self._count += len(rows)

    def rows(self) -> list[ResultRow]:
        """Return all rows; rows of an episode share its truth."""
        return [row for stream in self._streams for row in decompress_rows(stream, self._truths)]
