"""Rows of recognised files, staged on disk as Parquet before services are named, and without secrets.

A staged table has the columns of the final table, except that `origin` holds the names that show where a record comes
from.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import UsageError
from faultset.core.files import canonical_json, parquet_path, replace_surrogates
from faultset.core.printable import quoted
from faultset.datasets.format.schemas import NAME
from faultset.datasets.imports.telemetry.identity import Origin, short_name
from faultset.datasets.imports.telemetry.times import EARLIEST_NS, LATEST_NS, parse_time
from faultset.datasets.telemetry_formats.log_lines import parse_record
from faultset.datasets.telemetry_formats.otlp_json import read_int

HIDDEN = "<redacted>"
_KEYS = (
    r"pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|authorization|(?:api|access|private|client)[-_.]?"
    r"(?:key|secret)"
)
_VALUE = r"""(?:"[^"]{1,4096}"|'[^']{1,4096}'|[^\s,;&"'}\]]{1,4096})"""
_PATTERNS = (
    rf"""(?P<head>["']?[\w.-]*(?:{_KEYS})["']?\s*(?:=|:)\s*)(?:(?:bearer|basic)\s+)?{_VALUE}""",
    r"(?P<bearer>\bbearer\s+)[\w.~+/=-]{8,4096}",
    r"(?P<scheme>[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,200}:)[^\s@/]{1,200}(?=@)",
    r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}\b",
    r"\bglpat-[\w-]{20,}",
    r"\bxox[abprs]-[\w-]{10,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]{0,16384}?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)
"""Texts to hide: values whose key names a secret, and tokens in a known format."""
_HINT = re.compile(rf"{_KEYS}|bearer|://|eyJ|AKIA|ASIA|gh[pousr]_|glpat-|xox|PRIVATE KEY", re.IGNORECASE)
SECRET_KEY = re.compile(rf"(?:^|[._-])(?:{_KEYS})$", re.IGNORECASE)
"""Name of an attribute whose value is a secret."""


class Redactor:
    """Replaces secrets with a placeholder, and counts changed texts; patterns of the user apply even if it is disabled.

    >>> Redactor().hide("login of eve, password=hunter2 ok")
    'login of eve, password=<redacted> ok'
    """

    def __init__(self, enabled: bool = True, patterns: Sequence[str] = ()) -> None:
        self.changed = 0
        self.key = [enabled, *patterns]
        """Settings that the key of a staged file includes."""
        self._enabled = enabled
        self._builtin = re.compile("|".join(_PATTERNS), re.IGNORECASE)
        try:
            self._added = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise UsageError(
                f"--redact-patterns must be a regular expression, got {quoted(str(error.pattern))}"
            ) from None

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        shown = text
        if self._enabled and _HINT.search(text):
            shown = self._builtin.sub(_replace, text)
        for pattern in self._added:
            shown = pattern.sub(HIDDEN, shown)
        if shown != text:
            self.changed += 1
        return shown

    def hides_key(self, name: str) -> bool:
        """Return whether the value of an attribute must be hidden because of its name."""
        return self._enabled and SECRET_KEY.search(name) is not None


def _replace(match: re.Match[str]) -> str:
    return (match["head"] or match["bearer"] or match["scheme"] or "") + HIDDEN


_BATCH_ROWS = 50_000
_METRIC_ROWS = 400_000
_BATCH_CHARACTERS = 32 << 20
"""Maximum characters of a batch; long messages reach it before the maximum number of rows."""
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
OUTSIDE = "has a time before 2000 or after 2116"


class StagedSeries(NamedTuple):
    """Identity of a metric series before its service is named."""

    origin: Origin
    metric: str
    labels: str
    """Other labels as canonical JSON."""
    kind: str
    """counter, gauge, bucket, sum, count or unknown; the prefix `delta-` marks increases since the last sample."""


class StagedRows:
    """Rows of one file, written to an existing folder in batches, one file per table, and counts of dropped records."""

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
            self.drop(OUTSIDE if time_ns else "has no time")
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
            self.drop(OUTSIDE, int((keep & ~inside).sum()))
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
            self.drop(OUTSIDE if time_ns else "has no time")
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
        for column in STAGED[table]:
            values = columns[column.name]
            if pa.types.is_dictionary(column.type):
                arrays[column.name] = pa.array(values, pa.string()).dictionary_encode()
            else:
                arrays[column.name] = pa.array(values, column.type)
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


@dataclass(kw_only=True)
class ReadingContext:
    """Destination of a file's rows, and their defaults from the mapping file or the path."""

    rows: StagedRows
    zone: tzinfo | None = None
    """Zone of local times."""
    origin: Origin = field(default_factory=Origin)
    """Origin of records that do not name their own."""
    last_log_ns: int | None = None
    """Time of the last log record that was read."""

    def parse_time(self, value: Any) -> int | None:
        """Return a time in UTC nanoseconds; None if it is not a time."""
        return parse_time(value, self.zone)

    def attributes(self, facts: Mapping[str, Any]) -> str:
        """Return attributes as canonical JSON without secrets."""
        redact = self.rows.redact
        shown: dict[str, Any] = {}
        for name, value in facts.items():
            if redact.hides_key(name):
                redact.changed += 1
                value = HIDDEN
            elif isinstance(value, str):
                value = redact.hide(value)
            elif isinstance(value, float) and not -1e308 <= value <= 1e308:
                value = str(value)
            shown[name] = value
        try:
            return canonical_json(shown)
        except (TypeError, ValueError):
            return canonical_json({name: str(value) for name, value in shown.items()})

    def add_event(self, origin: Origin, time_ns: int | None, facts: Mapping[str, Any]) -> None:
        """Add a Kubernetes event; `facts` are the columns of the table."""
        names = {name: short_name(facts.get(name)) for name in ("reason", "kind", "name")}
        row = {
            **names,
            "type": short_name(facts.get("type")) or "Normal",
            "message": self.rows.redact.hide(str(facts.get("message") or "").strip()),
            "count": min(read_int(facts.get("count")) or 1, (1 << 31) - 1),
        }
        if names["kind"] == "Pod" and not origin.pod:
            origin = origin._replace(pod=names["name"])
        self.rows.add("events", origin, time_ns, row)

    def add_log(
        self,
        origin: Origin,
        time_ns: int | None,
        text: str,
        *,
        level: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
    ) -> None:
        """Add a log record; missing fields are parsed from its text."""
        line = parse_record(text)
        self.last_log_ns = time_ns or self.last_log_ns
        row = {
            "level": level or line.level,
            "message": self.rows.redact.hide(line.message),
            "trace_id": trace_id or line.trace_id,
            "span_id": span_id or line.span_id,
        }
        self.rows.add("logs", origin, time_ns, row)
