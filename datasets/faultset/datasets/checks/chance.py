"""Does anything about an episode's making predict whether it has a fault? It must not.

Start time, order, length, set of files and the number of rows in the healthy window are no signals of a fault. A
small classifier that sees only them must do no better than on shuffled labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np
import pyarrow as pa

from faultset.core.errors import how_to_install
from faultset.core.times import SECOND_NS
from faultset.datasets.checks.findings import Finding
from faultset.datasets.format.context import IMPORTED
from faultset.datasets.format.schemas import TABLES, time_column
from faultset.datasets.views import EpisodeView

LEVEL = 0.05
FEWEST = 8
"""Episodes with and without a fault that the check needs of each."""
ONSET_SPREAD = 0.02
"""Standard deviation of the onset's place in the view, as a share of its length, below which the place is known."""
_FOLDS = 5
_SHUFFLES = 199
_ENOUGH = 20
_DAY_NS = 86_400 * SECOND_NS


def chance_findings(views: Mapping[str, EpisodeView], faulty: Mapping[str, bool]) -> list[Finding]:
    """Return a finding when circumstances predict the fault, or a note when there are too few episodes to say."""
    counts = (sum(faulty.values()), len(faulty) - sum(faulty.values()))
    if min(counts) < FEWEST:
        return [
            _finding(
                "note",
                f"not decided: {counts[0]} episodes with a fault and {counts[1]} without, {FEWEST} of each are needed; "
                "collect more into this dataset, with another --seed or more --repeat and --normal",
            )
        ]
    if find_spec("sklearn") is None:
        return [
            _finding(
                "warning",
                "whether start times, order, length and files predict the fault was not tested, because scikit-learn "
                f"is not installed; {how_to_install('evaluate')}",
            )
        ]
    features = circumstances(views)
    episodes = sorted(views)
    score, p_value = predictability(features, np.array([faulty[episode] for episode in episodes]))
    if p_value > LEVEL:
        return []
    return [
        _finding(
            "warning",
            f"start time, order, length, files and healthy row counts predict the fault with balanced accuracy "
            f"{score:.2f} (permutation p = {p_value:.3f}, at chance it would exceed {LEVEL}); one in "
            f"{round(1 / LEVEL)} clean datasets shows this too; collect as many episodes again with another --seed and "
            "verify again: what is no accident shows there too, and a method may then score by it",
        )
    ]


def onset_findings(
    views: Mapping[str, EpisodeView], onsets: Mapping[str, int | None], *, fewest: int = FEWEST
) -> list[Finding]:
    """Return a finding when imported views begin so long before their onset that a clock would find it.

    Our own collections draw the onset; many benchmarks record as long before it as after it.
    """
    shares = []
    for episode, onset in onsets.items():
        start, end = views[episode].window
        if onset is not None and views[episode].context.platform == IMPORTED:
            shares.append((onset - start) / (end - start))
    if len(shares) < fewest or float(np.std(shares)) > ONSET_SPREAD:
        return []
    return [
        _finding(
            "warning",
            f"the onset lies at {np.mean(shares):.0%} of the view in all {len(shares)} imported episodes (standard "
            f"deviation {np.std(shares):.1%}): the layout of the source tells it, so judge localization by the oracle "
            "protocol and give no weight to detection",
        )
    ]


def circumstances(views: Mapping[str, EpisodeView]) -> np.ndarray:
    """Return one row per episode, in the order of sorted ids, of what is known without looking at signals."""
    episodes = sorted(views)
    tables = [*TABLES, *sorted({table for view in views.values() for table in view.tables} - TABLES.keys())]
    starts = np.array([views[episode].window[0] for episode in episodes])
    rows = []
    for episode, order in zip(episodes, np.argsort(np.argsort(starts)), strict=True):
        view = views[episode]
        start, end = view.window
        angle = 2 * np.pi * (start % _DAY_NS) / _DAY_NS
        counts = [_reference_rows(view, table) if table in view.tables else None for table in tables]
        present = [count is not None for count in counts]
        filled = [np.log1p(count or 0) for count in counts]
        rows.append([np.sin(angle), np.cos(angle), order, (end - start) / 1e9, *present, *filled])
    return np.array(rows, dtype=float)


def predictability(features: np.ndarray, faulty: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """Return the balanced accuracy of a depth-2 tree in five folds, and its permutation p-value.

    Shuffling ends early once it is clear that shuffled labels are predicted as well (Besag and Clifford, 1991).
    """
    rng = np.random.default_rng(seed)
    fold = rng.permutation(np.arange(len(faulty)) % _FOLDS)
    score = _fold_accuracy(features, faulty, fold)
    as_good = 0
    for shuffles in range(1, _SHUFFLES + 1):
        as_good += _fold_accuracy(features, rng.permutation(faulty), fold) >= score
        if as_good == _ENOUGH:
            return score, as_good / shuffles
    return score, (1 + as_good) / (1 + _SHUFFLES)


def _fold_accuracy(features: np.ndarray, faulty: np.ndarray, fold: np.ndarray) -> float:
    """Return the balanced accuracy of predictions for each fold by a tree that has not seen it."""
    from sklearn.tree import DecisionTreeClassifier

    predicted = np.empty(len(faulty), dtype=bool)
    for number in range(_FOLDS):
        held = fold == number
        # Only two classes and few rows: balanced weights stop a tree from always giving the commoner answer.
        tree = DecisionTreeClassifier(max_depth=2, min_samples_leaf=2, class_weight="balanced", random_state=0)
        predicted[held] = tree.fit(features[~held], faulty[~held]).predict(features[held])
    return float((predicted[faulty].mean() + (~predicted[~faulty]).mean()) / 2)


def _reference_rows(view: EpisodeView, table: str) -> int:
    column = time_column(table)
    times = view.table(table, columns=[column])[column].cast(pa.int64()).to_numpy()
    start, end = view.reference
    return int(((times >= start) & (times < end)).sum())


def _finding(severity: str, message: str) -> Finding:
    return Finding(severity=severity, check="chance", episode=None, file=None, message=message)  # type: ignore[arg-type]
