"""Epsilon-diagnosis: which series have another distribution than before?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.randomness import episode_rng
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.healthy_spreads import healthy_spreads
from faultset.baselines.features.windows import localization_windows
from faultset.baselines.stats.energy_distances import permutation_p_values, ranked_samples

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

DRAWS = 499
LEVEL = 0.05


@baseline(
    "epsilon-diagnosis",
    title="ε-Diagnosis",
    task="localization",
    paper="Shan et al., ε-Diagnosis, WWW 2019",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    stochastic=True,
    speed="instant",
    complexity="O(S·T·(log T + P)), P permutations",
    departures=(
        "The statistic is the energy distance with 499 permutations; the public re-implementation correlates the two "
        "windows sample by sample and cannot see a shift of the level.",
        "Series are measured in healthy standard deviations, cut at a hundred, so that units do not decide.",
        "Permutations take samples for exchangeable, which series with memory are not.",
        "Healthy samples are those of the episode's reference.",
    ),
)
class EpsilonDiagnosis(Untrained):
    """Rank services by the series whose samples since the alarm come from another distribution.

    The smallest p-value decides, then the larger distance. Series with p above `level` do not count.

    References
    ----------
    Shan et al., ε-Diagnosis: unsupervised and real-time diagnosis of small-window long-tail latency in
    large-scale microservice platforms, WWW 2019; Székely, Rizzo, Energy statistics, J. Stat. Plan. Inference, 2013.
    """

    def __init__(self, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> None:
        self.draws = draws
        self.level = level
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by p-value, then by distance."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        samples = episode.once(("ranked samples", alarm_ns), lambda: ranked_samples(*healthy_spreads(windows)))
        rng = episode_rng(self.seed, episode.episode)
        distance, p = samples.distances, permutation_p_values(samples, draws=self.draws, rng=rng)
        # The integer part counts beaten permutations, the rest orders series that beat equally many.
        score = np.where(p <= self.level, np.round((1 - p) * (self.draws + 1)) + distance / (1 + distance), 0.0)
        order = sorted(np.flatnonzero(score).tolist(), key=lambda column: (-score[column], windows.series[column]))
        metrics = {windows.series[column]: float(score[column]) for column in order}
        scores: dict[str, float] = {}
        for (service, _), value in metrics.items():
            scores.setdefault(service, value)
        evidence = [
            Evidence(
                service=windows.series[column][0],
                subject=windows.series[column][1],
                score=float(distance[column]),
                detail=f"energy distance in healthy spreads, p = {p[column]:.3f}",
            )
            for column in order[:10]
        ]
        return Ranking.of(scores, episode.services, evidence, metrics)
