"""What a baseline is: the answers it gives and the three shapes it may have.

A *detector* says whether, and since when, something is wrong in an episode; a *localizer* says which
service is to blame once an alarm stands; a *diagnoser* says at which system level and of which type the fault
is. All receive an `EpisodeView`, which has no way to the truth. They are made without data (parameters in
`__init__`) and keep no state between episodes. Detectors and localizers may learn from healthy episodes in
`fit`; diagnosers learn what faults look like and are given the answers of the training episodes.

A detector sees the whole telemetry of a view and must not look ahead: whether it alarms at `t` follows from
samples taken no later than `t`. Localizers and diagnosers may use the whole view; what is healthy for them is
`view.reference`, which they cut at the alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Task = Literal["detection", "localization", "rca"]
Need = Literal["labels", "sli", "alarm_place"]
"""labels: `fit` is given all training episodes with their answers; sli: the requests of the clients may be read;
alarm_place: `EpisodeView.alarm_place` says on which service and metric the alarm was seen, where that is known."""
CONSECUTIVE = 2
_SHOWN = 3
"""Services in the short form of a ranking."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One observation that speaks for an answer, for the person who reads it."""

    service: str
    """Name of the service that it is about."""
    subject: str
    """Series, log template, span operation or object that was looked at."""
    score: float
    """Strength in the unit of the method; only comparable within one answer."""
    detail: str = ""
    """What was seen, in a few words."""


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
    """What a score must be above to be flagged; infinite where the detector has none of its own."""
    alarm_ns: int | None
    """First alarm, UTC nanoseconds; None is the verdict "no fault"."""
    consecutive: int = CONSECUTIVE
    """Flags in a row that make an alarm."""
    evidence: tuple[Evidence, ...] = ()
    """What speaks for the alarm, for the person who reads it."""

    def __post_init__(self) -> None:
        if not len(self.times_ns) == len(self.scores) == len(self.flags):
            lengths = (len(self.times_ns), len(self.scores), len(self.flags))
            raise ValueError(f"times, scores and flags of a detection must be of one length, found {lengths}")

    @classmethod
    def from_scores(
        cls,
        times_ns: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float64],
        threshold: float | None,
        *,
        consecutive: int = CONSECUTIVE,
        evidence: Sequence[Evidence] = (),
    ) -> Self:
        """Flag every score above `threshold`; alarm at the first run of `consecutive` flags.

        Without a threshold nothing is flagged: for detectors that are registered with `own_threshold=False`, which are
        given one by the evaluation.
        """
        threshold = float(np.inf) if threshold is None else threshold
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


@dataclass(frozen=True, kw_only=True, repr=False)
class Ranking:
    """Answer of a localizer: how suspicious each service is."""

    scores: Mapping[str, float] = field(default_factory=dict)
    """Higher is more suspicious. Services left out share the last place; empty: the method abstains."""
    evidence: tuple[Evidence, ...] = ()
    """What speaks for the ranking, for the person who reads it."""
    confidence: float = 1.0
    """Between 0 (abstains) and 1."""
    metrics: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(service, metric name) to score, higher is more suspicious; empty where the method names no metrics."""
    pods: Mapping[str, float] = field(default_factory=dict)
    """Pod name to score, higher is more suspicious; empty where the method names no pods."""

    def __repr__(self) -> str:
        """Show the first services with their scores.

        >>> Ranking(scores={"a": 1.0, "b": 2.5, "c": 0.25, "d": 0.1})
        <Ranking of 4 services: b 2.5, a 1, c 0.25>
        """
        if self.abstains:
            return "<Ranking that abstains>"
        first = ", ".join(f"{name} {self.scores[name]:.3g}" for name in self.ordered[:_SHOWN])
        return f"<Ranking of {len(self.scores)} {'service' if len(self.scores) == 1 else 'services'}: {first}>"

    @classmethod
    def of(
        cls,
        scores: Mapping[str, float],
        services: Sequence[str],
        evidence: Sequence[Evidence] = (),
        metrics: Mapping[tuple[str, str], float] | None = None,
        pods: Mapping[tuple[str, str], float] | None = None,
    ) -> Self:
        """Keep candidates with a positive finite score, with their metrics and pods; abstain when none is left.

        Metrics and pods are given by (service, name).
        """
        kept = {name: float(scores[name]) for name in services if 0 < scores.get(name, 0.0) < np.inf}
        if not kept:
            return cls.abstain()
        return cls(
            scores=kept,
            evidence=tuple(item for item in evidence if item.service in kept),
            metrics={key: float(score) for key, score in (metrics or {}).items() if _counts(key[0], score, kept)},
            pods={pod: float(score) for (owner, pod), score in (pods or {}).items() if _counts(owner, score, kept)},
        )

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


def _counts(service: str, score: float, kept: Mapping[str, float]) -> bool:
    return service in kept and 0 < score < np.inf


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Answer of a diagnoser: what kind of fault it is."""

    system_level: str | None
    """Where the fault is, in the words of the labels."""
    fault_type: str | None
    """What kind of fault it is, in the words of the labels; the method abstains where both are None."""
    confidence: float = 1.0
    """Between 0 (abstains) and 1."""
    evidence: tuple[Evidence, ...] = ()
    """What speaks for the answer, for the person who reads it."""

    @classmethod
    def abstain(cls) -> Self:
        """The answer where there is no evidence, or nothing was learned."""
        return cls(system_level=None, fault_type=None, confidence=0.0)

    @property
    def abstains(self) -> bool:
        """Whether the method says nothing."""
        return self.system_level is None and self.fault_type is None


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A training episode whose answer is known."""

    view: EpisodeView
    """The episode as a method sees it."""
    service: str | None
    """Service at fault; None where there is no fault, or it lies in no service."""
    system_level: str | None
    """Where the fault is; None without one."""
    fault_type: str | None
    """None: no fault."""
    causes: tuple[str, ...] = ()
    """All services at fault, `service` first."""
    onset_ns: int | None = None
    """When the fault began, UTC nanoseconds; None where there is none, or it is not known."""


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


@runtime_checkable
class Diagnoser(Protocol):
    """Says at which system level and of which type a fault is."""

    name: str
    needs: frozenset[str]
    """Contains "labels"."""
    tables: tuple[str, ...]

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn from episodes with their answers; the list may be empty, and then it abstains."""
        ...

    def diagnose(self, episode: EpisodeView, alarm_ns: int) -> Diagnosis:
        """Name the kind of fault, given when the alarm was raised."""
        ...


class Untrained:
    """What a baseline needs that learns nothing from other episodes: each brings its own reference."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Take note of nothing."""
        return self
