"""The rate of a pattern over time, and when the next request of a Poisson process with that rate arrives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count, repeat

import numpy as np

from faultset.collector.load.workloads.patterns import CONSTANT, REPLAY, SESSIONS, LoadPattern

STEP_S = 0.5
"""The rate is the same for so long, in seconds."""


def multipliers(pattern: LoadPattern, seed: int) -> Iterator[float]:
    """Yield the rate as multiples of the mean rate, one value for every `STEP_S`, without end; drawn from a seed."""
    return _CURVES[pattern.kind](pattern, np.random.default_rng([seed, 20]))


class Arrivals:
    """Arrival times of a Poisson process whose rate follows a pattern, by rescaling time.

    Attributes
    ----------
    elapsed_s
        Time of the last arrival, in seconds after the begin.
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


def _self_similar(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    # on and off times with tail index a give a sum with Hurst parameter (3 - a) / 2 (Taqqu, Willinger, Sherman 1997)
    tail, sources = 3 - 2 * pattern["hurst"], int(pattern["sources"])
    is_on = rng.random(sources) < 0.5
    left_s = 1 + rng.pareto(tail, sources)
    while True:
        yield 1 - pattern["varying"] + pattern["varying"] * 2 * float(is_on.mean())
        left_s -= STEP_S
        ended = left_s <= 0
        is_on ^= ended
        left_s[ended] = 1 + rng.pareto(tail, int(ended.sum()))


def _daily(pattern: LoadPattern, rng: np.random.Generator) -> Iterator[float]:
    night, begin = pattern["night"], float(rng.random())
    length_s = max(pattern.horizon_s, 10.0)
    for step in count():
        hour = 24 * ((begin + step * STEP_S / length_s) % 1)
        # two peaks, at noon and in the evening; the mean of the bumps over a day is taken out
        bumps = math.exp(-(((hour - 12) / 3.2) ** 2)) + 0.9 * math.exp(-(((hour - 19.5) / 2.2) ** 2))
        yield night + (1 - night) * bumps / _MEAN_OF_BUMPS


_MEAN_OF_BUMPS = math.sqrt(math.pi) * (3.2 + 0.9 * 2.2 * (1 + math.erf(4.5 / 2.2)) / 2) / 24


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


_CURVES: dict[str, Callable[[LoadPattern, np.random.Generator], Iterator[float]]] = {
    CONSTANT: _constant,
    SESSIONS: _constant,
    "bursty": _bursty,
    "self-similar": _self_similar,
    "daily": _daily,
    "flash-crowd": _flash_crowd,
    "ramp": _ramp,
    REPLAY: _replay,
}
