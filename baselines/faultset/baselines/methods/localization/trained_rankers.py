"""Localizers trained on labelled episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.api.contract import Evidence, Labelled, Ranking, RegisteredBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.features.windows import cut_window_after, localization_windows
from faultset.baselines.logs.templates import error_line_excess, select_error_lines
from faultset.baselines.stats.scaling import Matrix, deviations, median_and_mad, with_metric_floor
from faultset.baselines.traces.spans import read_spans
from faultset.datasets.metrics.roles import ROLES

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

MAX_Z = 50.0
TABLES_READ = ("metrics", "logs", "spans")
_OWN = (
    *ROLES,
    "stopped series",
    "error lines",
    "failed calls to it",
    "unanswered calls to it",
    "slower calls to it",
    "more calls to it",
)
NAMES = (*_OWN, *(f"{name}, share of the largest" for name in _OWN))
"""Feature names: the features of a service, and their ratios to the largest over all services."""


@dataclass(frozen=True, kw_only=True)
class ServiceSignatures:
    """Features of each candidate."""

    services: tuple[str, ...]
    rows: Matrix
    """[V, len(NAMES)]"""


def describe_services(episode: EpisodeView, alarm_ns: int) -> ServiceSignatures | None:
    """Return how each candidate has differed from its reference since the alarm; None without telemetry."""
    services = tuple(sorted(episode.services))
    features = np.zeros((len(services), len(_OWN)))
    has_data = [fill(episode, alarm_ns, services, features) for fill in (_fill_metrics, _fill_logs, _fill_calls)]
    if not any(has_data):
        return None
    largest = np.abs(features).max(axis=0, initial=0.0)
    shares = np.divide(features, largest, out=np.zeros_like(features), where=largest > 0)
    return ServiceSignatures(services=services, rows=np.hstack([features, shares]))


def _fill_metrics(episode: EpisodeView, alarm_ns: int, services: tuple[str, ...], features: Matrix) -> bool:
    """Fill in the largest signed log deviation of each role, and the share of stopped series."""
    windows = localization_windows(episode, alarm_ns)
    if windows.empty:
        return False
    center, spread = median_and_mad(windows.reference)
    never_absent = np.zeros_like(windows.absent)
    z = deviations(windows.values, center, with_metric_floor(spread, windows.series), never_absent)
    gone = windows.absent.mean(axis=0) > 0.5
    level = np.clip(np.where(gone, 0.0, np.median(z, axis=0)), -MAX_Z, MAX_Z)
    owner = np.array([services.index(service) for service in windows.services])
    role_of = episode.catalogue.role_of
    role = np.array([ROLES.index(role_of(metric)) for _, metric in windows.series])
    order = np.argsort(np.abs(level), kind="stable")
    features[owner[order], role[order]] = np.sign(level[order]) * np.log1p(np.abs(level[order]))
    count = np.bincount(owner, minlength=len(services))
    features[:, _OWN.index("stopped series")] = np.bincount(owner, gone, len(services)) / np.maximum(count, 1)
    return True


def _fill_logs(episode: EpisodeView, alarm_ns: int, services: tuple[str, ...], features: Matrix) -> bool:
    lines = select_error_lines(episode)
    excess = error_line_excess(lines, cut_window_after(episode, alarm_ns, episode.context.resolution_s))
    column = _OWN.index("error lines")
    for index, service in enumerate(services):
        features[index, column] = np.log1p(max(0.0, excess.get(service, 0.0)))
    return len(lines) > 0


def _fill_calls(episode: EpisodeView, alarm_ns: int, services: tuple[str, ...], features: Matrix) -> bool:
    """Fill in changes of failures, missing answers, duration and number of the calls to each service."""
    spans = read_spans(episode)
    calls = spans.calls
    healthy_end_ns = min(episode.reference[1], alarm_ns)
    before = spans.end_ns[calls.row] < healthy_end_ns
    recent = spans.start_ns[calls.row] >= alarm_ns
    if not before.any() or not recent.any():
        return False
    times = np.log10(np.maximum(spans.duration_ns[calls.row], 1.0))
    measures = {
        "failed calls to it": spans.error[calls.row].astype(float),
        "unanswered calls to it": (spans.service[calls.row] != calls.callee).astype(float),
        "slower calls to it": times,
    }
    lengths = (healthy_end_ns - episode.window[0], max(1, episode.window[1] - alarm_ns))
    counts = [np.bincount(calls.callee[part], minlength=len(spans.names)) for part in (before, recent)]
    for code, name in enumerate(spans.names):
        if name not in services or not counts[0][code]:
            continue
        row = services.index(name)
        rates = [(count[code] + 0.5) / length for count, length in zip(counts, lengths, strict=True)]
        features[row, _OWN.index("more calls to it")] = np.log(rates[1] / rates[0])
        called = calls.callee == code
        for measure, values in measures.items():
            if (called & recent).any():
                change = values[called & recent].mean() - values[called & before].mean()
                features[row, _OWN.index(measure)] = change
    return True


_MAX_EVIDENCE = 5


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
    complexity="O(S·T + L + N), and the same for each training episode",
    departures=(
        "Pointwise: each service of a training fault is a row, faulty or not, instead of pairs of a list.",
        "In training, the alarm is at the onset.",
    ),
    developed_on=(SAMPLE,),
)
class BoostedRanker(RegisteredBaseline):
    """Rank services by their probability of being faulty, by gradient-boosted trees.

    It does not use names of services, so it can locate faults in services that were never faulty in training.

    Parameters
    ----------
    rounds
        Number of trees.
    leaves
        Maximum number of leaves per tree.
    seed
        Seed of the trees.

    References
    ----------
    Friedman, Greedy Function Approximation: A Gradient Boosting Machine, Annals of Statistics 2001; Burges, From
    RankNet to LambdaRank to LambdaMART: An Overview, MSR-TR-2010-82.
    """

    def __init__(self, *, rounds: int = 60, leaves: int = 6, seed: int = 0) -> None:
        self.rounds, self.leaves, self.seed = rounds, leaves, seed
        self.model_: Any = None

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn from the services of training faults; if there are none, `localize` abstains."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        rows, at_fault = [], []
        for item in training:
            if not item.causes:
                continue
            onset_ns = item.onset_ns if item.onset_ns is not None else item.view.reference[1]
            signatures = describe_services(item.view, onset_ns)
            if signatures is not None:
                rows.append(signatures.rows)
                at_fault += [service in item.causes for service in signatures.services]
        self.model_ = None
        if len(set(at_fault)) == 2:
            early_stopping: Any = False
            model = HistGradientBoostingClassifier(
                max_iter=self.rounds,
                max_leaf_nodes=self.leaves,
                min_samples_leaf=3,
                l2_regularization=1.0,
                class_weight="balanced",
                early_stopping=early_stopping,
                random_state=self.seed,
            )
            self.model_ = model.fit(np.concatenate(rows), at_fault)
        return self

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank the candidates by the predicted probability."""
        model = self.model_
        signatures = None if model is None else describe_services(episode, alarm_ns)
        if model is None or signatures is None or not signatures.rows.any():
            return Ranking.abstain()
        shares = model.predict_proba(signatures.rows)[:, 1]
        best = int(shares.argmax())
        order = np.argsort(-np.abs(signatures.rows[best]), kind="stable")[:_MAX_EVIDENCE].tolist()
        evidence = [
            Evidence(service=signatures.services[best], subject=NAMES[index], score=float(signatures.rows[best, index]))
            for index in order
            if signatures.rows[best, index]
        ]
        return Ranking.of(dict(zip(signatures.services, shares.tolist(), strict=True)), episode.services, evidence)
