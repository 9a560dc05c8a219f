"""Read Prometheus' API responses, text exposition, OpenMetrics and remote write."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.files import canonical_json
from faultset.core.printable import quoted
from faultset.datasets.imports.telemetry.identity import NO_SERVICE, Origin, short_name, split_labels
from faultset.datasets.imports.telemetry.readers.otlp import Point, read_exponential
from faultset.datasets.imports.telemetry.rows import OUTSIDE, ReadingContext, StagedSeries
from faultset.datasets.telemetry_formats.prometheus import KIND_MARK, classic_histogram, read_pairs, sample_kind

UNKNOWN = "unknown"
"""Kind of a sample whose type no file declares; later inferred from the names of all metrics."""
NO_TIME = "has no time (a scrape holds current values; the mapping file can name its time)"
_MS = 1_000_000


def build_series(context: ReadingContext, labels: Mapping[str, Any], kind: str, name: str = "") -> StagedSeries:
    """Return the identity of a series from all its labels; `name` is used if the labels do not name the metric."""
    origin, rest = split_labels(labels, context.origin)
    metric = short_name(rest.pop("__name__", "") or name)
    return StagedSeries(origin, metric, canonical_json(rest), kind)


def read_series(item: Mapping[str, Any], context: ReadingContext, file_stem: str) -> None:
    """Read a series from the response to a range or instant query: floats or native histograms."""
    labels = item.get("metric")
    if not isinstance(labels, Mapping):
        context.rows.drop("has labels that are not an object")
        return
    floats = item.get("values") or ([item["value"]] if item.get("value") else [])
    native = item.get("histograms") or ([item["histogram"]] if item.get("histogram") else [])
    if not labels.get("__name__"):
        context.rows.note("the series has no name and is named after its file")
        labels = {**labels, "__name__": file_stem}
    if floats:
        add_pairs(context, labels, floats)
    if native:
        try:
            for piece in classic_histogram(read_pairs(labels, native, histograms=True)):
                context.rows.add_samples(
                    build_series(context, piece.labels, piece.kind or UNKNOWN), piece.times, piece.values
                )
        except (TypeError, ValueError, KeyError):
            context.rows.drop("is a malformed native histogram", len(native))


def add_pairs(context: ReadingContext, labels: Mapping[str, Any], pairs: Sequence[Any]) -> None:
    """Add the samples of one series, given as pairs of a time in seconds and a value."""
    try:
        raw = read_pairs(labels, pairs)
    except (TypeError, ValueError, OverflowError, IndexError):
        context.rows.drop("is not a pair of time and value", len(pairs))
        return
    context.rows.add_samples(build_series(context, labels, UNKNOWN), raw.times, raw.values)


def read_metadata(data: Mapping[str, Any], context: ReadingContext) -> bool:
    """Keep the metric types in a response of /api/v1/metadata; return False if the data are something else."""
    if not data or not all(isinstance(entries, list) for entries in data.values()):
        return False
    declared = {
        name: str(entries[0].get("type", ""))
        for name, entries in data.items()
        if entries and isinstance(entries[0], Mapping) and "type" in entries[0]
    }
    context.rows.types |= declared
    return bool(declared)


_SAMPLE = re.compile(
    r"""(?P<name>[^\s{}"]*)\s*(?:\{(?P<labels>(?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?\s+"""
    r"(?P<value>[+-]?(?:\d[\d_.]*(?:[eE][+-]?\d+)?|\.\d+|Inf(?:inity)?|NaN))(?:\s+(?P<time>[+-]?\d[\d.eE+]*))?\s*(?P<exemplar>#.*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,="]+))\s*(?:=\s*"((?:[^"\\]|\\.)*)"\s*)?(?:,|$)""")
_ESCAPE = re.compile(r"\\(.)")


def is_exposition(lines: Sequence[str]) -> bool:
    """Return whether lines look like text exposition or OpenMetrics."""
    samples = [line for line in lines if line.strip() and not line.startswith("#")]
    types = sum(line.startswith(("# TYPE ", "# HELP ", "# UNIT ", "# EOF")) for line in lines)
    matches = sum(_SAMPLE.fullmatch(line.strip()) is not None and _has_metric_name(line) for line in samples)
    return matches > 0 and matches >= 0.8 * len(samples) and (types > 0 or matches == len(samples))


def _has_metric_name(line: str) -> bool:
    name = re.split(r"[\s{]", line.strip(), maxsplit=1)[0]
    return not name or re.fullmatch(r"[a-zA-Z_:][\w:.]*", name, re.ASCII) is not None


class ExpositionText:
    """Reads the lines of text exposition and OpenMetrics; each series is parsed once."""

    def __init__(self, context: ReadingContext, default_time_ns: int | None = None) -> None:
        self._context, self._default_time_ns = context, default_time_ns
        self._family, self._type, self._recorded = "", "", ""
        self._series: dict[tuple[str, str], StagedSeries | None] = {}

    def read(self, line: str) -> None:
        """Read a line."""
        text = line.strip()
        if not text:
            return
        if text.startswith("#"):
            self._read_comment(text)
            return
        match = _SAMPLE.fullmatch(text)
        if match is None:
            self._context.rows.drop("is not a sample")
            return
        key = (match["name"], match["labels"] or "")
        if key not in self._series:
            self._series[key] = self._parse(*key)
        series = self._series[key]
        if series is None:
            return
        if match["exemplar"]:
            self._context.rows.note("exemplars are not kept")
        value = float(match["value"].replace("_", ""))
        if math.isnan(value):
            return
        time_ns = self._default_time_ns
        if stamp := match["time"]:
            time_ns = self._context.parse_time(float(stamp) if "e" in stamp.lower() else stamp)
        if time_ns is None:
            self._context.rows.drop(NO_TIME)
            return
        self._context.rows.add_sample(series, time_ns, value)

    def finish(self) -> None:
        """Do nothing; no lines are buffered."""

    def _read_comment(self, text: str) -> None:
        words = text.split(None, 3)
        if len(words) < 4:
            return
        if words[1] == "TYPE":
            recorded = self._recorded if self._family == words[2] else ""
            self._family, self._type, self._recorded = words[2].strip('"'), words[3].strip().lower(), recorded
            self._context.rows.types.setdefault(self._family, self._type)
            self._series.clear()
        elif words[1] == "HELP" and words[3].startswith(KIND_MARK):
            self._family, self._recorded = words[2], words[3].removeprefix(KIND_MARK)
            self._series.clear()

    def _parse(self, name: str, text: str) -> StagedSeries | None:
        labels: dict[str, str] = {}
        position = 0
        while position < len(text.rstrip()):
            match = _LABEL.match(text, position)
            if match is None:
                self._context.rows.drop("has malformed labels")
                return None
            label = _unescape(match[1]) if match[1] is not None else match[2]
            if match[3] is None:
                labels["__name__"] = label
            else:
                labels[label] = _unescape(match[3])
            position = match.end()
        metric = name or labels.get("__name__", "")
        if not metric:
            self._context.rows.drop("is a series without a name")
            return None
        if metric.endswith("_created") and self._type in ("counter", "histogram", "summary"):
            return None
        kind = self._find_kind(metric)
        if self._recorded:
            return _our_series(metric, labels, kind)
        return build_series(self._context, labels | {"__name__": metric}, kind)

    def _find_kind(self, metric: str) -> str:
        if not metric.startswith(self._family) or not self._family:
            return UNKNOWN
        if self._recorded:
            return self._recorded
        if self._type in ("", "unknown", "untyped"):
            return UNKNOWN
        return sample_kind(metric, self._family, self._type)


def _our_series(metric: str, labels: dict[str, str], kind: str) -> StagedSeries:
    """Return a series of our own export, which puts `label_` before labels that have the name of a column."""
    columns = {name: labels.pop(name) for name in _COLUMNS if name in labels}
    origin = Origin(
        service=columns.get("service") or NO_SERVICE, pod=columns.get("pod", ""), container=columns.get("container", "")
    )
    rest = {
        name.removeprefix("label_") if name[6:] in columns or name[6:] in _COLUMNS else name: v
        for name, v in labels.items()
    }
    rest.pop("__name__", None)
    return StagedSeries(origin, metric, canonical_json(rest), kind)


_COLUMNS = ("service", "pod", "container")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


_FIELDS: dict[str, list[tuple[str, int, str, bool]]] = {
    "Label": [("name", 1, "string", False), ("value", 2, "string", False)],
    "Sample": [("value", 1, "double", False), ("timestamp", 2, "int64", False)],
    "BucketSpan": [("offset", 1, "sint32", False), ("length", 2, "uint32", False)],
    "Histogram": [
        ("count_int", 1, "uint64", False), ("count_float", 2, "double", False), ("sum", 3, "double", False),
        ("schema", 4, "sint32", False), ("zero_threshold", 5, "double", False), ("zero_count_int", 6, "uint64", False),
        ("zero_count_float", 7, "double", False), ("negative_spans", 8, "BucketSpan", True),
        ("negative_deltas", 9, "sint64", True), ("negative_counts", 10, "double", True),
        ("positive_spans", 11, "BucketSpan", True), ("positive_deltas", 12, "sint64", True),
        ("positive_counts", 13, "double", True), ("timestamp", 15, "int64", False),
    ],
    "TimeSeries": [
        ("labels", 1, "Label", True), ("samples", 2, "Sample", True), ("histograms", 4, "Histogram", True),
    ],
    "MetricMetadata": [("type", 1, "int32", False), ("metric_family_name", 2, "string", False)],
    "WriteRequest": [("timeseries", 1, "TimeSeries", True), ("metadata", 3, "MetricMetadata", True)],
}  # fmt: skip
"""Fields of the messages of remote write 1.0: name, number, type, and whether the field is repeated."""
_METADATA_TYPES = ("", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")


@cache
def _build_request_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="faultset/remote_write.proto", package="faultset", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in _FIELDS:
                added.type_name = f".faultset.{kind}"
            type_name = "MESSAGE" if kind in _FIELDS else kind.upper()
            added.type = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{type_name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("faultset.WriteRequest"))


def decode_remote_write(body: bytes) -> Any | None:
    """Return a remote-write request, with or without Snappy compression; None if the bytes are not one."""
    from google.protobuf.message import DecodeError

    for piece in (body, _decompress_snappy(body)):
        if piece is None:
            continue
        try:
            request = _build_request_class().FromString(piece)
        except DecodeError:
            continue
        if request.timeseries and all(any(label.name == "__name__" for label in s.labels) for s in request.timeseries):
            return request
    return None


def _decompress_snappy(body: bytes) -> bytes | None:
    """Return the content of a raw Snappy block, which begins with its unpacked size; None for other bytes."""
    size, shift = 0, 0
    for byte in body[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if not 0 < size <= max(1 << 26, 64 * len(body)):
        return None
    try:
        return pa.decompress(body, decompressed_size=size, codec="snappy", asbytes=True)
    except (pa.ArrowException, OSError, ValueError):
        return None


def read_remote_write(request: Any, context: ReadingContext) -> None:
    """Read the series of a remote-write request."""
    for entry in request.metadata:
        if 0 < entry.type < len(_METADATA_TYPES):
            context.rows.types[entry.metric_family_name] = _METADATA_TYPES[entry.type]
    for raw in request.timeseries:
        labels = {label.name: label.value for label in raw.labels}
        if raw.samples:
            times = np.array([sample.timestamp for sample in raw.samples], dtype=np.int64)
            values = np.array([sample.value for sample in raw.samples])
            inside = np.abs(times) < (1 << 62) // _MS
            context.rows.drop(OUTSIDE, int((~inside).sum()))
            context.rows.add_samples(build_series(context, labels, UNKNOWN), times[inside] * _MS, values[inside])
        for histogram in raw.histograms:
            _read_native(histogram, labels, context)


def _read_native(histogram: Any, labels: Mapping[str, str], context: ReadingContext) -> None:
    if not -4 <= histogram.schema <= 8:
        context.rows.drop(f"is a native histogram of the unsupported schema {quoted(histogram.schema)}")
        return
    origin, rest = split_labels(labels, context.origin)
    metric = short_name(rest.pop("__name__", ""))
    content = {
        "scale": histogram.schema,
        "count": histogram.count_int or histogram.count_float,
        "sum": histogram.sum,
        "zeroThreshold": histogram.zero_threshold,
        "zeroCount": histogram.zero_count_int or histogram.zero_count_float,
        "positive": _expand(histogram.positive_spans, histogram.positive_deltas, histogram.positive_counts),
        "negative": _expand(histogram.negative_spans, histogram.negative_deltas, histogram.negative_counts),
    }
    read_exponential(Point(context, origin, metric, rest, histogram.timestamp * _MS), content, "")


def _expand(spans: Iterable[Any], deltas: Sequence[int], counts: Sequence[float]) -> dict[str, Any]:
    """Return buckets in OTLP's format, whose indices are one less than those of Prometheus."""
    values = iter(counts or map(float, accumulate(deltas)))
    buckets: list[float] = []
    first: int | None = None
    for span in spans:
        if first is None:
            first = span.offset - 1
        else:
            buckets += [0.0] * min(span.offset, 20_000)
        buckets += [next(values, 0.0) for _ in range(min(span.length, 20_000))]
    return {"offset": first or 0, "bucketCounts": buckets}
