"""In-memory store of metric samples, 20 bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from faultset.collector.sources.columns import Numbers, Words, copy_column, name_array
from faultset.datasets.format.schemas import METRICS, TIME, without_episode


class SeriesKey(NamedTuple):
    """All fields of a metrics row except time and value; `service` may be derived from the pod later."""

    service: str | None
    pod: str | None
    container: str | None
    metric: str
    labels: str
    kind: str


SCHEMA = without_episode(METRICS)


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
        return pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


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
