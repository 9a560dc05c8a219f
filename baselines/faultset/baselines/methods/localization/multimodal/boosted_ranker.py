"""A localizer that learns from the training faults what the service at fault looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.api.contract import Evidence, Labelled, Ranking
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.methods.localization.multimodal.service_signatures import NAMES, TABLES_READ, service_signatures

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

_MOST_EVIDENCE = 5


@baseline(
    "boosted-ranker",
    title="Gradient-boosted ranker on service signatures",
    task="localization",
    paper="Friedman, Annals of Statistics 2001; Burges, MSR-TR-2010-82; the features are our own",
    kind="own",
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    speed="instant",
    complexity="O(S·T + L + N), as much for each training episode",
    departures=(
        "Pointwise: each service of each training fault is one row, at fault or not, instead of pairs of a list.",
        "Training episodes are looked at as if the alarm had been given at the onset.",
    ),
    developed_on=(SAMPLE,),
)
class BoostedRanker:
    """Rank services by how likely gradient-boosted trees hold them to be the one at fault.

    Rows carry no name of a service, so a service that was never at fault in training can be found.

    Parameters
    ----------
    rounds
        Trees.
    leaves
        Of a tree at most.
    seed
        Of the trees.

    References
    ----------
    Friedman, Greedy Function Approximation: A Gradient Boosting Machine, Annals of Statistics 2001; Burges, From
    RankNet to LambdaRank to LambdaMART: An Overview, MSR-TR-2010-82.
    """

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def __init__(self, *, rounds: int = 60, leaves: int = 6, seed: int = 0) -> None:
        self.rounds, self.leaves, self.seed = rounds, leaves, seed
        self.model_: Any = None

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn from the services of training faults; without any, `localize` abstains."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        rows, at_fault = [], []
        for item in training:
            if not item.causes:
                continue
            onset_ns = item.onset_ns if item.onset_ns is not None else item.view.reference[1]
            found = service_signatures(item.view, onset_ns)
            if found is not None:
                rows.append(found.rows)
                at_fault += [service in item.causes for service in found.services]
        self.model_ = None
        if len(set(at_fault)) == 2:
            never: Any = False
            model = HistGradientBoostingClassifier(
                max_iter=self.rounds,
                max_leaf_nodes=self.leaves,
                min_samples_leaf=3,
                l2_regularization=1.0,
                class_weight="balanced",
                early_stopping=never,
                random_state=self.seed,
            )
            self.model_ = model.fit(np.concatenate(rows), at_fault)
        return self

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank the candidates by the probability that the trees give them."""
        model = self.model_
        found = None if model is None else service_signatures(episode, alarm_ns)
        if model is None or found is None or not found.rows.any():
            return Ranking.abstain()
        shares = model.predict_proba(found.rows)[:, 1]
        best = int(shares.argmax())
        order = np.argsort(-np.abs(found.rows[best]), kind="stable")[:_MOST_EVIDENCE].tolist()
        evidence = [
            Evidence(service=found.services[best], subject=NAMES[place], score=float(found.rows[best, place]))
            for place in order
            if found.rows[best, place]
        ]
        return Ranking.of(dict(zip(found.services, shares.tolist(), strict=True)), episode.services, evidence)
