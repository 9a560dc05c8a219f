"""How the rate of client requests moves over an episode: kinds of patterns, their parameters, and how they are written.

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

from faultset.core.errors import UsageError
from faultset.core.printable import printable
from faultset.core.reading.documents import STRICT
from faultset.core.reading.regular_files import read_regular
from faultset.core.suggestions import unknown_name

COLUMNS = ("time_s", "rate_rps")
MOST_ROWS = 20_000
LARGEST_RATE_RPS = 10_000.0
_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class RecordedRates:
    """Rates of a file.

    Attributes
    ----------
    mean_rps
        Mean over time.
    shares
        From how many seconds on the rate is how many times the mean. The last entry lasts as long as the one before.
    """

    mean_rps: float
    shares: tuple[tuple[float, float], ...]


def read_rates(path: Path) -> RecordedRates:
    """Read a CSV file with the columns `time_s` and `rate_rps`; times rise, and the first one counts as zero.

    Raises
    ------
    UsageError
        The file cannot be read, or a line is wrong; the sentence names the line.
    """
    rows = _rows(path)
    ends = [*(time for time, _ in rows[1:]), 2 * rows[-1][0] - rows[-2][0]]
    lengths = [end - time for (time, _), end in zip(rows, ends, strict=True)]
    mean = sum(rate * length for (_, rate), length in zip(rows, lengths, strict=True)) / sum(lengths)
    if mean <= 0:
        raise UsageError(f"{printable(path)} must have a rate above zero, but all of them are zero")
    begin = rows[0][0]
    shares = [(round(time - begin, 6), round(rate / mean, 9)) for time, rate in rows]
    shares.append((round(ends[-1] - begin, 6), shares[0][1]))
    return RecordedRates(mean_rps=mean, shares=tuple(shares))


def _rows(path: Path) -> list[tuple[float, float]]:
    try:
        text = read_regular(path, limit_bytes=_LIMIT_BYTES, error=UsageError).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{printable(path)} must be a CSV file in UTF-8, but is none") from None
    name, lines = printable(path), csv.reader(io.StringIO(text), strict=True)
    rows: list[tuple[float, float]] = []
    try:
        header = [cell.strip() for cell in next(lines, [])]
        if missing := [column for column in COLUMNS if header.count(column) != 1]:
            found = printable(", ".join(header)[:80]) or "nothing"
            raise UsageError(f"{name} must begin with a line that names the columns {missing[0]} once; it has {found}")
        places = [header.index(column) for column in COLUMNS]
        for cells in lines:
            if any(cell.strip() for cell in cells):
                rows.append(_row(cells, places, rows, f"line {lines.line_num} of {name}"))
            if len(rows) > MOST_ROWS:
                raise UsageError(f"{name} must have at most {MOST_ROWS} rates; take means over longer times")
    except csv.Error as error:
        raise UsageError(f"line {lines.line_num} of {name} is no CSV ({printable(str(error))})") from None
    if len(rows) < 2:
        raise UsageError(f"{name} must have at least two rates, but has {len(rows)}")
    return rows


def _row(cells: list[str], places: list[int], before: list[tuple[float, float]], where: str) -> tuple[float, float]:
    numbers: list[float] = []
    for column, place in zip(COLUMNS, places, strict=True):
        text = cells[place].strip() if place < len(cells) else ""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{where} must have a number in {column}, but has {printable(text[:40]) or 'nothing'}")
        numbers.append(number)
    time_s, rate_rps = numbers
    if not 0 <= rate_rps <= LARGEST_RATE_RPS:
        raise UsageError(f"{where} must have a rate from 0 to {LARGEST_RATE_RPS:g}, but has {rate_rps:g}")
    if abs(time_s) > 1e12 or (before and not time_s >= before[-1][0] + 1e-3):
        raise UsageError(f"{where} must have a later time_s than the line before, but has {time_s:g}")
    return time_s, rate_rps


CONSTANT, REPLAY = "constant", "replay"
STEP_S = 0.5
"""Length of time in which the rate stays the same, in seconds."""
_MEAN_OF_BUMPS = math.sqrt(math.pi) * (3.2 + 0.9 * 2.2 * (1 + math.erf(4.5 / 2.2)) / 2) / 24

Finite = Annotated[float, Field(allow_inf_nan=False)]


class PatternParameter(NamedTuple):
    """A number that a pattern may be given, and its range."""

    default: float
    low: float
    high: float


class PatternKind(NamedTuple):
    """The rate over time as multiples of the mean, one value for every `STEP_S`, and its parameters."""

    curve: Callable[[LoadPattern, np.random.Generator], Iterator[float]]
    parameters: Mapping[str, PatternParameter]


@dataclass(frozen=True, kw_only=True)
class LoadPattern:
    """A kind of pattern with its parameters.

    Attributes
    ----------
    horizon_s
        Length of the time that the pattern fills, from the begin of the load: a day, a ramp, the time in which a
        crowd may come.
    rates
        For `replay`: from how many seconds after the load's begin on the rate is how many times the mean; after the
        last entry it begins again.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: str = CONSTANT
    parameters: dict[str, Finite] = field(default_factory=dict[str, float])
    horizon_s: Finite = 0.0
    rates: tuple[tuple[Finite, Finite], ...] = ()

    def __getitem__(self, name: str) -> float:
        """Return a parameter, given or by default."""
        return self.parameters.get(name, KINDS[self.kind].parameters[name].default)

    @property
    def is_constant(self) -> bool:
        """Whether the rate is the same at all times."""
        return self.kind == CONSTANT

    @property
    def least_share(self) -> float:
        """Share of the mean rate below which the pattern never falls while the application answers."""
        if self.kind == "bursty":
            share = self["burst_s"] / (self["burst_s"] + self["calm_s"])
            return (1 - self["wave"]) / (1 + share * (self["burst"] - 1))
        if self.kind == "daily":
            return self["night"]
        if self.kind == "ramp":
            return min(self["first"], self["last"])
        if self.kind == REPLAY:
            return min(rate for _, rate in self.rates)
        return 1.0

    def as_text(self) -> str:
        """Return the pattern as `parse_pattern` reads it; a replay without its file.

        >>> parse_pattern("bursty:burst=3").as_text()
        'bursty:burst=3'
        """
        given = ",".join(f"{name}={value:g}" for name, value in self.parameters.items())
        return f"{self.kind}:{given}" if given else self.kind

    def as_record(self) -> dict[str, object]:
        """Return what a label or a context says of the pattern: its kind and every parameter."""
        parameters = {name: self[name] for name in KINDS[self.kind].parameters}
        return {"kind": self.kind, "parameters": parameters, "horizon_s": self.horizon_s}


def multipliers(pattern: LoadPattern, seed: int) -> Iterator[float]:
    """Yield the rate as multiples of the mean rate, one value for every `STEP_S`, without end; drawn from a seed."""
    return KINDS[pattern.kind].curve(pattern, np.random.default_rng([seed, 20]))


class Arrivals:
    """Arrival times of a Poisson process whose rate follows a pattern, by rescaling time.

    Attributes
    ----------
    elapsed_s
        Time of the last arrival, in seconds after the start.
    """

    def __init__(self, pattern: LoadPattern, seed: int):
        self._levels = multipliers(pattern, seed)
        self._level, self._left_s = next(self._levels), STEP_S
        self.elapsed_s = 0.0

    def after(self, gap: float, rate_rps: float) -> float:
        """Return in how many seconds the next request arrives.

        Parameters
        ----------
        gap
            Drawn from the exponential distribution with mean one.
        rate_rps
            Mean rate in requests per second.
        """
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
    """Return the pattern that a text means; a replay's rates are read from its file, and divided by their mean.

    Raises
    ------
    UsageError
        The kind or a parameter is unknown, a number is none or out of range, or a file has no rates.
    """
    kind, _, rest = text.strip().partition(":")
    if kind not in KINDS:
        raise unknown_name("load", kind, KINDS)
    if kind == REPLAY:
        if not rest:
            raise UsageError("--load replay needs the file with the rates; write --load replay:FILE.csv")
        return LoadPattern(kind=REPLAY, rates=read_rates(Path(rest)).shares)
    parameters: dict[str, float] = {}
    for part in rest.split(",") if rest else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        known = KINDS[kind].parameters
        if name not in known:
            if not known:
                raise UsageError(f"load {kind} has no parameters, but was given {name!r}; write --load {kind}")
            raise unknown_name(f"parameter of load {kind}", name, known)
        if name in parameters:
            raise UsageError(f"parameter {name} of load {kind} was given twice; give it once")
        parameters[name] = _within(f"parameter {name} of load {kind}", value if equals else "", known[name])
    return LoadPattern(kind=kind, parameters=parameters)


def _within(what: str, text: str, allowed: PatternParameter) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not allowed.low <= number <= allowed.high:
        raise UsageError(f"{what} must be from {allowed.low:g} to {allowed.high:g}, but is {text or 'nothing'}")
    return number


def _constant(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    return repeat(1.0)


def _bursty(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    wave = _wave(pattern, rng)
    lengths_s = (pattern["calm_s"], pattern["burst_s"])
    share = lengths_s[1] / sum(lengths_s)
    levels = (1.0, pattern["burst"])
    mean = levels[0] + share * (levels[1] - levels[0])
    state = int(rng.random() < share)
    left_s = rng.exponential(lengths_s[state])
    for slow in wave:
        while left_s <= 0:
            state = 1 - state
            left_s += rng.exponential(lengths_s[state])
        left_s -= STEP_S
        yield slow * levels[state] / mean


def _wave(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    period_s = max(pattern.horizon_s, 60.0) * float(rng.uniform(0.7, 1.5))
    phase = float(rng.uniform(0, 2 * math.pi))
    for step in count():
        yield 1 + pattern["wave"] * math.sin(phase + 2 * math.pi * step * STEP_S / period_s)


def _daily(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    night, begin = pattern["night"], float(rng.random())
    length_s = max(pattern.horizon_s, 10.0)
    for step in count():
        hour = 24 * ((begin + step * STEP_S / length_s) % 1)
        # two peaks, at noon and in the evening; the mean of the bumps over a day is taken out
        bumps = math.exp(-(((hour - 12) / 3.2) ** 2)) + 0.9 * math.exp(-(((hour - 19.5) / 2.2) ** 2))
        yield night + (1 - night) * bumps / _MEAN_OF_BUMPS


def _flash_crowd(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    begin_s = float(rng.uniform(0, max(pattern.horizon_s, 1.0)))
    more = pattern["factor"] - 1
    for step in count():
        since_s = step * STEP_S - begin_s
        if since_s < 0:
            yield 1.0
        elif since_s < pattern["rise_s"]:
            yield 1 + more * since_s / pattern["rise_s"]
        else:
            yield 1 + more * math.exp(-(since_s - pattern["rise_s"]) / pattern["decay_s"])


def _ramp(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    for step in count():
        done = min(1.0, step * STEP_S / max(pattern.horizon_s, 1.0))
        yield pattern["first"] + done * (pattern["last"] - pattern["first"])


def _replay(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    times, rates = (np.array(column) for column in zip(*pattern.rates, strict=True))
    # sums up to each time, so that a step has the mean rate of all entries that lie in it
    sums = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    for step in count():
        begin, end = step * STEP_S, (step + 1) * STEP_S
        yield (_up_to(end, times, sums) - _up_to(begin, times, sums)) / STEP_S


def _up_to(time_s: float, times: np.ndarray, sums: np.ndarray) -> float:
    rounds, rest = divmod(time_s, float(times[-1]))
    return rounds * float(sums[-1]) + float(np.interp(rest, times, sums))


KINDS: Mapping[str, PatternKind] = {
    CONSTANT: PatternKind(_constant, {}),
    "bursty": PatternKind(
        _bursty,
        {
            "wave": PatternParameter(0.25, 0, 0.9),
            "burst": PatternParameter(1.8, 1, 20),
            "burst_s": PatternParameter(3, 0.5, 3600),
            "calm_s": PatternParameter(12, 0.5, 3600),
        },
    ),
    "daily": PatternKind(_daily, {"night": PatternParameter(0.4, 0.01, 1)}),
    "flash-crowd": PatternKind(
        _flash_crowd,
        {
            "factor": PatternParameter(2.5, 1, 100),
            "rise_s": PatternParameter(5, 0.5, 3600),
            "decay_s": PatternParameter(30, 1, 36_000),
        },
    ),
    "ramp": PatternKind(_ramp, {"first": PatternParameter(0.6, 0.01, 100), "last": PatternParameter(1.4, 0.01, 100)}),
    REPLAY: PatternKind(_replay, {}),
}
"""The kinds; docs/how-to/collect.md says what each does and what its parameters mean."""
