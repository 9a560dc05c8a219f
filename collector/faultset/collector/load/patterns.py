"""Load patterns: how the rate of client requests changes over an episode.

A pattern is written `KIND` or `KIND:name=value,name=value`, for instance `bursty:burst=3`, and `replay:FILE`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, repeat
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field

from faultset.core.documents import STRICT
from faultset.core.errors import UsageError, unknown_name
from faultset.core.printable import printable
from faultset.core.regular_files import read_regular

RATE_COLUMNS = ("time_s", "rate_rps")
MAX_ROWS = 20_000
LARGEST_RATE_RPS = 10_000.0
LATEST_S = 1e12
_LIMIT_BYTES = 4 << 20
CONSTANT, REPLAY = "constant", "replay"
STEP_S = 0.5
"""Length of a step of constant rate, in seconds."""
_PARAMETERS: dict[str, dict[str, tuple[float, float, float]]] = {
    "bursty": {"wave": (0.25, 0, 0.9), "burst": (1.8, 1, 20), "burst_s": (3, 0.5, 3600), "calm_s": (12, 0.5, 3600)},
    "daily": {"night": (0.4, 0.01, 1), "burst": (1, 1, 20), "burst_s": (20, 0.5, 3600), "calm_s": (240, 0.5, 3600)},
    "flash-crowd": {"factor": (2.5, 1, 100), "rise_s": (5, 0.5, 3600), "decay_s": (30, 1, 36_000)},
    "ramp": {"first": (0.6, 0.01, 100), "last": (1.4, 0.01, 100)},
}
"""Default, minimum and maximum of each parameter."""


@dataclass(frozen=True, kw_only=True)
class RecordedRates:
    """Request rates read from a file."""

    mean_rps: float
    """Mean rate over the whole file."""
    rates: tuple[tuple[float, float], ...]
    """Pairs of a time in seconds and the rate from that time, as a multiple of the mean. The last pair marks the
    end."""


def read_rates(path: Path) -> RecordedRates:
    """Read a CSV file with the columns `time_s` and `rate_rps`; times must increase, and the first one counts as zero.

    Raise UsageError, which names the line, if the file or a line is invalid.
    """
    rows = _read_rows(path)
    ends = [*(time for time, _ in rows[1:]), 2 * rows[-1][0] - rows[-2][0]]
    lengths = [end - time for (time, _), end in zip(rows, ends, strict=True)]
    mean = sum(rate * length for (_, rate), length in zip(rows, lengths, strict=True)) / sum(lengths)
    if mean <= 0:
        raise UsageError(f"{printable(path)} must have a rate above zero, but all of them are zero")
    start = rows[0][0]
    rates = [(round(time - start, 6), round(rate / mean, 9)) for time, rate in rows]
    rates.append((round(ends[-1] - start, 6), rates[0][1]))
    return RecordedRates(mean_rps=mean, rates=tuple(rates))


def _read_rows(path: Path) -> list[tuple[float, float]]:
    try:
        text = read_regular(path, limit_bytes=_LIMIT_BYTES, error=UsageError).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{printable(path)} must be a CSV file in UTF-8, but is not") from None
    name, lines = printable(path), csv.reader(io.StringIO(text), strict=True)
    rows: list[tuple[float, float]] = []
    try:
        header = [cell.strip() for cell in next(lines, [])]
        if missing := [column for column in RATE_COLUMNS if header.count(column) != 1]:
            columns = printable(", ".join(header)[:80]) or "empty"
            raise UsageError(f"{name} must have exactly one column {missing[0]}, but its first line is {columns}")
        columns_at = [header.index(column) for column in RATE_COLUMNS]
        for cells in lines:
            if any(cell.strip() for cell in cells):
                rows.append(_parse_row(cells, columns_at, rows, f"line {lines.line_num} of {name}"))
            if len(rows) > MAX_ROWS:
                raise UsageError(f"{name} must have at most {MAX_ROWS} rates; average them over longer times")
    except csv.Error as error:
        raise UsageError(f"line {lines.line_num} of {name} is not valid CSV ({printable(str(error))})") from None
    if len(rows) < 2:
        raise UsageError(f"{name} must have at least two rates, but has {len(rows)}")
    return rows


def _parse_row(
    cells: list[str], columns_at: list[int], before: list[tuple[float, float]], origin: str
) -> tuple[float, float]:
    numbers: list[float] = []
    for column, index in zip(RATE_COLUMNS, columns_at, strict=True):
        text = cells[index].strip() if index < len(cells) else ""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{origin} must have a number in {column}, but has {printable(text[:40]) or 'nothing'}")
        numbers.append(number)
    time_s, rate_rps = numbers
    if not 0 <= rate_rps <= LARGEST_RATE_RPS:
        raise UsageError(f"{origin} must have a rate from 0 to {LARGEST_RATE_RPS:g}, but has {rate_rps:g}")
    if abs(time_s) > LATEST_S:
        raise UsageError(f"{origin} must have a time_s of at most {LATEST_S:g} seconds, but has {time_s:g}")
    if before and not time_s >= before[-1][0] + 1e-3:
        raise UsageError(f"{origin} must have a later time_s than the line before, but has {time_s:g}")
    return time_s, rate_rps


_MEAN_OF_BUMPS = math.sqrt(math.pi) * (3.2 + 0.9 * 2.2 * (1 + math.erf(4.5 / 2.2)) / 2) / 24

Finite = Annotated[float, Field(allow_inf_nan=False)]


class PatternParameter(NamedTuple):
    """Default and range of a parameter of a pattern."""

    default: float
    low: float
    high: float


class PatternKind(NamedTuple):
    """A function that yields the rate in each step of `STEP_S` as a multiple of the mean, and its parameters."""

    curve: Callable[[LoadPattern, np.random.Generator], Iterator[float]]
    parameters: Mapping[str, PatternParameter]


@dataclass(frozen=True, kw_only=True)
class LoadPattern:
    """A kind of pattern with its parameters."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: str = CONSTANT
    parameters: dict[str, Finite] = field(default_factory=dict[str, float])
    horizon_s: Finite = 0.0
    """Seconds from the start of the load that the pattern covers: the length of a day or a ramp, the time within which
    a crowd arrives, or the period of a wave before random scaling."""
    rates: tuple[tuple[Finite, Finite], ...] = ()
    """For `replay`: pairs of a time in seconds and the rate from that time, as a multiple of the mean. The last pair
    marks the end, where the pattern repeats."""

    def __getitem__(self, name: str) -> float:
        """Return the value of a parameter, or its default."""
        return self.parameters.get(name, KINDS[self.kind].parameters[name].default)

    @property
    def is_constant(self) -> bool:
        return self.kind == CONSTANT

    @property
    def min_share(self) -> float:
        """Lowest rate of the pattern, as a share of the mean rate."""
        if self.kind in ("bursty", "daily"):
            share = self["burst_s"] / (self["burst_s"] + self["calm_s"])
            slowest = 1 - self["wave"] if self.kind == "bursty" else self["night"]
            return slowest / (1 + share * (self["burst"] - 1))
        if self.kind == "ramp":
            return min(self["first"], self["last"])
        if self.kind == REPLAY:
            return min(rate for _, rate in self.rates)
        return 1.0

    def as_text(self) -> str:
        """Return the pattern as text that `parse_pattern` reads, except that the file of a replay is left out.

        >>> parse_pattern("bursty:burst=3").as_text()
        'bursty:burst=3'
        """
        parameters = ",".join(f"{name}={value:g}" for name, value in self.parameters.items())
        return f"{self.kind}:{parameters}" if parameters else self.kind

    def as_record(self) -> dict[str, object]:
        """Return the kind and all parameters, as labels and contexts record them."""
        parameters = {name: self[name] for name in KINDS[self.kind].parameters}
        return {"kind": self.kind, "parameters": parameters, "horizon_s": self.horizon_s}


def multipliers(pattern: LoadPattern, seed: int) -> Iterator[float]:
    """Yield the rate in each step of `STEP_S` as a multiple of the mean, endlessly; random parts depend on the seed."""
    return KINDS[pattern.kind].curve(pattern, np.random.default_rng([seed, 20]))


class Arrivals:
    """Arrival times of a Poisson process whose rate follows a pattern; the last one is `elapsed_s` after the start."""

    def __init__(self, pattern: LoadPattern, seed: int):
        self._levels = multipliers(pattern, seed)
        self._level, self._left_s = next(self._levels), STEP_S
        self.elapsed_s = 0.0

    def after(self, gap: float, rate_rps: float) -> float:
        """Return the seconds until the next arrival; `gap` is exponentially distributed with mean one."""
        waited_s = 0.0
        while True:
            speed = rate_rps * self._level
            if gap <= speed * self._left_s and speed > 0:
                self._left_s -= gap / speed
                waited_s += gap / speed
                self.elapsed_s += waited_s
                return waited_s
            gap -= speed * self._left_s
            waited_s += self._left_s
            self._level, self._left_s = next(self._levels), STEP_S


def parse_pattern(text: str) -> LoadPattern:
    """Parse a pattern, and read the file of a replay; raise UsageError if one is invalid."""
    kind, _, rest = text.strip().partition(":")
    if kind not in KINDS:
        raise unknown_name("load", kind, KINDS)
    if kind == REPLAY:
        if not rest:
            raise UsageError("--load replay needs a file with rates; write --load replay:FILE.csv")
        return LoadPattern(kind=REPLAY, rates=read_rates(Path(rest)).rates)
    parameters: dict[str, float] = {}
    for assignment in rest.split(",") if rest else ():
        name, equals, value = (word.strip() for word in assignment.partition("="))
        ranges = KINDS[kind].parameters
        if name not in ranges:
            if not ranges:
                raise UsageError(f"load {kind} has no parameters, but was given {name!r}; write --load {kind}")
            raise unknown_name(f"parameter of load {kind}", name, ranges)
        if name in parameters:
            raise UsageError(f"parameter {name} of load {kind} was given twice; give it once")
        allowed = ranges[name]
        subject, number = f"parameter {name} of load {kind}", value if equals else ""
        parameters[name] = parse_number(subject, number, allowed.low, allowed.high)
    return LoadPattern(kind=kind, parameters=parameters)


def parse_number(subject: str, text: str, low: float, high: float) -> float:
    """Return the number in a string; raise UsageError, which names the subject, if it is out of range."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise UsageError(f"{subject} must be from {low:g} to {high:g}, but is {text or 'empty'}")
    return number


def _yield_constant(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    return repeat(1.0)


def _yield_bursty(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    wave = _yield_wave(pattern, rng)
    for slow, burst in zip(wave, _yield_bursts(pattern, rng), strict=False):
        yield slow * burst


def _yield_bursts(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    """Yield the two levels of calm and burst, with a mean of one."""
    lengths_s = (pattern["calm_s"], pattern["burst_s"])
    share = lengths_s[1] / sum(lengths_s)
    levels = (1.0, pattern["burst"])
    mean = levels[0] + share * (levels[1] - levels[0])
    state = int(rng.random() < share)
    left_s = rng.exponential(lengths_s[state])
    while True:
        while left_s <= 0:
            state = 1 - state
            left_s += rng.exponential(lengths_s[state])
        left_s -= STEP_S
        yield levels[state] / mean


def _yield_wave(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    period_s = max(pattern.horizon_s, 60.0) * float(rng.uniform(0.7, 1.5))
    phase = float(rng.uniform(0, 2 * math.pi))
    for step in count():
        yield 1 + pattern["wave"] * math.sin(phase + 2 * math.pi * step * STEP_S / period_s)


def _yield_daily(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    night, start = pattern["night"], float(rng.random())
    length_s = max(pattern.horizon_s, 10.0)
    bursts = repeat(1.0) if pattern["burst"] <= 1 else _yield_bursts(pattern, rng)
    for step, burst in zip(count(), bursts, strict=False):
        hour = 24 * ((start + step * STEP_S / length_s) % 1)
        # two peaks, at noon and in the evening, scaled so that the mean over a day is one
        bumps = math.exp(-(((hour - 12) / 3.2) ** 2)) + 0.9 * math.exp(-(((hour - 19.5) / 2.2) ** 2))
        yield burst * (night + (1 - night) * bumps / _MEAN_OF_BUMPS)


def _yield_flash_crowd(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    start_s = float(rng.uniform(0, max(pattern.horizon_s, 1.0)))
    excess = pattern["factor"] - 1
    for step in count():
        since_s = step * STEP_S - start_s
        if since_s < 0:
            yield 1.0
        elif since_s < pattern["rise_s"]:
            yield 1 + excess * since_s / pattern["rise_s"]
        else:
            yield 1 + excess * math.exp(-(since_s - pattern["rise_s"]) / pattern["decay_s"])


def _yield_ramp(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    for step in count():
        progress = min(1.0, step * STEP_S / max(pattern.horizon_s, 1.0))
        yield pattern["first"] + progress * (pattern["last"] - pattern["first"])


def _yield_replay(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    times, rates = (np.array(column) for column in zip(*pattern.rates, strict=True))
    # the integral of the rate gives each step the mean of all entries that it covers
    sums = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    for step in count():
        start, end = step * STEP_S, (step + 1) * STEP_S
        yield (_integrate(end, times, sums) - _integrate(start, times, sums)) / STEP_S


def _integrate(time_s: float, times: np.ndarray, sums: np.ndarray) -> float:
    rounds, rest = divmod(time_s, float(times[-1]))
    return rounds * float(sums[-1]) + float(np.interp(rest, times, sums))


KINDS: Mapping[str, PatternKind] = {
    name: PatternKind(
        curve, {parameter: PatternParameter(*values) for parameter, values in _PARAMETERS.get(name, {}).items()}
    )
    for name, curve in (
        (CONSTANT, _yield_constant),
        ("bursty", _yield_bursty),
        ("daily", _yield_daily),
        ("flash-crowd", _yield_flash_crowd),
        ("ramp", _yield_ramp),
        (REPLAY, _yield_replay),
    )
}
"""Kinds of patterns by name; docs/how-to/collect.md describes them and their parameters."""
