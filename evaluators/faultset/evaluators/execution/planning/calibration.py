"""Inner folds: on which training episodes a detector's threshold is set by a model that was not fitted on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from faultset.datasets.training.folds import Fold, cross_folds
from faultset.evaluators.results.truth import Truth

MOST_INNER_FOLDS = 5
"""Each costs a fit of every detector that learns."""


def inner_folds(fold: Fold, truths: Mapping[str, Truth]) -> list[Fold]:
    """Divide the training episodes of a fold, so that each episode without a fault is tested once.

    Clusters are kept together as in the folds of an evaluation. Nothing comes of fewer than two training episodes
    without a fault: the one that is tested would be the only one to learn from.

    Parameters
    ----------
    truths
        Truth of every training episode, by its id.
    """
    training = [truths[episode] for episode in (*fold.healthy_train, *fold.faulty_train)]
    count = min(MOST_INNER_FOLDS, len(fold.healthy_train))
    if count < 2:
        return []
    healthy = set(fold.healthy_train)
    divided = cross_folds(training, count)
    return [
        replace(part, number=fold.number, inner=number, test=tuple(e for e in part.test if e in healthy))
        for number, part in enumerate(divided)
        if part.healthy_train and healthy.intersection(part.test)
    ]
