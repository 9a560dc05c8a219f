"""Controls that ignore the telemetry or use a single trivial signal."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np

from faultset.baselines.contract import (
    Detection,
    Diagnosis,
    Evidence,
    Labelled,
    Ranking,
    RegisteredBaseline,
    TrainingFreeBaseline,
    episode_rng,
    largest_first,
)
from faultset.baselines.features.log_lines import counts_by, error_line_excess, log_excess, select_error_lines
from faultset.baselines.features.metric_alarms import rank_by_series
from faultset.baselines.features.windows import cut_window_after, list_step_ends, localization_windows
from faultset.baselines.registry import NOTHING, OWN_AND_PUBLISHED, baseline
from faultset.datasets.views import EpisodeView

control = functools.partial(
    baseline, kind="control", paper="None; a control", speed="instant", tables=(), developed_on=NOTHING
)
BASELINE_REFERENCE = 0.8
"""Share of the healthy phase that the reference of a view covers. On average, the onset is at the end of the phase."""


@control("always-yes", title="Always yes", task="detection", complexity="O(1)")
class AlwaysYes(TrainingFreeBaseline):
    """Control: raise an alarm in every episode, as soon as the reference ends."""

    def detect(self, episode: EpisodeView) -> Detection:
        times = list_step_ends(episode)
        return Detection.from_scores(times, np.ones(len(times)), 0.5, consecutive=1)


@control("always-no", title="Always no", task="detection", complexity="O(1)")
class AlwaysNo(TrainingFreeBaseline):
    """Control: never raise an alarm."""

    def detect(self, episode: EpisodeView) -> Detection:
        times = list_step_ends(episode)
        return Detection.from_scores(times, np.zeros(len(times)), 0.5)


@control("random-detector", title="Random", task="detection", stochastic=True, complexity="O(T)")
class RandomDetector(TrainingFreeBaseline):
    """Control: raise an alarm at a random time, with some probability.

    Parameters
    ----------
    probability
        Probability of an alarm.
    """

    def __init__(self, *, probability: float = 0.5, seed: int = 0) -> None:
        self.probability = probability
        self.seed = seed

    def detect(self, episode: EpisodeView) -> Detection:
        """Draw whether and when to raise an alarm."""
        rng = episode_rng(self.seed, episode.episode)
        times = list_step_ends(episode)
        scores = rng.uniform(0.0, 0.5, len(times))
        first = int(rng.integers(max(1, len(times) - 1)))
        if rng.random() < self.probability:
            scores[first : first + 2] += 0.5
        return Detection.from_scores(times, scores, 0.5)


@control("clock", title="Clock", task="detection", needs=("labels",), complexity="O(T)")
class Clock(RegisteredBaseline):
    """Control: raise an alarm at the best constant time.

    The time is the latest onset in the training episodes, as a share of the view, so that every alarm in them would be
    correct. If no training episode has an onset, it is the end of the healthy phase, estimated from the length of the
    reference.

    Parameters
    ----------
    share
        Time of the alarm as a share of the view, instead of the learned one.
    """

    def __init__(self, *, share: float | None = None) -> None:
        self.share = share
        self.onset_: float | None = None

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn the latest onset of the training episodes."""
        shares = []
        for item in training:
            if item.onset_ns is not None:
                start_ns, end_ns = item.view.window
                shares.append((item.onset_ns - start_ns) / (end_ns - start_ns))
        self.onset_ = max(shares, default=None)
        return self

    def detect(self, episode: EpisodeView) -> Detection:
        start_ns, end_ns = episode.window
        share = self.share if self.share is not None else self.onset_
        if share is None:
            share = (episode.reference[1] - start_ns) / BASELINE_REFERENCE / (end_ns - start_ns)
        times = list_step_ends(episode)
        past = times >= start_ns + round(share * (end_ns - start_ns))
        return Detection.from_scores(times, past.astype(float), 0.5, consecutive=1)


@control("random", title="Random", task="localization", stochastic=True, complexity="O(V)")
class RandomRanking(TrainingFreeBaseline):
    """Control: rank the candidates at random."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        names = sorted(episode.services)
        draws = 1.0 - episode_rng(self.seed, episode.episode).random(len(names))
        return Ranking.of(dict(zip(names, draws.tolist(), strict=True)), episode.services)


@control("most-frequent", title="Most frequent cause", task="localization", needs=("labels",), complexity="O(V)")
class MostFrequent(RegisteredBaseline):
    """Control: rank services by how often they were faulty in training; abstain without training faults."""

    def __init__(self) -> None:
        self.counts_: dict[str, int] = {}

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Count how often each service was faulty."""
        self.counts_ = dict(sorted(Counter(cause for item in training for cause in item.causes).items()))
        return self

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        return Ranking.of(self.counts_, episode.services)


@control(
    "series-stopped",
    title="Series stopped",
    task="localization",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    complexity="O(S·T)",
)
class SeriesStopped(TrainingFreeBaseline):
    """Control: rank services by the share of their series that stopped.

    The score is the mean share of steps since the alarm in which a series is absent.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        absent = windows.absent.mean(axis=0)
        reported = rank_by_series(absent, windows.series, episode.services, detail="share of steps without a sample")
        owner = np.array(windows.services)
        share = {service: float(absent[owner == service].mean()) for service in set(windows.services)}
        return Ranking.of(share, episode.services, [item for item in reported.evidence if item.score > 0])


@control(
    "loudest-log",
    title="Loudest log",
    task="localization",
    developed_on=OWN_AND_PUBLISHED,
    tables=("logs",),
    complexity="O(L)",
)
class LoudestLog(TrainingFreeBaseline):
    """Control: rank services by their error lines since the alarm, less the number expected from the reference.

    An error line has level error or fatal, or a word such as "failed".
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        time_window = cut_window_after(episode, alarm_ns, episode.context.resolution_s)
        lines = select_error_lines(episode)
        counts = error_line_excess(lines, time_window)
        by_pod = log_excess(*counts_by(lines, time_window, ("service", "pod")), time_window.length_ratio)
        pods = {(service, pod): count for (service, pod), count in by_pod.items()}
        evidence = [
            Evidence(
                service=name,
                subject="log lines",
                score=counts[name],
                detail="error lines more than expected from the reference",
            )
            for name in largest_first(counts)
        ]
        return Ranking.of(counts, episode.services, evidence, pods=pods)


RootCausePair = tuple[str | None, str | None]
"""(system level, fault type)"""


def fault_pair(item: Labelled) -> RootCausePair | None:
    """Return the level and the type of a training fault; None without a fault, or if both are unknown."""
    if item.fault_type is None and item.system_level is None:
        return None
    return item.system_level, item.fault_type


@control("constant-pair", title="Constant pair", task="rca", needs=("labels",), complexity="O(1)")
class ConstantPair(RegisteredBaseline):
    """Control: answer with the most frequent pair of the training episodes."""

    def __init__(self) -> None:
        self.pair_: RootCausePair | None = None
        self.share_ = 0.0

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Count the pairs of level and type."""
        counts = Counter(pair for pair in map(fault_pair, training) if pair is not None)
        self.pair_, self.share_ = None, 0.0
        if counts:
            self.pair_ = min(counts, key=lambda pair: (-counts[pair], str(pair)))
            self.share_ = counts[self.pair_] / counts.total()
        return self

    def diagnose(self, episode: EpisodeView, alarm_ns: int) -> Diagnosis:
        if self.pair_ is None:
            return Diagnosis.abstain()
        return Diagnosis(system_level=self.pair_[0], fault_type=self.pair_[1], confidence=self.share_)
