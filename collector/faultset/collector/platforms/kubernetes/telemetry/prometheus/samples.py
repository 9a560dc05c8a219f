"""Raw samples of a Prometheus server: range selectors, never `query_range`.

`query_range` would resample on a grid of its own and keep a dead pod's last value for five minutes. A range selector
gives what was scraped, with the time at which it was. Prometheus leaves staleness markers out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.collector.platforms.kubernetes.telemetry.endpoints import CutAnswer, Endpoint
from faultset.core.errors import PlatformError

SAMPLES_PER_ANSWER = 150_000
_FIRST_STEP_MS, _LEAST_STEP_MS, _MOST_STEP_MS = 60_000, 1_000, 3_600_000
_SELECTOR_CHARACTERS = 4_000
_MS = 1_000_000
_TOO_BIG = ("too many samples", "timed out", "timeout", "too large", "exceed", "resource exhausted", "limit")

Labels = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RawSeries:
    """One series as the server names it, with its samples in order of time.

    Attributes
    ----------
    times
        int64, nanoseconds since 1970.
    values
        float64, without NaN.
    """

    labels: Labels
    times: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def quoted(text: str) -> str:
    """Return a string literal of PromQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def one_of(names: Iterable[str]) -> str:
    """Return the literal of a regular expression that matches exactly these names."""
    return quoted("|".join(re.escape(name) for name in names))


class SampleReader:
    """Reads all samples of a window in answers that are small enough to be whole."""

    def __init__(self, endpoint: Endpoint, *, samples_per_answer: int = SAMPLES_PER_ANSWER):
        self._endpoint = endpoint
        self._wanted = samples_per_answer

    def families(self, matchers: Sequence[str], start_ns: int, end_ns: int) -> list[str]:
        """Return the names of all metrics with samples around the window.

        Parameters
        ----------
        matchers
            Selectors without braces, such as `namespace="shop"`; series of any of them count.
        """
        found = self._data(
            "/api/v1/label/__name__/values",
            {
                "match[]": [f"{{{matcher}}}" for matcher in matchers],
                "start": _seconds(start_ns // _MS),
                "end": _seconds(-(-end_ns // _MS)),
            },
        )
        return sorted(found or ())

    def series(self, matcher: str, families: Sequence[str], start_ns: int, end_ns: int) -> list[RawSeries]:
        """Return every sample with `start_ns <= time < end_ns` of the named metrics.

        Raises
        ------
        PlatformError
            The server refuses, or even one metric in a second is more than it gives.
        """
        pieces: dict[tuple[tuple[str, str], ...], list[tuple[Any, Any]]] = {}
        labels: dict[tuple[tuple[str, str], ...], Labels] = {}
        for batch in _batches(families):
            for one in self._windows(matcher, batch, start_ns // _MS, -(-end_ns // _MS)):
                key = tuple(sorted(one.labels.items()))
                labels.setdefault(key, one.labels)
                pieces.setdefault(key, []).append((one.times, one.values))
        made = []
        for key, parts in pieces.items():
            times = np.concatenate([times for times, _ in parts])
            values = np.concatenate([values for _, values in parts])
            kept = (times >= start_ns) & (times < end_ns) & ~np.isnan(values)
            if kept.any():
                made.append(RawSeries(labels=labels[key], times=times[kept], values=values[kept]))
        return made

    def latest(self, selector: str, window_s: float) -> list[RawSeries]:
        """Return the samples of the last seconds by the server's clock."""
        found = self._query(f"{selector}[{max(1, round(window_s * 1e3))}ms]", None)
        return [one for one in parsed(found) if len(one.times)]

    def instant(self, expression: str) -> list[tuple[Labels, float]]:
        """Return the value of an expression now, series by series."""
        found = self._query(expression, None)
        if isinstance(found, Mapping) and found.get("resultType") == "scalar":
            return [({}, float(found["result"][1]))]
        return [(one.get("metric", {}), float(one["value"][1])) for one in _result(found, "vector")]

    def _windows(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> Iterable[RawSeries]:
        step_ms, at_ms = _FIRST_STEP_MS, start_ms
        while at_ms < end_ms:
            until_ms = min(at_ms + step_ms, end_ms)
            try:
                found = self._range(matcher, families, at_ms, until_ms)
            except PlatformError as error:
                if not is_too_big(error):
                    raise
                if until_ms - at_ms > _LEAST_STEP_MS:
                    step_ms = max(_LEAST_STEP_MS, (until_ms - at_ms) // 2)
                    continue
                if len(families) > 1:
                    half = len(families) // 2
                    yield from self._windows(matcher, families[:half], at_ms, end_ms)
                    yield from self._windows(matcher, families[half:], at_ms, end_ms)
                    return
                raise PlatformError(
                    f"{self._endpoint.name} does not give one second of {families[0]} ({error}); raise its limit on "
                    "samples per query"
                ) from None
            yield from found
            count = sum(len(one.times) for one in found)
            growth = self._wanted / max(count, 1)
            step_ms = int((until_ms - at_ms) * min(max(growth, 0.25), 4.0))
            step_ms = min(max(step_ms, _LEAST_STEP_MS), _MOST_STEP_MS)
            at_ms = until_ms

    def _range(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> list[RawSeries]:
        """Return the samples of `[start, end)`; one server's ranges contain their start, another's do not."""
        selector = f"{{__name__=~{one_of(families)},{matcher}}}[{end_ms - start_ms}ms]"
        made = []
        for one in parsed(self._query(selector, end_ms - 1)):
            times = one.times // _MS
            kept = (times >= start_ms) & (times < end_ms)
            if kept.any():
                made.append(RawSeries(labels=one.labels, times=one.times[kept], values=one.values[kept]))
        return made

    def _query(self, expression: str, at_ms: int | None) -> Any:
        params = {"query": expression} | ({} if at_ms is None else {"time": _seconds(at_ms)})
        return self._data("/api/v1/query", params)

    def _data(self, path: str, params: Mapping[str, str | Sequence[str]]) -> Any:
        answer = self._endpoint.get(path, params)
        if not isinstance(answer, Mapping) or answer.get("status") != "success":
            said = answer.get("error", "no success") if isinstance(answer, Mapping) else "not an object"
            raise PlatformError(f"{self._endpoint.name} refuses {path}: {said}")
        warnings = answer.get("warnings")
        if warnings:
            raise CutAnswer(f"{self._endpoint.name} answers {path} only in part: {warnings[0]}")
        return answer.get("data")


def parsed(data: Any) -> list[RawSeries]:
    """Return the series of the answer to a range selector; NaN stays in, native histograms do not."""
    made = []
    for one in _result(data, "matrix"):
        pairs = one.get("values") or ()
        flat = list(chain.from_iterable(pairs))
        milliseconds = np.rint(np.fromiter(flat[0::2], np.float64, len(pairs)) * 1e3).astype(np.int64)
        values = np.fromiter(map(float, flat[1::2]), np.float64, len(pairs))
        made.append(RawSeries(labels=one["metric"], times=milliseconds * _MS, values=values))
    return made


def is_too_big(error: PlatformError) -> bool:
    """Say whether less at a time may help."""
    text = str(error).lower()
    return isinstance(error, CutAnswer) or any(phrase in text for phrase in _TOO_BIG)


def _result(data: Any, kind: str) -> list[Any]:
    if not isinstance(data, Mapping) or data.get("resultType") != kind:
        raise CutAnswer(f"a Prometheus server was asked for a {kind} and gave something else")
    return data.get("result") or []


def _batches(families: Sequence[str]) -> Iterable[Sequence[str]]:
    batch: list[str] = []
    size = 0
    for family in families:
        if batch and size + len(family) + 1 > _SELECTOR_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(family)
        size += len(family) + 1
    if batch:
        yield batch


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
