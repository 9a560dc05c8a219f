"""In-memory stores of metric samples and spans, and the reader of Prometheus' text format that fills the former."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families

from faultset.core.files import replace_surrogates
from faultset.datasets.format.schemas import METRICS, SPANS, TIME, without_episode
from faultset.datasets.telemetry_formats.prometheus import canonical_labels, sample_kind
from faultset.datasets.telemetry_formats.spans import SpanRow

Numbers = npt.NDArray[Any]

_HEX_DIGITS = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), dtype="S2")


class Words:
    """Assigns numbers to distinct strings in order of first appearance; None gets -1."""

    __slots__ = ("_numbers", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str | None) -> int:
        """Return the number of a string; a new string gets the next number."""
        if word is None:
            return -1
        number = self._numbers.get(word)
        if number is None:
            text = replace_surrogates(word)
            number = self._numbers.setdefault(text, len(self.words))
            if number == len(self.words):
                self.words.append(text)
            self._numbers[word] = number
        return number


def copy_column(column: array[Any] | bytearray, dtype: str) -> Numbers:
    return np.frombuffer(bytes(column), dtype=dtype)


def name_array(codes: Numbers, words: Sequence[str]) -> pa.DictionaryArray:
    """Return a dictionary array of words by number (-1 is null), without unused words."""
    used_codes = np.unique(codes)
    used_codes = used_codes[used_codes >= 0]
    position = np.full(len(words) + 1, -1, dtype=np.int32)
    position[used_codes] = np.arange(len(used_codes), dtype=np.int32)
    compact = position[codes]
    indices = pa.array(compact, pa.int32(), mask=compact < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array([words[number] for number in used_codes], pa.string()))


def hex_array(ids: Numbers) -> pa.StringArray:
    """Return ids (one per row of bytes) as hex strings; an id of zeros is null."""
    count, width = ids.shape
    offsets = np.arange(count + 1, dtype=np.int32) * (2 * width)
    valid = np.packbits(ids.any(axis=1), bitorder="little")
    buffers = (offsets, _HEX_DIGITS[ids].tobytes(), valid)
    return pa.StringArray.from_buffers(count, *(pa.py_buffer(buffer) for buffer in buffers))


class SeriesKey(NamedTuple):
    """All fields of a metrics row except time and value; `service` may be derived from the pod later."""

    service: str | None
    pod: str | None
    container: str | None
    metric: str
    labels: str
    kind: str


_METRIC_SCHEMA = without_episode(METRICS)


class MetricStore:
    """Rows of (time, series number, value), and the series."""

    def __init__(self) -> None:
        self._times = array("q")
        self._numbers = array("i")
        self._values = array("d")
        self._series: list[SeriesKey] = []
        self._index: dict[SeriesKey, int] = {}
        self._free_numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._times)

    def number(self, series: SeriesKey) -> int:
        """Return the number of a series; a new series gets a free number or the next one."""
        number = self._index.get(series)
        if number is not None:
            return number
        if self._free_numbers:
            number = self._free_numbers.pop()
            self._series[number] = series
        else:
            number = len(self._series)
            self._series.append(series)
        self._index[series] = number
        return number

    @property
    def pods(self) -> set[str | None]:
        """The pods that have series."""
        return {series.pod for series in self._index}

    def add(self, time_ns: int, numbers: Sequence[int], values: Sequence[float]) -> None:
        """Add one sample per series, all with the same time."""
        self._times.extend([time_ns] * len(numbers))
        self._numbers.extend(numbers)
        self._values.extend(values)

    def discard(self, before_ns: int, ended: Collection[str] = ()) -> None:
        """Drop the samples before a time, and the series of ended pods without a later sample.

        The numbers of these series are reused for other series, so callers must not use them again.
        """
        is_recent = copy_column(self._times, "i8") >= before_ns
        for name, code in (("_times", "i8"), ("_numbers", "i4"), ("_values", "f8")):
            column: array[Any] = getattr(self, name)
            setattr(self, name, array(column.typecode, copy_column(column, code)[is_recent].tobytes()))
        if not ended:
            return
        sampled_numbers = {*np.unique(copy_column(self._numbers, "i4")).tolist()}
        for series, number in [*self._index.items()]:
            if series.pod in ended and number not in sampled_numbers:
                del self._index[series]
                self._free_numbers.append(number)

    def window(self, start_ns: int, end_ns: int) -> MetricWindow:
        """Return a copy of the samples with `start_ns <= time < end_ns`."""
        times = copy_column(self._times, "i8")
        is_inside = (times >= start_ns) & (times < end_ns)
        numbers, values = copy_column(self._numbers, "i4"), copy_column(self._values, "f8")
        return MetricWindow(times[is_inside], numbers[is_inside], values[is_inside], tuple(self._series))


class MetricWindow:
    """Samples of one window."""

    def __init__(self, times: Numbers, numbers: Numbers, values: Numbers, series: Sequence[SeriesKey]):
        self._times = times
        self._numbers = numbers
        self._values = values
        self._series = series

    def table(self, services: Mapping[str, str | None]) -> pa.Table:
        """Return the rows in time order; a missing service is looked up by pod."""
        order = np.argsort(self._times, kind="stable")
        numbers = self._numbers[order]
        columns: dict[str, pa.Array] = {
            "time": pa.array(self._times[order], TIME),
            "value": pa.array(self._values[order], pa.float64()),
        }
        resolved = [
            series if series.service or series.pod is None else series._replace(service=services.get(series.pod))
            for series in self._series
        ]
        for field in SeriesKey._fields:
            words = Words()
            codes = np.array([words.number(getattr(series, field)) for series in resolved] or [-1], dtype=np.int32)
            columns[field] = name_array(codes[numbers], words.words)
        return pa.Table.from_arrays([columns[name] for name in _METRIC_SCHEMA.names], schema=_METRIC_SCHEMA)


POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
CLAIM_PHASES = ("Pending", "Bound", "Lost")
VOLUME_PHASES = ("Available", "Bound", "Released", "Failed", "Pending")
WAITING_REASONS = (
    "ContainerCreating",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "ImagePullBackOff",
    "RunContainerError",
)
TERMINATED_REASONS = ("Completed", "Error", "OOMKilled", "StartError")


_SPAN_SCHEMA = without_episode(SPANS)

_WORD_COLUMNS = ("reported_service", "pod", "peer_service", "operation", "kind", "status", "attributes")
_NO_STATUS_CODE = -(2**31)
_ID_BYTES = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class SpanStore:
    """Finished spans in order of arrival."""

    def __init__(self) -> None:
        self._numbers = {"start": array("q"), "duration": array("q"), "status_code": array("i")}
        self._ids = {column: bytearray() for column in _ID_BYTES}
        self._words = {column: Words() for column in _WORD_COLUMNS}
        self._codes = {column: array("i") for column in _WORD_COLUMNS}

    def __len__(self) -> int:
        return len(self._numbers["start"])

    def add(self, span: SpanRow) -> None:
        """Add a span; windows drop duplicates of spans that were sent twice."""
        numbers, ids, codes = self._numbers, self._ids, self._codes
        numbers["start"].append(span.start_ns)
        numbers["duration"].append(span.duration_ns)
        numbers["status_code"].append(_NO_STATUS_CODE if span.status_code is None else span.status_code)
        for column, width in _ID_BYTES.items():
            ids[column] += getattr(span, column)[:width].rjust(width, b"\0")
        for column in _WORD_COLUMNS:
            codes[column].append(self._words[column].number(getattr(span, column)))

    def discard(self, before_ns: int) -> None:
        """Drop the spans that started before a time, and the words that only they used."""
        numbers, ids, codes = self._select(copy_column(self._numbers["start"], "i8") >= before_ns)
        self._numbers = {
            column: array(self._numbers[column].typecode, values.tobytes()) for column, values in numbers.items()
        }
        self._ids = {column: bytearray(values.tobytes()) for column, values in ids.items()}
        for column in _WORD_COLUMNS:
            words = self._words[column].words
            self._words[column] = new_words = Words()
            new_codes = {code: new_words.number(words[code]) for code in np.unique(codes[column]).tolist() if code >= 0}
            self._codes[column] = array("i", [new_codes.get(code, -1) for code in codes[column].tolist()])

    def window(self, start_ns: int, end_ns: int) -> SpanWindow:
        """Return a copy of the spans with `start_ns <= start < end_ns`."""
        starts = copy_column(self._numbers["start"], "i8")
        numbers, ids, codes = self._select((starts >= start_ns) & (starts < end_ns))
        words = {column: tuple(words.words) for column, words in self._words.items()}
        return SpanWindow(numbers | codes, ids, words)

    def _select(self, is_selected: Numbers) -> tuple[dict[str, Numbers], dict[str, Numbers], dict[str, Numbers]]:
        """Return copies of the selected numbers, ids and codes of words by column."""
        return (
            {column: copy_column(values, values.typecode)[is_selected] for column, values in self._numbers.items()},
            {
                column: copy_column(self._ids[column], "u1").reshape(-1, width)[is_selected]
                for column, width in _ID_BYTES.items()
            },
            {column: copy_column(values, "i4")[is_selected] for column, values in self._codes.items()},
        )


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
        return pa.Table.from_arrays([(columns | ids)[name] for name in _SPAN_SCHEMA.names], schema=_SPAN_SCHEMA)

    def _find_first_copies(self) -> Numbers:
        """Return the indices of the first copy of each span."""
        trace = np.ascontiguousarray(self._ids["trace_id"]).view(np.uint64).reshape(-1, 2)
        span = np.ascontiguousarray(self._ids["span_id"]).view(np.uint64).reshape(-1)
        _, first = np.unique(span ^ (trace[:, 0] * _HASH_FACTOR) ^ trace[:, 1], return_index=True)
        return np.sort(first)


class ExpositionReader:
    """Reads the scrapes of one target.

    The text before the value is the same in every scrape, so each series is parsed once and then looked up.
    Timestamps in the text are ignored in favour of the scraper's clock.

    Parameters
    ----------
    register
        Called once per new series with its metric, canonical labels and kind; returns its number.
    """

    def __init__(self, register: Callable[[str, str, str], int]):
        self._register = register
        self._numbers: dict[str, int] = {}

    def read(self, text: str) -> tuple[list[int], list[float]]:
        """Return the series numbers and values of all samples in one scrape.

        Raises
        ------
        ValueError
            The text is not in the exposition format.
        """
        numbers: list[int] = []
        values: list[float] = []
        cache = self._numbers
        family, family_type = "", "untyped"
        for line in text.splitlines():
            if line.startswith("#"):
                words = line.split(None, 3)
                if len(words) == 4 and words[1] == "TYPE":
                    family, family_type = words[2], words[3].strip()
                continue
            head, _, tail = line.rpartition(" ")
            if not head:
                if line.strip():
                    raise ValueError(f"not a sample: {line!r}")
                continue
            number = cache.get(head)
            if number is None:
                number, tail, cacheable = self._parse(line, family, family_type)
                if cacheable:
                    cache[head] = number
            numbers.append(number)
            values.append(float(tail))
        return numbers, values

    def _parse(self, line: str, family: str, family_type: str) -> tuple[int, str, bool]:
        samples = [sample for parsed in text_string_to_metric_families(line + "\n") for sample in parsed.samples]
        if len(samples) != 1:
            raise ValueError(f"not a sample: {line!r}")
        sample = samples[0]
        kind = sample_kind(sample.name, family, family_type) if sample.name.startswith(family) else "gauge"
        number = self._register(sample.name, canonical_labels(sample.labels), kind)
        return number, repr(sample.value), sample.timestamp is None
