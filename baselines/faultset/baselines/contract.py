"""Protocols that baselines implement, and the answers they return.

A *detector* decides whether and since when an episode is anomalous. A *localizer* ranks the services after an alarm.
A *diagnoser* names the system level and the type of the fault. All of them receive an `EpisodeView`, which gives no
access to the truth. They are built from parameters alone and keep no state between episodes. Detectors and localizers
may learn from healthy episodes in `fit`. Methods that need `labels`, as all diagnosers do, learn from all training
episodes and their labels.

A detector receives the whole view but must not look ahead: an alarm at `t` depends only on samples up to `t`.
Localizers and diagnosers may use the whole view. Their healthy data are `view.reference`, truncated at the alarm.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from faultset.core.printable import count_text

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


Task = Literal["detection", "localization", "rca"]
Need = Literal["labels", "sli", "alarm_location"]
"""labels: `fit` receives all training episodes with their labels. sli: the method may read the clients' requests.
alarm_location: `EpisodeView.alarm_location` has the service and metric of the alarm, if known."""
CONSECUTIVE = 2
_Key = TypeVar("_Key", bound=Any)
_MAX_SHOWN = 3
"""Maximum number of services in the repr of a ranking."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """An observation that supports an answer, for human readers."""

    service: str
    """Name of the observed service."""
    subject: str
    """Observed series, log template, span operation or object."""
    score: float
    """Strength in the method's own unit; comparable within one answer only."""
    detail: str = ""
    """Short description of the observation."""


@dataclass(frozen=True, kw_only=True)
class Detection:
    """Answer of a detector for each sample of one episode after the reference."""

    times_ns: npt.NDArray[np.int64]
    """[T] end of each sample, UTC nanoseconds: the first time at which the sample can raise an alarm."""
    scores: npt.NDArray[np.float64]
    """[T] higher is more anomalous; finite."""
    flags: npt.NDArray[np.bool_]
    """[T] whether the score is above the threshold."""
    threshold: float
    """Scores above this are flagged; infinite for a detector without a threshold."""
    alarm_ns: int | None
    """First alarm, UTC nanoseconds; None means "no fault"."""
    consecutive: int = CONSECUTIVE
    """Number of consecutive flags that raise an alarm."""
    evidence: tuple[Evidence, ...] = ()
    """The observations that support the answer, strongest first."""

    def __post_init__(self) -> None:
        if not len(self.times_ns) == len(self.scores) == len(self.flags):
            lengths = (len(self.times_ns), len(self.scores), len(self.flags))
            raise ValueError(f"times, scores and flags of a detection must have the same length, got {lengths}")

    def __repr__(self) -> str:
        """Return the alarm and the number of flagged samples.

        >>> Detection.from_scores(np.array([1_000_000_000, 2_000_000_000]), np.array([3.0, 4.0]), 2.5)
        <Detection of 2 samples: alarm at 1970-01-01T00:00:02.000000000 UTC, 2 above 2.5>
        """
        alarm = "no alarm" if self.alarm_ns is None else f"alarm at {np.datetime64(self.alarm_ns, 'ns')} UTC"
        return (
            f"<Detection of {count_text(len(self.scores), 'sample')}: {alarm}, {self.flags.sum()} above "
            f"{self.threshold:.3g}>"
        )

    @classmethod
    def from_scores(
        cls,
        times_ns: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float64],
        threshold: float | None,
        *,
        consecutive: int = CONSECUTIVE,
        evidence: Sequence[Evidence] | Callable[[int], Sequence[Evidence]] = (),
    ) -> Self:
        """Flag every score above `threshold`; alarm at the first run of `consecutive` flags.

        Without a threshold nothing is flagged. The evaluation then sets one; see `own_threshold` in the registration.
        Evidence may be a function of the sample that raised the alarm, which is called only if there is an alarm.
        """
        threshold = float(np.inf) if threshold is None else threshold
        flags = np.asarray(scores > threshold)
        alarm_ns = first_alarm(times_ns, flags, consecutive)
        if callable(evidence):
            evidence = () if alarm_ns is None else evidence(int(np.searchsorted(times_ns, alarm_ns)))
        return cls(
            times_ns=times_ns,
            scores=np.asarray(scores, dtype=float),
            flags=flags,
            threshold=float(threshold),
            alarm_ns=alarm_ns,
            consecutive=consecutive,
            evidence=tuple(evidence),
        )

    @classmethod
    def silent(cls, threshold: float = 0.0) -> Self:
        """Return an answer without samples and without an alarm."""
        empty = np.empty(0)
        return cls.from_scores(empty.astype(np.int64), empty, threshold)


def first_alarm(
    times_ns: npt.NDArray[np.int64], flags: npt.NDArray[np.bool_], consecutive: int = CONSECUTIVE
) -> int | None:
    """Return when `consecutive` flags in a row first occur, or None.

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
    """Answer of a localizer: a suspicion score per service."""

    scores: Mapping[str, float] = field(default_factory=dict)
    """Higher is more suspicious. Missing services share the last rank. If empty, the method abstains."""
    evidence: tuple[Evidence, ...] = ()
    """The observations that support the answer, strongest first."""
    confidence: float = 1.0
    """Between 0 (abstains) and 1."""
    metrics: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(service, metric name) -> score; empty if the method ranks no metrics."""
    pods: Mapping[str, float] = field(default_factory=dict)
    """Pod name -> score; empty if the method ranks no pods."""

    def __repr__(self) -> str:
        """Return the most suspicious services with their scores.

        >>> Ranking(scores={"a": 1.0, "b": 2.5, "c": 0.25, "d": 0.1})
        <Ranking of 4 services: b 2.5, a 1, c 0.25>
        """
        if self.abstains:
            return "<Ranking that abstains>"
        first = ", ".join(f"{name} {self.scores[name]:.3g}" for name in self.ordered[:_MAX_SHOWN])
        return f"<Ranking of {count_text(len(self.scores), 'service')}: {first}>"

    @classmethod
    def of(
        cls,
        scores: Mapping[str, float],
        services: Sequence[str],
        evidence: Sequence[Evidence] = (),
        metrics: Mapping[tuple[str, str], float] | None = None,
        pods: Mapping[tuple[str, str], float] | None = None,
    ) -> Self:
        """Rank the candidates with a positive finite score; abstain if there are none.

        Keys of metrics and pods are (service, name).
        """
        positive = {name: float(scores[name]) for name in services if 0 < scores.get(name, 0.0) < np.inf}
        if not positive:
            return cls.abstain()
        return cls(
            scores=positive,
            evidence=tuple(item for item in evidence if item.service in positive),
            metrics={
                key: float(score) for key, score in (metrics or {}).items() if _is_ranked(key[0], score, positive)
            },
            pods={
                pod: float(score) for (owner, pod), score in (pods or {}).items() if _is_ranked(owner, score, positive)
            },
        )

    @classmethod
    def abstain(cls) -> Self:
        """Return an answer without a ranking."""
        return cls(confidence=0.0)

    @property
    def abstains(self) -> bool:
        """Whether the ranking is empty."""
        return not self.scores

    @property
    def ordered(self) -> tuple[str, ...]:
        """Ranked services, most suspicious first; ties by name."""
        return tuple(largest_first(self.scores))


def largest_first(scores: Mapping[_Key, float]) -> list[_Key]:
    """Return keys by descending value; ties by key."""
    return sorted(scores, key=lambda key: (-scores[key], key))


def best_by_service(scores: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return the largest score of each service, from scores by (service, name)."""
    best: dict[str, float] = {}
    for (service, _), score in scores.items():
        best[service] = max(best.get(service, 0.0), score)
    return best


def _is_ranked(service: str, score: float, ranked: Mapping[str, float]) -> bool:
    return service in ranked and 0 < score < np.inf


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Answer of a diagnoser: the kind of fault."""

    system_level: str | None
    """System level as in the labels."""
    fault_type: str | None
    """Fault type as in the labels; the method abstains if both are None."""
    confidence: float = 1.0
    """Between 0 (abstains) and 1."""
    evidence: tuple[Evidence, ...] = ()
    """The observations that support the answer, strongest first."""

    @classmethod
    def abstain(cls) -> Self:
        """Return an answer without level and type."""
        return cls(system_level=None, fault_type=None, confidence=0.0)

    @property
    def abstains(self) -> bool:
        """Whether neither level nor type is named."""
        return self.system_level is None and self.fault_type is None


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A training episode with its labels."""

    view: EpisodeView
    """Telemetry of the episode."""
    service: str | None
    """Faulty service; None without a fault or if the fault is not in a service."""
    system_level: str | None
    """System level of the fault; None without a fault."""
    fault_type: str | None
    """None without a fault."""
    causes: tuple[str, ...] = ()
    """All faulty services, `service` first."""
    onset_ns: int | None = None
    """Onset of the fault, UTC nanoseconds; None without a fault or if unknown."""


@runtime_checkable
class Detector(Protocol):
    """Decides whether and since when an episode is anomalous."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn from episodes without a fault; the list may be empty."""
        ...

    def detect(self, episode: EpisodeView) -> Detection:
        """Score the samples after the reference, and raise at most one alarm."""
        ...


@runtime_checkable
class Localizer(Protocol):
    """Ranks services by suspicion."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn from episodes without a fault; the list may be empty."""
        ...

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank `episode.services`, given the time of the alarm."""
        ...


@runtime_checkable
class Diagnoser(Protocol):
    """Names the system level and the type of a fault."""

    name: str
    needs: frozenset[str]
    """Contains "labels"."""
    tables: tuple[str, ...]

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn from episodes with their labels; if there are none, `diagnose` abstains."""
        ...

    def diagnose(self, episode: EpisodeView, alarm_ns: int) -> Diagnosis:
        """Name the kind of fault, given the time of the alarm."""
        ...


class RegisteredBaseline:
    """Base class with the attributes that the registration sets."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]


class TrainingFreeBaseline(RegisteredBaseline):
    """Base class of baselines that learn nothing from other episodes."""

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Return the baseline unchanged."""
        return self


def episode_rng(seed: int, episode: str) -> np.random.Generator:
    """Return a generator that depends on seed and episode only, not on the order of episodes."""
    return np.random.default_rng([seed, zlib.crc32(episode.encode())])
