"""Folders and windows of rcabench's datapacks, the rows of their tables and the roles of their metrics."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import TIME
from faultset.datasets.format.storage import SERIES_COLUMNS
from faultset.datasets.imports.columns import (
    Ints,
    build_table,
    constant,
    drop_repeats,
    empty_to_null,
    encode_codes,
    encode_words,
    epoch_ns,
    filter_window,
    get_text,
    infer_kinds_and_peers,
    pc,
    read_json,
    read_parquet,
    rename_levels,
    rename_words,
)
from faultset.datasets.imports.contract import Case
from faultset.datasets.status_codes import read_outcome

STAGES = ("normal", "abnormal")
KINDS = ("metrics", "metrics_sum", "metrics_histogram", "traces", "logs")
CLOCKS = ("time", "TimeUnix", "Timestamp")
ENVIRONMENT = "env.json"
INJECTION = "injection.json"
CONCLUSION = "conclusion.parquet"
INVALID = ".invalid"
_TYPICAL_FILES = tuple(f"{stage}_{kind}.parquet" for stage in STAGES for kind in ("metrics", "traces", "logs"))
_MAX_DEPTH = 6
_QUARTER_NS = 900 * SECOND_NS
"""Offsets of time zones are multiples of a quarter of an hour."""
_TOLERANCE_NS = 60 * SECOND_NS
"""Maximum distance of the first row from the start of its window; metrics may be sampled once a minute."""
_STRAY_SHARE = 0.01
"""Share of rows at either end that may be stray."""
_STRAY_DISTANCE = 0.1
"""Minimum distance of stray rows from the other rows, as a share of the time that the other rows cover."""
_MIN_INSIDE = 0.5
"""Share of the rows of a stage that must be in its window."""


@dataclass(frozen=True, kw_only=True)
class DatapackWindows:
    """The two windows of a datapack in UTC nanoseconds."""

    start_ns: int
    onset_ns: int
    end_ns: int
    shift_ns: int
    """Correction of the times in `env.json` for a wrong time zone, in whole quarters of an hour."""
    outside: int = 0
    """Rows outside the windows, which are left out."""


def datapacks(path: Path) -> Iterator[Path]:
    """Yield every folder with the files of a datapack, sorted, down to a maximum depth."""
    root = path.resolve() if path.is_dir() else path
    # Converted datapacks are often links to the raw ones.
    for name, subfolders, files in os.walk(root, followlinks=True):
        folder = Path(name)
        if is_datapack(files):
            subfolders.clear()
            yield folder
        subfolders.sort()
        if len(folder.relative_to(root).parts) >= _MAX_DEPTH:
            subfolders.clear()


def parse_or_keep(value: Any) -> Any:
    """Return the content of a JSON text; other values as they are."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def is_datapack(files: Collection[str]) -> bool:
    return any(name in files for name in _TYPICAL_FILES) and (INJECTION in files or ENVIRONMENT in files)


def find_cases(path: Path) -> Sequence[Case]:
    packs = [pack for pack in datapacks(path) if not (pack / INVALID).exists()]
    if not packs:
        raise DataError(
            f"{path} holds no valid datapack: a folder with {ENVIRONMENT}, {INJECTION} and files such as "
            f"{_TYPICAL_FILES[0]}; give the top folder of the unpacked data"
        )
    cases = [Case(key=case_key(pack), paths=(pack,), has_fault=True) for pack in packs]
    return sorted(cases, key=lambda case: case.key)


def windows_of(pack: Path) -> DatapackWindows:
    """Return the windows of a datapack from its `env.json`, corrected for a wrong time zone, or from its telemetry."""
    normal, abnormal = _stage_times(pack, "normal"), _stage_times(pack, "abnormal")
    if not len(normal) and not len(abnormal):
        raise DataError(f"{pack} has no telemetry; leave the datapack out")
    environment = read_json(pack / ENVIRONMENT) if (pack / ENVIRONMENT).is_file() else {}
    names = ("NORMAL_START", "ABNORMAL_START", "ABNORMAL_END")
    try:
        start, onset, end = (int(epoch_ns([float(environment[name])])[0]) for name in names)
    except KeyError:
        if not len(normal) or not len(abnormal):
            raise DataError(
                f"{pack / ENVIRONMENT} lacks the windows, and one of them has no telemetry; leave the datapack out"
            ) from None
        (start, _), (onset, last) = _find_extent(normal), _find_extent(abnormal)
        return DatapackWindows(start_ns=start, onset_ns=onset, end_ns=last + 1, shift_ns=0)
    except (TypeError, ValueError):
        raise DataError(f"{pack / ENVIRONMENT} must hold {', '.join(names)} as seconds since 1970") from None
    if not start < onset < end:
        raise DataError(f"{pack / ENVIRONMENT}: {', '.join(names)} must be in this order; leave the datapack out")
    shift = _zone_offset(_find_extent(normal)[0] - start if len(normal) else _find_extent(abnormal)[0] - onset)
    start, onset, end = start + shift, onset + shift, end + shift
    outside = len(normal) + len(abnormal) - sum(_count_inside(times, start, end) for times in (normal, abnormal))
    if outside == len(normal) + len(abnormal):
        raise DataError(f"{pack}: no telemetry is within the windows of {ENVIRONMENT}; leave the datapack out")
    for stage, times, window in (("normal", normal, (start, onset)), ("abnormal", abnormal, (onset, end))):
        count = _count_inside(times, *window)
        if count < _MIN_INSIDE * len(times):
            raise DataError(
                f"{pack}: {count} of {len(times)} rows of the {stage} telemetry are in the {stage} window of "
                f"{ENVIRONMENT}; correct its times or leave the datapack out"
            )
    return DatapackWindows(start_ns=start, onset_ns=onset, end_ns=end, shift_ns=shift, outside=outside)


def _zone_offset(offset_ns: int) -> int:
    """Return an offset rounded to quarters of an hour, or 0 if it is not close to one.

    >>> [_zone_offset(minutes * 60 * 10**9) // (60 * 10**9) for minutes in (480, -344.5, 7, 8, 0.5)]
    [480, -345, 0, 0, 0]
    """
    whole = round(offset_ns / _QUARTER_NS) * _QUARTER_NS
    return whole if abs(offset_ns - whole) <= _TOLERANCE_NS else 0


def stage_files(pack: Path, kind: str) -> list[Path]:
    """Return the existing files of a kind, normal before abnormal."""
    return [path for stage in STAGES if (path := pack / f"{stage}_{kind}.parquet").is_file()]


def clock_of(names: Sequence[str]) -> str | None:
    """Return the name of the time column of a raw or converted file."""
    return next((clock for clock in CLOCKS if clock in names), None)


def stamps_ns(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a time column as UTC nanoseconds; the magnitude of numbers determines their unit."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    filled = column.fill_null(0)
    return pa.chunked_array([pa.array(epoch_ns(filled.to_numpy()), mask=column.is_null().to_numpy())])


def _stage_times(pack: Path, stage: str) -> Ints:
    """Return the times of all rows in the files of a window."""
    times = [np.zeros(0, dtype=np.int64)]
    for kind in KINDS:
        path = pack / f"{stage}_{kind}.parquet"
        if not path.is_file():
            continue
        table = read_parquet(path, CLOCKS)
        clock = clock_of(table.column_names)
        if clock is not None and len(table):
            times.append(np.asarray(stamps_ns(table[clock]).drop_null().to_numpy(), dtype=np.int64))
    return np.concatenate(times)


def _find_extent(times_ns: Ints) -> tuple[int, int]:
    """Return the first and last time without stray rows."""
    low = int(np.quantile(times_ns, _STRAY_SHARE, method="higher"))
    high = int(np.quantile(times_ns, 1 - _STRAY_SHARE, method="lower"))
    margin = _STRAY_DISTANCE * (high - low)
    near = times_ns[(times_ns >= low - margin) & (times_ns <= high + margin)]
    return int(near.min()), int(near.max())


def _count_inside(times_ns: Ints, start_ns: int, end_ns: int) -> int:
    return int(np.count_nonzero((times_ns >= start_ns) & (times_ns < end_ns)))


def case_key(pack: Path) -> str:
    """Return the name of a datapack, after the name of its dataset if it has one."""
    dataset = pack.parent
    return f"{dataset.name}/{pack.name}" if dataset.parent.name == "data" else pack.name


_ROLES = (
    ("k8s.*.cpu_limit", "limits", "1", "gauge", "sum"),
    ("k8s.*.cpu_request", "limits", "1", "gauge", "sum"),
    ("k8s.*.memory_limit", "limits", "By", "gauge", "sum"),
    ("k8s.*.memory_request", "limits", "By", "gauge", "sum"),
    ("*_limit_utilization", "saturation", "1", "gauge", "max"),
    ("*_request_utilization", "saturation", "1", "gauge", "max"),
    ("*.cpu.node.utilization", "cpu", "1", "gauge", "sum"),
    ("k8s.*.cpu.*", "cpu", "1", "gauge", "sum"),
    ("container.cpu.*", "cpu", "1", "gauge", "sum"),
    ("k8s.*.memory.*", "memory", "By", "gauge", "sum"),
    ("container.memory.*", "memory", "By", "gauge", "sum"),
    ("k8s.*.network.*", "network", "By", "gauge", "sum"),
    ("k8s.*.filesystem.*", "disk", "By", "gauge", "sum"),
    ("container.filesystem.*", "disk", "By", "gauge", "sum"),
    ("k8s.container.restarts", "restarts", "1", "gauge", "sum"),
    ("k8s.container.ready", "state", "1", "gauge", "sum"),
    ("k8s.pod.phase", "state", "1", "gauge", "max"),
    ("k8s.deployment.*", "state", "1", "gauge", "sum"),
    ("k8s.replicaset.*", "state", "1", "gauge", "sum"),
    ("k8s.statefulset.*", "state", "1", "gauge", "sum"),
    ("http.server.request.duration", "latency", "s", "histogram", "sum"),
    ("http.client.request.duration", "latency", "s", "histogram", "sum"),
    ("hubble_http_request_duration_seconds", "latency", "s", "histogram", "sum"),
    ("hubble_http_request_duration_*", "latency", "s", "gauge", "max"),
    ("hubble_http_requests_total", "traffic", "1", "counter", "sum"),
    ("hubble_*", "network", "1", "gauge", "sum"),
    ("jvm.cpu.*", "cpu", "1", "gauge", "sum"),
    ("jvm.system.cpu.*", "cpu", "1", "gauge", "mean"),
    ("jvm.memory.*", "memory", "By", "gauge", "sum"),
    ("jvm.buffer.memory.*", "memory", "By", "gauge", "sum"),
    ("jvm.gc.duration", "saturation", "s", "histogram", "sum"),
    ("jvm.thread.*", "threads", "1", "gauge", "sum"),
    ("db.client.connections.*", "saturation", "1", "gauge", "sum"),
)

METRIC_ROLES: tuple[Mapping[str, str], ...] = tuple(
    {"source": "rcabench", "metric": metric, "role": role, "unit": unit, "kind": kind, "combine": combine}
    for metric, role, unit, kind, combine in _ROLES
)
RAW_NAMES = {
    "MetricName": "metric", "Value": "value", "ServiceName": "service_name", "Count": "count", "Sum": "sum",
    "Min": "min", "Max": "max", "TraceId": "trace_id", "SpanId": "span_id", "ParentSpanId": "parent_span_id",
    "SpanName": "span_name", "SpanKind": "attr.span_kind", "StatusCode": "attr.status_code", "Duration": "duration",
    "SeverityText": "level", "Body": "message",
}  # fmt: skip
"""Column of a raw file -> the same column of a converted file."""
_JSON_COLUMNS = ("ResourceAttributes", "Attributes", "SpanAttributes")
_POD, _CONTAINER = "k8s.pod.name", "k8s.container.name"
_OWNERS = ("k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name")
_HIDDEN = {_POD, _CONTAINER, "k8s.namespace.name", "service.name", "service.namespace", "k8s.pod.uid", "container.id"}
_SPAN_KINDS = ("server", "client", "internal", "producer", "consumer")
_MIN_GROWING_SHARE = 0.95
Words = list[str | None]


class _Attributes:
    """Attributes of rows, stored once per distinct combination."""

    def __init__(self, table: pa.Table) -> None:
        columns = [name for name in table.column_names if name in _JSON_COLUMNS or name.startswith("attr.")]
        cells = [_codes_and_words(table[name]) for name in columns]
        codes = _number_groups(cells, len(table))
        count = int(codes.max()) + 1 if len(codes) else 0
        first = np.zeros(count, dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        self.codes = codes.astype(np.int32)
        self.maps: list[Mapping[str, Any]] = [
            _merge_attributes(columns, [words[column[row]] for column, words in cells]) for row in first
        ]

    def column(self, *names: str) -> pa.DictionaryArray:
        """Return the first of the named attributes that each row has, as text."""
        texts: Words = []
        for attributes in self.maps:
            value = next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)
            texts.append(None if value is None else str(value))
        return encode_codes(texts, self.codes)

    def labels(self, hidden: set[str]) -> pa.DictionaryArray:
        """Return the attributes of each row that are not hidden, as canonical JSON."""
        texts: Words = [
            canonical_json({name: value for name, value in row.items() if name not in hidden and value is not None})
            for row in self.maps
        ]
        return encode_codes(texts, self.codes)


def sample_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int, *, sums: bool) -> pa.Table:
    """Return the rows of gauges, or of sums; sums that hardly ever fall are counters."""
    table = _prepare(tables, start_ns, end_ns)
    table = table.filter(pc.and_kleene(pc.is_valid(table["value"]), pc.is_finite(table["value"].cast(pa.float64()))))
    attributes = _Attributes(table)
    values = table["value"].cast(pa.float64())
    rows = _metric_table(table, attributes, table["metric"], values)
    return _set_kind_of_growing(rows, "counter") if sums else rows


def histogram_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> Iterator[pa.Table]:
    """Yield the count, sum, min and max of histograms without buckets; counts and sums that often fall are gauges."""
    table = _prepare(tables, start_ns, end_ns)
    attributes = _Attributes(table)
    for statistic in ("count", "sum", "min", "max"):
        if statistic not in table.column_names:
            continue
        values = table[statistic].cast(pa.float64())
        finite = pc.fill_null(pc.is_finite(values), False)
        names = pc.binary_join_element_wise(table["metric"].cast(pa.string()), statistic, "_")
        rows = _metric_table(table, attributes, names, pc.fill_null(values, 0.0)).filter(finite)
        yield _set_kind_of_growing(rows, statistic) if statistic in ("count", "sum") else rows


def _set_kind_of_growing(rows: pa.Table, kind: str) -> pa.Table:
    """Set the kind of metrics that hardly ever fall (see `_find_growing`); other metrics are gauges."""
    if not len(rows):
        return rows
    growing = _find_growing(rows)
    codes, words = _codes_and_words(rows["metric"])
    kinds: Words = [kind if name in growing else "gauge" for name in words if name is not None]
    return rows.set_column(rows.column_names.index("kind"), "kind", encode_codes(kinds, codes.astype(np.int32)))


def span_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> pa.Table:
    """Return the distinct spans that began inside the view."""
    table = drop_repeats(_prepare(tables, start_ns, end_ns), ("trace_id", "span_id"))
    attributes = _Attributes(table)
    service = encode_words(get_text(table, "service_name"))
    parents = empty_to_null(get_text(table, "parent_span_id"))
    inferred, peer = infer_kinds_and_peers(table["span_id"].cast(pa.string()), parents, service)
    kind = attributes.column("span_kind")
    kind = rename_words(kind, lambda word: _shorten(word, _SPAN_KINDS))
    outcomes = [
        read_outcome(_shorten(str(row.get("status_code", "")), ("ok", "error")) or "unset", row)
        for row in attributes.maps
    ]
    attributes.maps = [outcome.attributes for outcome in outcomes]
    return build_table(
        "spans",
        {
            "time": table["at"],
            "trace_id": get_text(table, "trace_id", ""),
            "span_id": get_text(table, "span_id", ""),
            "parent_span_id": parents,
            "service": service,
            "reported_service": pc.fill_null(service.cast(pa.string()), ""),
            "peer_service": peer,
            "pod": attributes.column(_POD),
            "operation": get_text(table, "span_name", ""),
            "kind": pc.coalesce(kind.cast(pa.string()), inferred.cast(pa.string())),
            "duration_ns": table["duration"].cast(pa.int64()),
            "status": encode_codes([outcome.status for outcome in outcomes], attributes.codes),
            "status_code": pa.array([outcome.status_code for outcome in outcomes], pa.int32()).take(
                pa.array(attributes.codes)
            ),
            "attributes": attributes.labels({*_HIDDEN, "span_kind", "status_code"}).cast(pa.string()),
        },
    )


def log_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> pa.Table:
    """Return the log lines inside the view."""
    table = _prepare(tables, start_ns, end_ns)
    attributes = _Attributes(table.drop_columns([name for name in table.column_names if "template" in name]))
    service = encode_words(get_text(table, "service_name"))
    service_name = pc.fill_null(service.cast(pa.string()), "")
    return build_table(
        "logs",
        {
            "time": table["at"],
            "service": service,
            "pod": pc.coalesce(attributes.column(_POD).cast(pa.string()), service_name),
            "container": pc.coalesce(attributes.column(_CONTAINER).cast(pa.string()), service_name),
            "level": rename_levels(get_text(table, "level")),
            "message": get_text(table, "message", ""),
            "trace_id": empty_to_null(get_text(table, "trace_id")),
            "span_id": empty_to_null(get_text(table, "span_id")),
        },
    )


def _prepare(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> pa.Table:
    """Join the rows of both windows under their converted names, with the time as `at`."""
    pieces = []
    for table in tables:
        clock = clock_of(table.column_names)
        if clock is None:
            continue
        raw = "ServiceName" in table.column_names or "MetricName" in table.column_names
        dropped = [name for name in table.column_names if raw and name in ("TimestampTime", "LogAttributes")]
        at = pa.chunked_array([chunk.cast(TIME) for chunk in stamps_ns(table[clock]).chunks], TIME)
        columns = table.drop_columns([clock, *dropped])
        names = [RAW_NAMES.get(name, name) for name in columns.column_names] if raw else columns.column_names
        pieces.append(filter_window(columns.rename_columns(names).append_column("at", at), "at", start_ns, end_ns))
    return pa.concat_tables(pieces, promote_options="permissive")


def _metric_table(
    table: pa.Table, attributes: _Attributes, names: pa.ChunkedArray, values: pa.ChunkedArray
) -> pa.Table:
    owner = attributes.column(*_OWNERS).cast(pa.string())
    return build_table(
        "metrics",
        {
            "time": table["at"],
            "service": pc.coalesce(empty_to_null(get_text(table, "service_name")), owner),
            "pod": attributes.column(_POD),
            "container": attributes.column(_CONTAINER),
            "metric": encode_words(names),
            "labels": attributes.labels(_HIDDEN),
            "kind": constant("gauge", len(table)),
            "value": values,
        },
    )


def _find_growing(rows: pa.Table) -> set[str]:
    """Return the metrics whose series grow and hardly ever fall, and those with the suffix `_total`."""
    series = _number_groups(map(_codes_and_words, rows.select(SERIES_COLUMNS).columns), len(rows))
    order = np.lexsort([rows["time"].cast(pa.int64()).to_numpy(), series])
    metric, words = _codes_and_words(rows["metric"])
    steps = np.diff(rows["value"].to_numpy()[order])
    inside = np.diff(series[order]) == 0
    owner = metric[order][1:][inside]
    steps = steps[inside]
    count = len(words)
    rises = np.bincount(owner[steps > 0], minlength=count)
    falls = np.bincount(owner[steps < 0], minlength=count)
    totals = np.bincount(owner, minlength=count)
    return {
        word
        for word, up, down, total in zip(words, rises, falls, totals, strict=True)
        if word is not None and (word.endswith("_total") or (up and down <= (1 - _MIN_GROWING_SHARE) * total))
    }


def _codes_and_words(column: pa.ChunkedArray | pa.Array) -> tuple[Ints, Words]:
    """Return a code per row and the word of each code; null is the last word."""
    encoded = encode_words(column)
    words: Words = [*encoded.dictionary.to_pylist(), None]
    return encoded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False).astype(np.int64), words


def _number_groups(columns: Iterable[tuple[Ints, Words]], rows: int) -> Ints:
    """Return a number per row for its combination of words."""
    numbers = np.zeros(rows, dtype=np.int64)
    for codes, words in columns:
        numbers = np.unique(numbers * (len(words) + 1) + codes, return_inverse=True)[1].astype(np.int64)
    return numbers


def _merge_attributes(columns: Sequence[str], cells: Sequence[str | None]) -> Mapping[str, Any]:
    attributes: dict[str, Any] = {}
    for name, cell in zip(columns, cells, strict=True):
        if cell is None:
            continue
        content = parse_or_keep(cell) if name in _JSON_COLUMNS else cell
        attributes |= content if isinstance(content, dict) else {name.removeprefix("attr."): cell}
    return attributes


def _shorten(word: str, words: Sequence[str]) -> str | None:
    """Return the last component of SPAN_KIND_SERVER or STATUS_CODE_ERROR if it is one of the words."""
    plain = word.strip().lower().rpartition("_")[2]
    return plain if plain in words else None
