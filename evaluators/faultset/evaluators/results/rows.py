"""Result rows: one per baseline, episode, protocol and seed, with the raw answer and the ground truth.

All reported numbers are computed from these rows, so a corrected metric needs no new run. A failed run is a row too.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import io
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from faultset.baselines.contract import Task
from faultset.core.errors import DataError, UsageError
from faultset.core.files import is_disk_full, parquet_path, replacing
from faultset.core.printable import printable
from faultset.evaluators.results.truth import FaultTruth, Truth

_EVEN_TIMES = "times_even"
"""Key of evenly spaced times, stored as [first, step, count]."""


class StoredAnswer(Mapping[str, Any]):
    """A mapping backed by JSON text.

    Evenly spaced sample times are stored as three numbers and read back as the list `times_ns`.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> StoredAnswer:
        """Convert a mapping of plain data."""
        if isinstance(content, StoredAnswer):
            return content
        return cls(answer_text(content))

    def __getitem__(self, key: str) -> Any:
        return _parse(self.text)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(_parse(self.text))

    def __len__(self) -> int:
        return len(_parse(self.text))

    def __repr__(self) -> str:
        return f"StoredAnswer({self.text[:60]!r})"

    def __hash__(self) -> int:
        return hash(self.text)


def answer_text(content: Mapping[str, Any]) -> str:
    """Return plain data as compact JSON."""
    stored = dict(content)
    times = stored.get("times_ns")
    if times and len(times) > 2:
        step = times[1] - times[0]
        if times == list(range(times[0], times[0] + step * len(times), step)):
            del stored["times_ns"]
            stored[_EVEN_TIMES] = [times[0], step, len(times)]
    return json.dumps(stored, separators=(",", ":"))


@functools.lru_cache(maxsize=32)
def _parse(text: str) -> dict[str, Any]:
    content = json.loads(text)
    if _EVEN_TIMES in content:
        first, step, count = content.pop(_EVEN_TIMES)
        content["times_ns"] = list(range(first, first + step * count, step))
    return content


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
_NAMES, _PAIRS = pa.list_(pa.string()), pa.list_(pa.list_(pa.string()))
_TYPES = {
    "name": _NAME, "names": _NAMES, "pairs": _PAIRS, "times": pa.list_(pa.list_(pa.int64())), "text": pa.string(),
    "int32": pa.int32(), "int64": pa.int64(), "float": pa.float64(), "bool": pa.bool_(),
}  # fmt: skip
_LAYOUT = """
name! baseline kind | names! needs | name! settings dataset version split | int32! fold | name! episode task protocol
int64! seed | name! status | text! reason | int64 given_alarm_ns | name alarm_source | float delay_s evidence_s
int64 alarm_ns | text! answer ranking | names majority_label | bool class_trained
float seconds cpu_seconds fit_seconds | int64 peak_bytes
name! app | name fault no_fault_kind | names! targets | pairs! causes | names! candidates | names pod_causes
pairs metric_causes calls | name system_level fault_type | pairs faults | times pauses | name! verdict profile
int64! view_start_ns view_end_ns reference_end_ns | int64 onset_ns manifest_ns | name! code method_code libraries
"""
"""Type and names of columns in their order; an exclamation mark means that no value is missing."""
RESULTS = pa.schema(
    [
        pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!"))
        for kind, *names in (group.split() for group in _LAYOUT.replace("\n", "|").split("|") if group.strip())
        for name in names
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
    """Read rows written by `write_rows`."""
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
        kind = _get_plain_type(column.type)
        if column.name in _TRUTH_FIELDS:
            values = pa.array([getattr(truth, column.name) for truth in truths.values()], type=kind).take(numbers)
        elif column.name == "answer":
            values = pa.array([StoredAnswer.of(row.answer).text for row in rows], type=kind)
        elif column.name == "ranking":
            values = pa.array([json.dumps(row.ranking, separators=(",", ":")) for row in rows], type=kind)
        else:
            values = pa.array([getattr(row, column.name) for row in rows], type=kind)
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


_SCHEMA = pa.schema([field.with_type(_get_plain_type(field.type)) for field in OWN_COLUMNS])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def compress_rows(rows: Sequence[ResultRow]) -> bytes:
    """Return rows without the truth of their episodes as a compressed Arrow stream, a tenth as large as the objects."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, _SCHEMA, options=_OPTIONS) as writer:
        writer.write_table(rows_to_table(rows, _SCHEMA))
    return stream.getvalue()


def decompress_rows(stream: bytes, truths: Mapping[str, Truth]) -> Iterable[ResultRow]:
    """Return the rows of a stream; `truths` must contain all of its episodes."""
    return table_to_rows(pa.ipc.open_stream(stream).read_all(), truths)


class CompressedRows:
    """Collects rows in batches, which are kept compressed until all have arrived."""

    def __init__(self) -> None:
        self._streams: list[bytes] = []
        self._truths: dict[str, Truth] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Sequence[ResultRow]) -> None:
        if rows:
            self._streams.append(compress_rows(rows))
            for row in rows:
                self._truths.setdefault(row.episode, row.truth)
            self._count += len(rows)

    def rows(self) -> list[ResultRow]:
        """Return all rows; rows of an episode share its truth."""
        return [row for stream in self._streams for row in decompress_rows(stream, self._truths)]


RESULTS_FILE, DETECTIONS_FILE, ALARMS_FILE = "results.parquet", "detections.parquet", "alarms.parquet"
FILES = (RESULTS_FILE, "leaderboard.json", "leaderboard.md", "report.html")
"""Files of every evaluation."""
RECORDING_FILES = (DETECTIONS_FILE, ALARMS_FILE)
"""Further files of evaluations on recordings."""


def check_writable(folder: Path) -> None:
    """Create a folder if it is missing and check that files can be written to it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # a unique name, because two evaluations may test the same folder at the same time
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable.") as file:
            # write content, because a full disk still accepts empty files
            Path(file.name).write_bytes(bytes(4096))


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert errors while writing into a folder to one sentence."""
    try:
        yield
    except (OSError, ValueError) as error:
        if is_disk_full(error) or getattr(error, "errno", None) == errno.EFBIG:
            raise DataError(
                f"no space left on the disk of {printable(folder)}; free some or choose another --out, then run the "
                "same command again"
            ) from error
        if isinstance(error, ValueError) and "null byte" not in str(error) and "surrogates" not in str(error):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"results cannot be written to {printable(folder)} ({reason}); choose another --out"
        ) from error
