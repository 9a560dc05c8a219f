"""What a baseline is: the answers it gives and the two shapes it may have.

A *detector* says whether, and since when, something is wrong in an episode; a *localizer* says which
service is to blame once an alarm stands. Both receive an `EpisodeView`, which has no way to the truth. They
are made without data (parameters in `__init__`), may learn from healthy episodes in `fit`, and keep no
state between episodes.

A detector sees the whole telemetry of a view and must not look ahead: whether it alarms at `t` follows from
samples taken no later than `t`. A localizer may use the whole view; what is healthy for it is
`view.reference`, which it cuts at the alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Task = Literal["detection", "localization"]
Need = Literal["onset", "sli"]
CONSECUTIVE = 2


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One observation that speaks for an answer, for the person who reads it."""

    service: str
    subject: str
    """Series, log template, span operation or object that was looked at."""
    score: float
    """Strength in the unit of the method; only comparable within one answer."""
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Detection:
    """Answer of a detector for one episode, sample by sample, over the view after the reference."""

    times_ns: npt.NDArray[np.int64]
    """[T] instants at which each sample is complete; an alarm can be raised then and not before."""
    scores: npt.NDArray[np.float64]
    """[T] higher is more anomalous; finite."""
    flags: npt.NDArray[np.bool_]
    """[T] the score is above the threshold."""
    threshold: float
    alarm_ns: int | None
    """First alarm; None is the verdict "no fault"."""
    consecutive: int = CONSECUTIVE
    """Flags in a row that make an alarm."""
    evidence: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.times_ns) == len(self.scores) == len(self.flags):
            lengths = (len(self.times_ns), len(self.scores), len(self.flags))
            raise ValueError(f"times, scores and flags of a detection must be of one length, found {lengths}")

    @classmethod
    def from_scores(
        cls,
        times_ns: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float64],
        threshold: float,
        *,
        consecutive: int = CONSECUTIVE,
        evidence: Sequence[Evidence] = (),
    ) -> Self:
        """Flag every score above `threshold`; alarm at the first run of `consecutive` flags."""
        flags = np.asarray(scores > threshold)
        return cls(
            times_ns=times_ns,
            scores=np.asarray(scores, dtype=float),
            flags=flags,
            threshold=float(threshold),
            alarm_ns=first_alarm(times_ns, flags, consecutive),
            consecutive=consecutive,
            evidence=tuple(evidence),
        )

    @classmethod
    def silent(cls, threshold: float = 0.0) -> Self:
        """The answer where there is nothing to look at: no samples, no alarm."""
        nothing = np.empty(0)
        return cls.from_scores(nothing.astype(np.int64), nothing, threshold)

    def at_threshold(self, threshold: float) -> Detection:
        """Give the same scores another threshold, for policies that set it from training episodes."""
        flags = np.asarray(self.scores > threshold)
        alarm_ns = first_alarm(self.times_ns, flags, self.consecutive)
        return replace(self, flags=flags, threshold=float(threshold), alarm_ns=alarm_ns)


def first_alarm(
    times_ns: npt.NDArray[np.int64], flags: npt.NDArray[np.bool_], consecutive: int = CONSECUTIVE
) -> int | None:
    """Find when a run of flags first reaches the length `consecutive`; None where none does.

    >>> first_alarm(np.array([10, 20, 30, 40]), np.array([True, False, True, True]))
    40
    """
    run = 0
    for time_ns, flag in zip(times_ns.tolist(), flags.tolist(), strict=True):
        run = run + 1 if flag else 0
        if run >= consecutive:
            return time_ns
    return None


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Answer of a localizer: how suspicious each service is."""

    scores: Mapping[str, float] = field(default_factory=dict)
    """Higher is more suspicious. Services left out share the last place; empty: the method abstains."""
    evidence: tuple[Evidence, ...] = ()
    confidence: float = 1.0
    """Between 0 (abstains) and 1."""

    @classmethod
    def of(cls, scores: Mapping[str, float], services: Sequence[str], evidence: Sequence[Evidence] = ()) -> Self:
        """Keep candidates with a positive finite score; abstain when none is left."""
        kept = {name: float(scores[name]) for name in services if 0 < scores.get(name, 0.0) < np.inf}
        if not kept:
            return cls.abstain()
        return cls(scores=kept, evidence=tuple(item for item in evidence if item.service in kept))

    @classmethod
    def abstain(cls) -> Self:
        """The answer where there is no evidence: it names nobody."""
        return cls(confidence=0.0)

    @property
    def abstains(self) -> bool:
        """Whether the method names nobody."""
        return not self.scores

    @property
    def ordered(self) -> tuple[str, ...]:
        """Named services, most suspicious first; ties by name."""
        return tuple(sorted(self.scores, key=lambda service: (-self.scores[service], service)))


@runtime_checkable
class Detector(Protocol):
    """Says whether, and since when, something is wrong."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn from episodes without a fault; the list may be empty."""
        ...

    def detect(self, episode: EpisodeView) -> Detection:
        """Score the part of the view after the reference and alarm at most once."""
        ...


@runtime_checkable
class Localizer(Protocol):
    """Says which service is to blame."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn from episodes without a fault; the list may be empty."""
        ...

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank the services of `episode.services`, given when the alarm was raised."""
        ...


class Untrained:
    """What a baseline needs that learns nothing from other episodes: each brings its own reference."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Take note of nothing."""
        return self
