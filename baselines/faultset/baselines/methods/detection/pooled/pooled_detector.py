"""What detectors that learn across episodes share: one model of all services, and limits of the episode's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, first_alarm
from faultset.baselines.features.held_out import own_limits
from faultset.baselines.features.role_vectors import RoleVectors, healthy_sequences, role_vectors
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

MOST_ROWS = 200_000
"""Training rows, more or less; every k-th step is taken where there are more, so that a fit has a limit."""
USUAL_SHARE = 0.95
_MOST_EVIDENCE = 3

DEPARTURES = (
    "One model is learned from all services of all healthy training episodes, and of healthy references; its input is "
    "log(1 + largest |z|) of each role of a service, by the episode's own reference.",
    "A service's limit is the largest score that it has in the episode's own reference, which no model was fitted on, "
    "and at least what 95 % of the training rows stay below; an instant has the score of its worst service.",
)


class PooledDetector:
    """A detector with a model of what a service's vector of roles looks like while all is well."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]
    history = 0
    """Steps before one that are needed to score it."""

    def __init__(self) -> None:
        self.model_: Any = None
        self.usual_ = 0.0

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn from all services of healthy episodes; without any, `detect` is silent."""
        sequences = [one for one in healthy_sequences(healthy) if len(one) > self.history]
        self.model_ = None
        if sequences:
            self.model_ = self._learned(sequences)
            scores = np.concatenate([self._scores(one) for one in sequences])
            self.usual_ = float(np.quantile(scores, USUAL_SHARE))
        return self

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its worst service, in units of that service's limit."""
        found = role_vectors(episode)
        if self.model_ is None or found is None or found.windows.empty or found.healthy <= self.history + 1:
            return Detection.silent(1.0)
        scores = self._scores_of_services(found.vectors)
        first = found.healthy - self.history
        shares, limit = own_limits(scores[:first], scores[first:], max(self.usual_, 1e-9))
        return self._detection(found, shares, limit)

    def _scores_of_services(self, vectors: Matrix) -> Matrix:
        """Return the scores [T - history, S] of vectors [T, S, R]."""
        if self.history == 0:
            # steps are scored one by one, so those of all services at once: a call costs more than its rows
            return self._scores(vectors.reshape(-1, vectors.shape[2])).reshape(vectors.shape[:2])
        return np.stack([self._scores(vectors[:, service]) for service in range(vectors.shape[1])], axis=1)

    def _learned(self, sequences: Sequence[Matrix]) -> Any:
        """Return a model of sequences [steps, R], each of one service."""
        raise NotImplementedError

    def _scores(self, sequence: Matrix) -> Matrix:
        """Return a score, not negative, for each step of a sequence but the first `history`."""
        raise NotImplementedError

    def _detection(self, found: RoleVectors, shares: Matrix, limit: float) -> Detection:
        times, worst = found.windows.times_ns, shares.max(axis=1)
        alarm = first_alarm(times, worst > limit)
        evidence: list[Evidence] = []
        if alarm is not None:
            row = int(np.searchsorted(times, alarm))
            for service in np.argsort(-shares[row], kind="stable")[:_MOST_EVIDENCE].tolist():
                name, score = found.services[service], float(shares[row, service])
                evidence.append(Evidence(service=name, subject="all roles", score=score, detail="times its limit"))
        return Detection.from_scores(times, worst, limit, evidence=evidence)


def pooled_rows(sequences: Sequence[Matrix]) -> Matrix:
    """Return the steps of all sequences as rows, about `MOST_ROWS` at most."""
    return thinned(sequences, MOST_ROWS)


def thinned(sequences: Sequence[Matrix], most: int) -> Matrix:
    """Return every k-th step of each sequence, so that about so many are left, whatever the order of the sequences."""
    step = -(-sum(map(len, sequences)) // most)
    return np.concatenate([sequence[::step] for sequence in sequences])
