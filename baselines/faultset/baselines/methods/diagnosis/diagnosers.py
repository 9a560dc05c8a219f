"""Diagnosers: at which system level a fault lies, and of which type it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.api.contract import Diagnosis, Evidence, Labelled
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import NOTHING, OWN
from faultset.baselines.methods.diagnosis.signatures import TABLES_READ, Signature, signature
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Pair = tuple[str | None, str | None]
_COMPLEXITY = "O(S·T + N + L + O), as much for each training episode"
_OWN = "None; signatures of deviations by role, as operators' runbooks have them"


@baseline(
    "constant-pair",
    title="Constant pair",
    task="rca",
    paper="None; a control",
    kind="control",
    developed_on=NOTHING,
    tables=(),
    needs=("labels",),
    speed="instant",
    complexity="O(1)",
)
class ConstantPair:
    """Control: answer with the pair that is most frequent in the training episodes."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def __init__(self) -> None:
        self.pair_: Pair | None = None
        self.share_ = 0.0

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Count pairs."""
        counts = Counter(pair for pair in map(_pair, training) if pair is not None)
        self.pair_, self.share_ = None, 0.0
        if counts:
            self.pair_ = min(counts, key=lambda pair: (-counts[pair], str(pair)))
            self.share_ = counts[self.pair_] / counts.total()
        return self

    def diagnose(self, episode: EpisodeView, alarm_ns: int) -> Diagnosis:
        """Return the most frequent pair."""
        if self.pair_ is None:
            return Diagnosis.abstain()
        return Diagnosis(system_level=self.pair_[0], fault_type=self.pair_[1], confidence=self.share_)


class _SignatureDiagnoser:
    """What both diagnosers share: signatures of the training faults, on a common scale."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Take the signatures of the faults; episodes without a fault only say what is usual."""
        known = [(signature(item.view), _pair(item)) for item in training]
        found = [(shown, pair) for shown, pair in known if shown is not None]
        self.names_ = tuple(sorted({name for shown, _ in found for name in shown.features}))
        self.pairs_ = [pair for _, pair in found if pair is not None]
        self.classes_ = sorted(set(self.pairs_), key=str)
        every = self._matrix([shown for shown, _ in found])
        self.scale_ = np.maximum(np.sqrt((every**2).mean(axis=0)), 1e-6) if len(every) else np.ones(len(self.names_))
        self.training_matrix_ = self._matrix([shown for shown, pair in found if pair is not None]) / self.scale_
        self._learn()
        return self

    def diagnose(self, episode: EpisodeView, alarm_ns: int) -> Diagnosis:
        """Compare the episode's signature with those of the training faults."""
        if not getattr(self, "pairs_", None):
            return Diagnosis.abstain()
        shown = signature(episode)
        if shown is None:
            return Diagnosis.abstain()
        row = (self._matrix([shown]) / self.scale_)[0]
        pair, confidence, reported = self._answer(row)
        evidence = tuple(
            Evidence(service=shown.suspect, subject=name, score=float(row[self.names_.index(name)]), detail=text)
            for name, text in reported
            if shown.suspect is not None
        )
        return Diagnosis(system_level=pair[0], fault_type=pair[1], confidence=confidence, evidence=evidence)

    def _matrix(self, shown: Sequence[Signature]) -> Matrix:
        return np.array([[item.features.get(name, 0.0) for name in self.names_] for item in shown]).reshape(
            len(shown), len(self.names_)
        )

    def _learn(self) -> None:
        """Learn from `training_matrix_` and `pairs_`."""

    def _answer(self, row: Matrix) -> tuple[Pair, float, list[tuple[str, str]]]:
        raise NotImplementedError


@baseline(
    "nearest-signature",
    title="Nearest signature",
    task="rca",
    paper=_OWN,
    kind="own",
    developed_on=OWN,
    tables=TABLES_READ,
    needs=("labels",),
    speed="instant",
    complexity=_COMPLEXITY,
    departures=("The time of the alarm is not used, because training episodes come without one.",),
)
class NearestSignature(_SignatureDiagnoser):
    """Answer with the pair whose faults in the training episodes look most like this one.

    Features are divided by their root mean square; likeness is the cosine, so that it is the kind of deviation that
    counts, not its size. The nearest faults vote with their likeness.

    Parameters
    ----------
    neighbours
        Training faults that vote.

    References
    ----------
    Cover, Hart, Nearest neighbor pattern classification, IEEE Trans. Inf. Theory 1967; the signature is our own.
    """

    def __init__(self, *, neighbours: int = 3) -> None:
        self.neighbours = neighbours

    def _answer(self, row: Matrix) -> tuple[Pair, float, list[tuple[str, str]]]:
        squashed, training = np.tanh(row), np.tanh(self.training_matrix_)
        length = np.linalg.norm(training, axis=1) * np.linalg.norm(squashed)
        likeness = np.divide(training @ squashed, length, out=np.zeros(len(training)), where=length > 0)
        nearest = np.argsort(-likeness, kind="stable")[: self.neighbours]
        votes: dict[Pair, float] = {}
        for number in nearest.tolist():
            pair = self.pairs_[number]
            votes[pair] = votes.get(pair, 0.0) + max(0.0, float(likeness[number])) + 1e-9
        pair = min(votes, key=lambda one: (-votes[one], str(one)))
        match = next(number for number in nearest.tolist() if self.pairs_[number] == pair)
        common = squashed * training[match]
        reported = [
            (self.names_[column], "also in a training episode of the kind")
            for column in np.argsort(-common, kind="stable")[:5]
            if common[column] > 0
        ]
        return pair, votes[pair] / sum(votes.values()), reported


class _Trees(_SignatureDiagnoser):
    """Trees on signatures; the scale does not matter to them."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def _model(self) -> Any:
        raise NotImplementedError

    def _learn(self) -> None:
        self.model_ = self._model()
        if self.pairs_:
            self.model_.fit(self.training_matrix_, [self.classes_.index(pair) for pair in self.pairs_])
            # a forest adds them up anew whenever it is asked
            self.importances_ = self.model_.feature_importances_

    def _shares(self, row: Matrix) -> Matrix:
        """Return the probability of each class."""
        return self.model_.predict_proba(row[None])[0]

    def _answer(self, row: Matrix) -> tuple[Pair, float, list[tuple[str, str]]]:
        shares = self._shares(row)
        best = int(shares.argmax())
        weight = self.importances_ * np.abs(row)
        reported = [
            (self.names_[column], "told the classes apart in training")
            for column in np.argsort(-weight, kind="stable")[:5]
            if weight[column] > 0
        ]
        return self.classes_[int(self.model_.classes_[best])], float(shares[best]), reported


@baseline(
    "rca-tree",
    title="Tree on signatures",
    task="rca",
    paper="Breiman et al., CART, 1984; the features are our own",
    kind="own",
    developed_on=OWN,
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    speed="instant",
    complexity=_COMPLEXITY,
    departures=("The time of the alarm is not used, because training episodes come without one.",),
)
class RCATree(_Trees):
    """Answer with the leaf of a small decision tree that the episode's signature falls into.

    Parameters
    ----------
    seed
        Decides between splits that are equally good.

    References
    ----------
    Breiman, Friedman, Olshen, Stone, Classification and regression trees, 1984.
    """

    def _model(self) -> Any:
        from sklearn.tree import DecisionTreeClassifier

        return DecisionTreeClassifier(max_depth=6, class_weight="balanced", random_state=self.seed)


@baseline(
    "rca-forest",
    title="Forest on signatures",
    task="rca",
    paper="Geurts, Ernst, Wehenkel, Extremely randomized trees, 2006; the features are our own",
    kind="own",
    developed_on=OWN,
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    speed="instant",
    complexity=_COMPLEXITY,
    departures=("The time of the alarm is not used, because training episodes come without one.",),
)
class RCAForest(_Trees):
    """Answer with the vote of a hundred random trees on the episode's signature.

    Parameters
    ----------
    seed
        Of the trees.

    References
    ----------
    Geurts, Ernst, Wehenkel, Extremely randomized trees, Machine Learning 2006.
    """

    def _model(self) -> Any:
        from sklearn.ensemble import ExtraTreesClassifier

        return ExtraTreesClassifier(n_estimators=100, class_weight="balanced", random_state=self.seed)

    def _shares(self, row: Matrix) -> Matrix:
        # as `predict_proba` does, without what that does around each tree
        one = row[None].astype(np.float32)
        trees = self.model_.estimators_
        return np.sum([tree.tree_.predict(one)[0] for tree in trees], axis=0) / len(trees)


def _pair(item: Labelled) -> Pair | None:
    """Level and type of a training episode; None without a fault or where both are unknown."""
    if item.fault_type is None and item.system_level is None:
        return None
    return item.system_level, item.fault_type
