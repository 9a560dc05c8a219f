"""Rows of recognised files, staged on disk as Parquet before services are named.

A staged table has the columns of the final table, except that `origin` holds the names that show where a record comes
from.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.files import canonical_json, parquet_path, replace_surrogates
from faultset.datasets.format.schemas import NAME
from faultset.datasets.imports.telemetry.redaction import Redactor
from faultset.datasets.imports.telemetry.times import EARLIEST_NS, LATEST_NS

_BATCH_ROWS = 50_000
_METRIC_ROWS = 400_000
_BATCH_CHARACTERS = 32 << 20
"""Maximum characters of a batch; long messages reach it before the maximum number of rows."""
_MAX_NAME_LENGTH = 300
_MAX_TEXT_LENGTH = 4 << 20

STAGED: dict[str, pa.Schema] = {
    "metrics": pa.schema([
        ("time", pa.int64()), ("origin", NAME), ("metric", NAME), ("labels", NAME), ("kind", NAME),
        ("value", pa.float64()),
    ]),
    "spans": pa.schema([
        ("time", pa.int64()), ("trace_id", pa.string()), ("span_id", pa.string()), ("parent_span_id", pa.string()),
        ("origin", NAME), ("peer_service", NAME), ("operation", NAME), ("kind", NAME), ("duration_ns", pa.int64()),
        ("status", NAME), ("status_code", pa.int32()), ("attributes", pa.string()),
    ]),
    "logs": pa.schema([
        ("time", pa.int64()), ("origin", NAME), ("level", NAME), ("message", pa.string()), ("trace_id", pa.string()),
        ("span_id", pa.string()),
    ]),
    "events": pa.schema([
        ("time", pa.int64()), ("origin", NAME), ("type", NAME), ("reason", NAME), ("kind", NAME), ("name", pa.string()),
        ("message", pa.string()), ("count", pa.int32()),
    ]),
    "objects": pa.schema([
        ("time", pa.int64()), ("origin", NAME), ("kind", NAME), ("name", pa.string()), ("state", pa.string()),
        ("data", NAME),
    ]),
    "requests": pa.schema([
        ("time", pa.int64()), ("origin", NAME), ("sent", pa.int64()), ("endpoint", NAME), ("latency_ns", pa.int64()),
        ("status", pa.int32()), ("outcome", NAME),
    ]),
}  # fmt: skip
"""Schemas of staged tables."""


NO_SERVICE = "-"
"""Service in the origin of a record that belongs to no service."""


class Origin(NamedTuple):
    """Names in a record that show where it comes from; unknown fields are empty."""

    service: str = ""
    """Service name from an attribute, a label or a column."""
    workload: str = ""
    """Deployment, StatefulSet or another owner of the pod."""
    pod: str = ""
    container: str = ""
    namespace: str = ""
    host: str = ""
    reported: str = ""
    """Name that the process reported, if it differs from `service`."""

    def text(self) -> str:
        """Return the origin as canonical JSON, without unknown fields."""
        return canonical_json({name: value for name, value in zip(self._fields, self, strict=True) if value})

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Return the origin from the result of `text`."""
        return cls(**json.loads(text))


class StagedSeries(NamedTuple):
    """Identity of a metric series before its service is named."""

    origin: Origin
    metric: str
    labels: str
    """Other labels as canonical JSON."""
    kind: str
    """counter, gauge, bucket, sum, count or unknown; the prefix `delta-` marks increases since the last sample."""


class StagedRows:
    """Rows of one file, written to a folder in batches, and counts of dropped records.

    Parameters
    ----------
    folder
        Existing folder; each table is one file in it.
    redact
        Hides secrets in messages and attributes.
    """

    def __init__(self, folder: Path, redact: Redactor) -> None:
        self._folder, self.redact = folder, redact
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._columns: dict[str, dict[str, list[Any]]] = {}
        self._characters = 0
        self._series: dict[StagedSeries, int] = {}
        self._times, self._numbers, self._values = array("q"), array("i"), array("d")
        self.rows: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.types: dict[str, str] = {}
        """Metric -> type that the file declares."""
        self.metrics: dict[str, str] = {}
        """Metric -> kind of its rows."""
        self.roles: dict[str, dict[str, str]] = {}
        """Metric -> catalogue row that the file declares."""
        self.origins: dict[str, Counter[str]] = {}
        """Table -> text of an origin -> number of rows."""
        self.first_ns: dict[str, int] = {}
        self.last_ns: dict[str, int] = {}

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records that cannot become rows."""
        if count:
            self.dropped[reason] += count

    def note(self, remark: str, count: int = 1) -> None:
        """Count records that become rows with a change."""
        if count:
            self.notes[remark] += count

    def add_sample(self, series: StagedSeries, time_ns: int | None, value: float) -> None:
        """Add a sample of a metric."""
        if time_ns is None or not EARLIEST_NS <= time_ns < LATEST_NS:
            self._drop_time(time_ns)
            return
        self._times.append(time_ns)
        self._numbers.append(self._get_number(series))
        self._values.append(value)
        if len(self._times) >= _METRIC_ROWS:
            self._flush_metrics()

    def add_samples(self, series: StagedSeries, times_ns: np.ndarray, values: np.ndarray) -> None:
        """Add samples of a series; missing values are skipped."""
        keep = ~np.isnan(values)
        inside = (times_ns >= EARLIEST_NS) & (times_ns < LATEST_NS)
        if not inside.all():
            self.drop("has a time before 2000 or after 2116", int((keep & ~inside).sum()))
            keep &= inside
        if not keep.all():
            times_ns, values = times_ns[keep], values[keep]
        if len(times_ns):
            self._times.frombytes(np.ascontiguousarray(times_ns, dtype=np.int64).tobytes())
            self._values.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())
            numbers = np.full(len(times_ns), self._get_number(series), dtype=np.int32)
            self._numbers.frombytes(numbers.tobytes())
            if len(self._times) >= _METRIC_ROWS:
                self._flush_metrics()

    def add(self, table: str, origin: Origin, time_ns: int | None, row: Mapping[str, Any]) -> None:
        """Add a row of a table other than metrics; `row` has the columns of `STAGED` except time and origin."""
        if time_ns is None or not EARLIEST_NS <= time_ns < LATEST_NS:
            self._drop_time(time_ns)
            return
        columns = self._columns.get(table)
        if columns is None:
            columns = self._columns[table] = {name: [] for name in STAGED[table].names}
        columns["time"].append(time_ns)
        columns["origin"].append(origin)
        for name, column in columns.items():
            if name in row:
                value = row[name]
                if isinstance(value, str):
                    value = self._clean(value)
                column.append(value)
            elif name not in ("time", "origin"):
                column.append(None)
        if len(columns["time"]) >= _BATCH_ROWS or self._characters >= _BATCH_CHARACTERS:
            self._flush(table)

    def close(self) -> None:
        """Write the pending rows."""
        self._flush_metrics()
        for table in list(self._columns):
            self._flush(table)
        for writer in self._writers.values():
            writer.close()

    def _clean(self, text: str) -> str:
        if len(text) > _MAX_TEXT_LENGTH:
            self.note(f"a text is longer than {_MAX_TEXT_LENGTH >> 20} MB and was truncated")
            text = text[:_MAX_TEXT_LENGTH]
        self._characters += len(text)
        return replace_surrogates(text).replace("\0", "\ufffd") if not text.isascii() or "\0" in text else text

    def _drop_time(self, time_ns: int | None) -> None:
        self.drop("has no time" if not time_ns else "has a time before 2000 or after 2116")

    def _get_number(self, series: StagedSeries) -> int:
        number = self._series.get(series)
        if number is None:
            number = self._series[series] = len(self._series)
        return number

    def _flush_metrics(self) -> None:
        if not self._times:
            return
        times = np.frombuffer(self._times.tobytes(), np.int64)
        numbers = np.frombuffer(self._numbers.tobytes(), np.int32)
        used, codes = np.unique(numbers, return_inverse=True)
        all_series = list(self._series)
        chosen = [all_series[number] for number in used.tolist()]
        columns: dict[str, Any] = {
            "time": pa.array(times),
            "value": pa.array(np.frombuffer(self._values.tobytes(), np.float64)),
        }
        for series in chosen:
            if self.metrics.get(series.metric, "unknown") == "unknown":
                self.metrics[series.metric] = series.kind
        origins = [series.origin.text() for series in chosen]
        words = {"origin": origins} | {
            name: [getattr(s, name) for s in chosen] for name in ("metric", "labels", "kind")
        }
        for name, texts in words.items():
            encoded = pa.array([replace_surrogates(text) for text in texts], pa.string()).dictionary_encode()
            indices = encoded.indices.to_numpy()[codes].astype(np.int32)
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(indices), encoded.dictionary)
        counts = np.bincount(codes, minlength=len(chosen))
        for text, count in zip(origins, counts.tolist(), strict=True):
            self.origins.setdefault("metrics", Counter())[text] += count
        self._write("metrics", columns, times)
        self._times, self._numbers, self._values = array("q"), array("i"), array("d")
        if len(self._series) > _METRIC_ROWS:
            self._series.clear()

    def _flush(self, table: str) -> None:
        columns = self._columns.pop(table, None)
        self._characters = 0
        if not columns or not columns["time"]:
            return
        origins = {origin: origin.text() for origin in set(columns["origin"])}
        counts = self.origins.setdefault(table, Counter())
        for origin, count in Counter(columns["origin"]).items():
            counts[origins[origin]] += count
        columns["origin"] = [origins[origin] for origin in columns["origin"]]
        arrays = {}
        for field in STAGED[table]:
            values = columns[field.name]
            if pa.types.is_dictionary(field.type):
                arrays[field.name] = pa.array(values, pa.string()).dictionary_encode()
            else:
                arrays[field.name] = pa.array(values, field.type)
        self._write(table, arrays, np.asarray(columns["time"], dtype=np.int64))

    def _write(self, table: str, columns: Mapping[str, pa.Array], times: np.ndarray) -> None:
        schema = STAGED[table]
        if table not in self._writers:
            path = parquet_path(self._folder / f"{table}.parquet")
            self._writers[table] = pq.ParquetWriter(path, schema, compression="zstd", compression_level=1)
        arrays = [columns[field.name].cast(field.type) for field in schema]
        self._writers[table].write_table(pa.Table.from_arrays(arrays, schema=schema))
        self.rows[table] += len(times)
        first, last = int(times.min()), int(times.max())
        self.first_ns[table] = min(self.first_ns.get(table, first), first)
        self.last_ns[table] = max(self.last_ns.get(table, last), last)


def short_name(value: Any) -> str:
    """Return a foreign name as printable text of limited length.

    >>> short_name("cart"), short_name(None), short_name("a\\nb")
    ('cart', '', 'a b')
    """
    text = "" if value is None else str(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in replace_surrogates(text))
    return text[:_MAX_NAME_LENGTH].strip()
