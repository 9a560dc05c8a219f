"""In-memory store of spans, 80 bytes each plus attributes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from faultset.collector.sources.columns import (
    Numbers,
    Words,
    copy_column,
    hex_array,
    name_array,
)
from faultset.datasets.format.schemas import SPANS, TIME, without_episode
from faultset.datasets.telemetry_formats.spans import SpanRow

SCHEMA = without_episode(SPANS)

_WORD_COLUMNS = ("reported_service", "pod", "peer_service", "operation", "kind", "status", "attributes")
_NO_STATUS_CODE = -(2**31)
_TRACE_BYTES, _SPAN_BYTES = 16, 8
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class SpanStore:
    """Finished spans in order of arrival."""

    def __init__(self) -> None:
        self._starts = array("q")
        self._durations = array("q")
        self._status_codes = array("i")
        self._trace_ids = bytearray()
        self._span_ids = bytearray()
        self._parent_ids = bytearray()
        self._words = {column: Words() for column in _WORD_COLUMNS}
        self._codes = {column: array("i") for column in _WORD_COLUMNS}

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, span: SpanRow) -> None:
        """Add a span; windows drop duplicates of spans that were sent twice."""
        self._starts.append(span.start_ns)
        self._durations.append(span.duration_ns)
        self._status_codes.append(_NO_STATUS_CODE if span.status_code is None else span.status_code)
        self._trace_ids += span.trace_id[:_TRACE_BYTES].rjust(_TRACE_BYTES, b"\0")
        self._span_ids += span.span_id[:_SPAN_BYTES].rjust(_SPAN_BYTES, b"\0")
        self._parent_ids += span.parent_span_id[:_SPAN_BYTES].rjust(_SPAN_BYTES, b"\0")
        for column in _WORD_COLUMNS:
            self._codes[column].append(self._words[column].number(getattr(span, column)))

    def discard(self, before_ns: int) -> None:
        """Drop the spans that started before a time, and the words that only they used."""
        is_recent = copy_column(self._starts, "i8") >= before_ns
        self._starts = array("q", copy_column(self._starts, "i8")[is_recent].tobytes())
        self._durations = array("q", copy_column(self._durations, "i8")[is_recent].tobytes())
        self._status_codes = array("i", copy_column(self._status_codes, "i4")[is_recent].tobytes())
        for name, width in (("_trace_ids", _TRACE_BYTES), ("_span_ids", _SPAN_BYTES), ("_parent_ids", _SPAN_BYTES)):
            setattr(
                self, name, bytearray(copy_column(getattr(self, name), "u1").reshape(-1, width)[is_recent].tobytes())
            )
        for column in _WORD_COLUMNS:
            words, codes = self._words[column].words, copy_column(self._codes[column], "i4")[is_recent]
            self._words[column] = new_words = Words()
            numbers = {code: new_words.number(words[code]) for code in np.unique(codes).tolist() if code >= 0}
            self._codes[column] = array("i", [numbers.get(code, -1) for code in codes.tolist()])

    def window(self, start_ns: int, end_ns: int) -> SpanWindow:
        """Return a copy of the spans with `start_ns <= start < end_ns`."""
        starts = copy_column(self._starts, "i8")
        is_inside = (starts >= start_ns) & (starts < end_ns)
        numbers = {
            "start": starts[is_inside],
            "duration": copy_column(self._durations, "i8")[is_inside],
            "status_code": copy_column(self._status_codes, "i4")[is_inside],
        } | {column: copy_column(codes, "i4")[is_inside] for column, codes in self._codes.items()}
        ids = {
            "trace_id": copy_column(self._trace_ids, "u1").reshape(-1, _TRACE_BYTES)[is_inside],
            "span_id": copy_column(self._span_ids, "u1").reshape(-1, _SPAN_BYTES)[is_inside],
            "parent_span_id": copy_column(self._parent_ids, "u1").reshape(-1, _SPAN_BYTES)[is_inside],
        }
        return SpanWindow(numbers, ids, {column: tuple(words.words) for column, words in self._words.items()})


class SpanWindow:
    """Spans of one window."""

    def __init__(self, numbers: dict[str, Numbers], ids: dict[str, Numbers], words: dict[str, tuple[str, ...]]):
        self._numbers = numbers
        self._ids = ids
        self._words = words

    def table(self, services: Mapping[str, str | None]) -> pa.Table:
        """Return the distinct spans in order of start, with the service of the pod that sent each."""
        order = self._find_first_copies()
        order = order[np.argsort(self._numbers["start"][order], kind="stable")]
        numbers = {column: values[order] for column, values in self._numbers.items()}
        ids = {column: hex_array(values[order]) for column, values in self._ids.items()}
        status_codes = numbers["status_code"]
        pods = self._words["pod"]
        owners = Words()
        owner_of_pod = np.array([owners.number(services.get(pod)) for pod in pods] + [-1], dtype=np.int32)
        columns: dict[str, pa.Array] = {
            column: name_array(numbers[column], self._words[column]) for column in _WORD_COLUMNS
        } | {
            "time": pa.array(numbers["start"], TIME),
            "duration_ns": pa.array(numbers["duration"], pa.int64()),
            "status_code": pa.array(status_codes, pa.int32(), mask=status_codes == _NO_STATUS_CODE),
            "service": name_array(owner_of_pod[numbers["pod"]], owners.words),
        }
        columns["attributes"] = columns["attributes"].cast(pa.string())
        return pa.Table.from_arrays([(columns | ids)[name] for name in SCHEMA.names], schema=SCHEMA)

    def _find_first_copies(self) -> Numbers:
        """Return the indices of the first copy of each span."""
        trace = np.ascontiguousarray(self._ids["trace_id"]).view(np.uint64).reshape(-1, 2)
        span = np.ascontiguousarray(self._ids["span_id"]).view(np.uint64).reshape(-1)
        _, first = np.unique(span ^ (trace[:, 0] * _HASH_FACTOR) ^ trace[:, 1], return_index=True)
        return np.sort(first)
