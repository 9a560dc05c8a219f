"""Result rows: one for every baseline, episode, protocol and seed, with the raw answer and the truth beside it.

Every reported number is computed from these rows, never while baselines run, so that a corrected metric costs a
second look at a file and not a second run. A row that failed is still a row.
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
"""ok · invalid: not a valid answer · error: raised · timeout · memory · exit: its process ended · output: wrote without
end · no_alarm: a localizer or diagnoser that was not run, because the detector raised no alarm · missing: nothing is
said about the episode · cannot: no answer, because none of the tables that the method reads is recorded or has
anything in the reference to compare with. The others are of agents; see docs/how-to/agents.md."""

Protocol = Literal["detected", "own", "oracle", "delayed", "evidence", "detected_evidence", "calibration"]
"""What a method is given. detected: the alarm of one named detector; own: that of the method's own trigger; oracle:
the true onset; delayed: an instant some seconds after it; evidence: the true onset, and a view that ends some seconds
after it; detected_evidence: the alarm of one named detector, and a view that ends some seconds after that;
calibration: a detector runs on a training episode without a fault, from which threshold policies are made."""

CANNOT: Status = "cannot"
NO_FAILURES: frozenset[Status] = frozenset({"ok", "no_alarm", CANNOT})
"""Statuses that are no fault of the method's code."""
TASKS: tuple[Task, ...] = get_args(Task)
PROTOCOLS: tuple[Protocol, ...] = ("detected", "oracle")
"""Protocols that have tables, in their order."""
ROWS_VERSION = 1
"""Layout of the stored rows; `read_rows` reads no other."""
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
    """Return the seconds by which rows of one protocol differ; -1 where there are none."""
    return next((value for value in (delay_s, evidence_s) if value is not None), -1.0)


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One answer, or the lack of one."""

    baseline: str
    """Name of the method."""
    kind: str
    """Kind of the method; see `BaselineSpec.kind`."""
    needs: tuple[str, ...]
    """What the method was given beyond telemetry."""
    settings: str
    """Hash of the settings that decide answers."""
    dataset: str
    """Name of the dataset."""
    version: str
    """Version of the dataset."""
    split: str
    """Split or scheme by which episodes were divided."""
    fold: int
    """Number of the fold in which the episode was tested."""
    task: str
    """detection, localization or rca."""
    protocol: str
    """What the method was given; see `Protocol`."""
    seed: int
    """Seed of a method that draws random numbers; 0 otherwise."""
    status: Status
    """ok, or in what way there is no answer."""
    reason: str = ""
    """Why there is no answer; empty where there is one."""
    given_alarm_ns: int | None = None
    """Alarm or onset that a localizer was given."""
    alarm_source: str | None = None
    """Name of the detector the alarm came from, or "truth"."""
    delay_s: float | None = None
    """Seconds from the true onset to the given alarm, in the protocol "delayed"."""
    evidence_s: float | None = None
    """Seconds of the view that were left, after the true onset or in "detected_evidence" after the given alarm."""
    alarm_ns: int | None = None
    """A detector's alarm, UTC nanoseconds; None where it raised none."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """The whole answer, as its task records it."""
    ranking: Mapping[str, float] = field(default_factory=dict)
    """A localizer's scores of services, higher is more suspicious."""
    majority_label: tuple[str, str] | None = None
    """System level and fault type that are most often right together in the training labels of this fold."""
    class_trained: bool | None = None
    """Of diagnoses: whether a training label of this fold has the level and type of one of the episode's faults."""
    seconds: float | None = None
    """Elapsed time; longer when other methods run beside."""
    cpu_seconds: float | None = None
    """Processor time of the answer."""
    fit_seconds: float | None = None
    """Elapsed time of the fit that the answer comes from."""
    peak_bytes: int | None = None
    """Most memory that the process of the method used."""
    code: str = ""
    """Version of faultset, with its commit where that is known."""
    method_code: str = ""
    """Distribution, version and hash of the baseline's code; empty if it is not known."""
    libraries: str = ""
    """Versions of the libraries that methods use."""
    truth: Truth
    """What scoring knows of the episode."""

    @property
    def episode(self) -> str:
        """Id of the episode."""
        return self.truth.episode

    @property
    def alarm_given_early(self) -> bool:
        """Whether the alarm a localizer was given stood before the true onset."""
        onset = self.truth.onset_ns
        return self.given_alarm_ns is not None and onset is not None and self.given_alarm_ns < onset

    @property
    def key(self) -> Key:
        """What a row answers; a later run with the same key need not run the method again."""
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
    """Store rows as Parquet, sorted by key, so that the same run always gives the same order."""
    import pyarrow.parquet as pq

    ordered = sorted(rows, key=lambda row: row.key)
    with replacing(parquet_path(path)) as temporary, pq.ParquetWriter(temporary, RESULTS, compression="zstd") as writer:
        for start in range(0, len(ordered), _GROUP_ROWS):
            writer.write_table(table_of(ordered[start : start + _GROUP_ROWS]))


def read_rows(path: Path) -> list[ResultRow]:
    """Read what `write_rows` stored.

    Raises
    ------
    DataError
        When the file is missing, unreadable or was written in another layout.
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
    # the truth is the same in all rows of an episode: it is made once and shared
    records = table.select([n for n in _TRUTH_FIELDS if n in table.column_names]).take(list(first.values())).to_pylist()
    truths = {record["episode"]: _truth(record) for record in records}
    return list(rows_of(table, truths))


_GROUP_ROWS = 4096
_TRUTH_FIELDS = tuple(f.name for f in dataclasses.fields(Truth))
_TRUTH_LISTS = ("targets", "candidates", "pod_causes")
_TRUTH_PAIRS = ("causes", "metric_causes", "calls", "pauses")
_ROW_FIELDS = tuple(f.name for f in dataclasses.fields(ResultRow) if f.name != "truth")
OWN_COLUMNS = pa.schema(
    [RESULTS.field(name) for name in RESULTS.names if name not in _TRUTH_FIELDS or name == "episode"]
)
"""What a row says itself, without what is known of its episode."""


def table_of(rows: Sequence[ResultRow], schema: pa.Schema = RESULTS) -> pa.Table:
    """Return rows as an Arrow table of the layout, or of some of its columns."""
    truths = {row.episode: row.truth for row in rows}
    place = {episode: number for number, episode in enumerate(truths)}
    numbers = pa.array([place[row.episode] for row in rows], type=pa.int64())
    columns = []
    for column in schema:
        if column.name in _TRUTH_FIELDS:
            each = pa.array([getattr(truth, column.name) for truth in truths.values()], type=_plain(column.type))
            values = each.take(numbers)
        elif column.name == "answer":
            values = pa.array([StoredAnswer.of(row.answer).text for row in rows], type=pa.string())
        elif column.name == "ranking":
            values = pa.array([json.dumps(row.ranking, separators=(",", ":")) for row in rows], type=pa.string())
        else:
            values = pa.array([getattr(row, column.name) for row in rows], type=_plain(column.type))
        columns.append(values.dictionary_encode() if pa.types.is_dictionary(column.type) else values)
    return pa.Table.from_arrays(columns, schema=schema)


def rows_of(table: pa.Table, truths: Mapping[str, Truth]) -> Iterable[ResultRow]:
    """Return the rows of a table whose episodes are all among `truths`."""
    names = [name for name in _ROW_FIELDS if name in table.column_names]
    columns = [_shared_words(table.column(name)) for name in names]
    for episode, *values in zip(table.column("episode").to_pylist(), *columns, strict=True):
        record = dict(zip(names, values, strict=True))
        record["needs"] = tuple(record["needs"])
        record["majority_label"] = tuple(record["majority_label"]) if record.get("majority_label") else None
        record["answer"] = StoredAnswer(record["answer"])
        record["ranking"] = json.loads(record["ranking"])
        yield ResultRow(truth=truths[episode], **record)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _shared_words(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column as objects; equal names of a dictionary column are one object."""
    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()
    values: list[Any] = []
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        values += [None if code is None else sys.intern(words[code]) for code in chunk.indices.to_pylist()]
    return values


def _truth(record: Mapping[str, Any]) -> Truth:
    values = dict(record)
    values |= {name: tuple(values.get(name) or ()) for name in _TRUTH_LISTS}
    values |= {name: tuple(tuple(names) for names in values.get(name) or ()) for name in _TRUTH_PAIRS}
    values["faults"] = tuple(FaultTruth(*one) for one in values.get("faults") or ())
    return Truth(**values)


_SCHEMA = pa.schema(
    [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field  # type: ignore[attr-defined]
        for field in OWN_COLUMNS
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def compressed(rows: Sequence[ResultRow]) -> bytes:
    """Return rows, without the truth of their episodes, as a compressed Arrow stream: a tenth of what objects take."""
    part = io.BytesIO()
    with pa.ipc.new_stream(part, _SCHEMA, options=_OPTIONS) as writer:
        writer.write_table(table_of(rows, _SCHEMA))
    return part.getvalue()


def decompressed(part: bytes, truths: Mapping[str, Truth]) -> Iterable[ResultRow]:
    """Return the rows of a part, whose episodes are all among `truths`.

    Raises
    ------
    pyarrow.ArrowException, KeyError, ValueError, TypeError
        The part was not made by `compressed`, or not with these episodes.
    """
    return rows_of(pa.ipc.open_stream(part).read_all(), truths)


class CompressedRows:
    """Rows that come in batches, in little memory until all are there."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._truths: dict[str, Truth] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Keep a batch."""
        if rows:
            self._parts.append(compressed(rows))
            for row in rows:
                self._truths.setdefault(row.episode, row.truth)
            self._count += len(rows)

    def rows(self) -> list[ResultRow]:
        """Return all rows as objects; those of an episode share its truth."""
        return [row for part in self._parts for row in decompressed(part, self._truths)]
