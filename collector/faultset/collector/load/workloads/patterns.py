"""How the rate of client requests moves over an episode: kinds of patterns, their parameters, and how they are written.

A pattern is written `KIND` or `KIND:name=value,name=value`, for instance `bursty:burst=3`, and `replay:FILE`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from faultset.collector.load.workloads.recorded_rates import read_rates
from faultset.core.errors import UsageError
from faultset.core.reading.documents import STRICT
from faultset.core.suggestions import unknown_name

CONSTANT, SESSIONS, REPLAY = "constant", "sessions", "replay"

Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class PatternParameter:
    """A number that a pattern may be given, and the range that it must lie in."""

    default: float
    low: float
    high: float
    meaning: str


@dataclass(frozen=True, kw_only=True)
class PatternKind:
    """A kind of pattern.

    Attributes
    ----------
    summary
        What clients do, in a few words.
    """

    summary: str
    parameters: Mapping[str, PatternParameter] = field(default_factory=dict[str, PatternParameter])


def _number(default: float, low: float, high: float, meaning: str) -> PatternParameter:
    return PatternParameter(default=default, low=low, high=high, meaning=meaning)


KINDS: Mapping[str, PatternKind] = {
    CONSTANT: PatternKind(summary="Poisson arrivals at a constant rate"),
    "bursty": PatternKind(
        summary="Poisson arrivals whose rate follows a slow wave and jumps up in short bursts (Markov-modulated)",
        parameters={
            "wave": _number(0.25, 0, 0.9, "how far the slow wave goes up and down, as a share of the rate"),
            "burst": _number(1.8, 1, 20, "how many times the rate of calm times a burst has"),
            "burst_s": _number(3, 0.5, 3600, "mean length of a burst in seconds"),
            "calm_s": _number(12, 0.5, 3600, "mean time between bursts in seconds"),
        },
    ),
    "self-similar": PatternKind(
        summary="Poisson arrivals whose rate is the sum of sources with heavy-tailed times on and off",
        parameters={
            "hurst": _number(0.8, 0.55, 0.95, "Hurst parameter: how long bursts last on all scales of time"),
            "sources": _number(16, 1, 1000, "number of sources"),
            "varying": _number(0.6, 0.01, 1, "share of the rate that comes from the sources; the rest is constant"),
        },
    ),
    "daily": PatternKind(
        summary="the curve of a day, compressed to the length of the episode, from a drawn hour on",
        parameters={"night": _number(0.4, 0.01, 1, "rate at night, as a share of the mean rate")},
    ),
    "flash-crowd": PatternKind(
        summary="a crowd that comes at a drawn time, and loses interest",
        parameters={
            "factor": _number(2.5, 1, 100, "how many times the rate the crowd brings at its peak"),
            "rise_s": _number(5, 0.5, 3600, "time from the first to the peak in seconds"),
            "decay_s": _number(30, 1, 36_000, "mean stay in seconds"),
        },
    ),
    "ramp": PatternKind(
        summary="a rate that rises or falls evenly over the episode",
        parameters={
            "first": _number(0.6, 0.01, 100, "rate at the begin, in mean rates"),
            "last": _number(1.4, 0.01, 100, "rate at the end, in mean rates"),
        },
    ),
    SESSIONS: PatternKind(
        summary="users who wait for each answer and think before the next request (closed loop)",
        parameters={
            "think_s": _number(2, 0.05, 600, "mean time that a user thinks in seconds"),
            "requests": _number(8, 1, 1000, "mean number of requests in a session"),
            "pause_s": _number(5, 0, 3600, "mean time between two sessions of a user in seconds"),
        },
    ),
    REPLAY: PatternKind(summary="Poisson arrivals at the rates of a CSV file with the columns time_s and rate_rps"),
}


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
        if self.kind == "self-similar":
            return 1 - self["varying"]
        if self.kind == "daily":
            return self["night"]
        if self.kind == "ramp":
            return min(self["first"], self["last"])
        if self.kind == SESSIONS:
            return 0.4
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
        names = KINDS[self.kind].parameters
        return {"kind": self.kind, "parameters": {name: self[name] for name in names}, "horizon_s": self.horizon_s}


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


def _within(what: str, text: str, wanted: PatternParameter) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not wanted.low <= number <= wanted.high:
        raise UsageError(f"{what} must be from {wanted.low:g} to {wanted.high:g}, but is {text or 'nothing'}")
    return number
