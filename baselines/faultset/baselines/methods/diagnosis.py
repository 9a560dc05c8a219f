"""Diagnosers that compare signatures of faults, which are independent of the application.

A signature contains no names of services, operations or log templates. It describes the service that deviates most (the
suspect) and all others together.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.contract import Diagnosis, Evidence, Labelled, RegisteredBaseline
from faultset.baselines.features.log_lines import select_error_lines
from faultset.baselines.features.object_states import (
    object_histories,
    parse_state,
    read_object_states,
    read_specification,
)
from faultset.baselines.features.spans import read_spans
from faultset.baselines.features.windows import TimeWindow, localization_windows
from faultset.baselines.methods.controls import RootCausePair, fault_pair
from faultset.baselines.methods.rules.state_rules import KubernetesState
from faultset.baselines.registry import OWN, baseline
from faultset.baselines.stats.scaling import ABSENT_Z, Matrix, deviations, median_and_mad, with_metric_floor
from faultset.datasets.views import EpisodeView, read_frame, read_table

FAR = 6.0
MAX_Z = 50.0
# Topics of error lines, by words that clients, drivers and runtimes of all languages use.
TOPICS: Mapping[str, str] = {
    "access": r"auth|not allowed|permission|denied|credential|password|forbidden|NOPERM|WRONGPASS|NOAUTH",
    "absent": r"not found|no such|unknown|missing|does not exist|not registered|NoSuch|undefined",
    "connection": r"refused|unreachable|reset by|broken pipe|no route|EOF|unavailable|cannot connect|no reachable",
    "time": r"time.?out|timed out|deadline|too slow|took too long",
    "crash": r"panic|exception|traceback|fatal|segfault|out of memory|OOM|killed|null pointer",
    "storage": r"disk|volume|mount|read.only|no space|corrupt|i/o error",
}


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Features of one episode; a missing feature is 0."""

    features: Mapping[str, float]
    suspect: str | None
    """Service that deviates most; used in the evidence only."""


def describe_fault(episode: EpisodeView) -> Signature | None:
    """Return how an episode differs from its reference, or None if all tables are empty.

    Training episodes have no alarm, so the time of the alarm is not used. Features cover everything after the
    reference. Levels come from the second half of that time, which is almost always after the onset.
    """
    return episode.once("signature", lambda: _describe_fault(episode))


def _describe_fault(episode: EpisodeView) -> Signature | None:
    start_ns, end_ns = episode.window
    healthy_end_ns = episode.reference[1]
    late_ns = healthy_end_ns + (end_ns - healthy_end_ns) // 2
    time_window = TimeWindow(
        start_ns=healthy_end_ns, end_ns=end_ns, healthy_start_ns=start_ns, healthy_end_ns=healthy_end_ns
    )
    weights: dict[str, float] = defaultdict(float)
    parts = (
        _describe_objects(episode, healthy_end_ns, weights),
        _describe_metrics(episode, late_ns, weights),
        _describe_calls(episode, healthy_end_ns, late_ns),
        _describe_logs(episode, time_window),
        _describe_events(episode, time_window),
    )
    if all(group is None for group in parts):
        return None
    features = {name: value for group in parts if group for name, value in group.items() if value}
    suspect = min(weights, key=lambda name: (-weights[name], name)) if weights else None
    return Signature(features=features, suspect=suspect)


def _describe_metrics(episode: EpisodeView, late_ns: int, weights: dict[str, float]) -> dict[str, float] | None:
    """Return, for each role, the suspect's largest signed deviation and the share of other services that deviate."""
    windows = localization_windows(episode, episode.reference[1], before=0)
    if windows.empty:
        return None
    catalogue = episode.catalogue
    center, spread = median_and_mad(windows.reference)
    scale = with_metric_floor(spread, windows.series)
    z = deviations(windows.values, center, scale)
    is_late = windows.times_ns > late_ns
    level = np.median(z[is_late], axis=0) if is_late.any() else np.zeros(z.shape[1])
    is_gone = windows.absent[is_late].mean(axis=0) > 0.5 if is_late.any() else np.zeros(z.shape[1], dtype=bool)
    level = np.clip(np.where(is_gone, 0.0, level), -MAX_Z, MAX_Z)
    names, owner = np.unique(windows.services, return_inverse=True)
    roles, role = np.unique([catalogue.role_of(metric) for _, metric in windows.series], return_inverse=True)
    table = np.zeros((len(names), len(roles)))
    order = np.argsort(np.abs(level), kind="stable")
    table[owner[order], role[order]] = level[order]
    strength = np.minimum(np.abs(table) / FAR, 3.0).sum(axis=1)
    missing = np.bincount(owner, weights=is_gone, minlength=len(names)) / np.bincount(owner, minlength=len(names))
    for name, value in zip(names.tolist(), (strength + ABSENT_Z * missing).tolist(), strict=True):
        weights[name] += value
    suspect = min(range(len(names)), key=lambda code: (-weights[names[code]], names[code]))
    others = np.delete(table, suspect, axis=0)
    features = {"series gone, suspect": float(missing[suspect]), "series gone": float((missing > 0.5).mean())}
    for column, name in enumerate(roles.tolist()):
        features[f"{name}, suspect"] = float(np.sign(table[suspect, column]) * np.log1p(abs(table[suspect, column])))
        if len(others):
            features[f"{name}, share of the others that rise"] = float((others[:, column] > FAR).mean())
            features[f"{name}, share of the others that fall"] = float((others[:, column] < -FAR).mean())
    return features


def _describe_objects(episode: EpisodeView, healthy_end_ns: int, weights: dict[str, float]) -> dict[str, float] | None:
    """Return signs of trouble in Kubernetes objects, and changed fields of specifications."""
    frame = read_object_states(episode)
    if frame.empty:
        return None
    features: dict[str, float] = defaultdict(float)
    for item in KubernetesState().localize(episode, healthy_end_ns).evidence:
        amount = np.log1p(item.score) if item.detail == "restarts" else item.score
        features[f"object: {item.detail}"] = max(features[f"object: {item.detail}"], float(amount))
        weights[item.service] += 3.0 * item.score
    for history in object_histories(frame):
        old, new = (read_specification(history.kind, parse_state(history.texts[index])) for index in (0, -1))
        if old is not None and new is not None:
            for field in old.keys() | new.keys():
                if old.get(field) != new.get(field):
                    features[f"changed: {history.kind} {field}"] = 1.0
        if history.times_ns[0] > healthy_end_ns and history.kind != "Pod":
            features[f"made: {history.kind}"] = 1.0
    return dict(features)


def _describe_calls(episode: EpisodeView, healthy_end_ns: int, late_ns: int) -> dict[str, float] | None:
    """Return features of failed, unanswered and slow calls, overall and for the worst called service."""
    spans = read_spans(episode)
    calls = spans.calls
    is_healthy = spans.end_ns[calls.row] < healthy_end_ns
    is_late = spans.start_ns[calls.row] >= late_ns
    if not is_healthy.any() or not is_late.any():
        return None
    count = len(spans.names)
    failed = spans.error[calls.row]
    unanswered = spans.service[calls.row] != calls.callee
    features = {}
    for word, hits in (("failed", failed), ("unanswered", unanswered)):
        by_service = np.zeros(count)
        for code in np.unique(calls.callee[is_late]):
            called = calls.callee == code
            healthy_share = hits[called & is_healthy].mean() if (called & is_healthy).any() else 0.0
            by_service[code] = hits[called & is_late].mean() - healthy_share
        features[f"calls {word}"] = float(hits[is_late].mean() - hits[is_healthy].mean())
        features[f"calls {word}, worst"] = float(by_service.max(initial=0.0))
        features[f"calls {word}, share of services"] = float(
            (by_service > 0.1).sum() / max(1, len(np.unique(calls.callee)))
        )
    times = np.log10(np.maximum(spans.duration_ns[calls.row], 1.0))
    ratio = np.array(
        [
            np.median(times[(calls.kind == kind) & is_late]) - np.median(times[(calls.kind == kind) & is_healthy])
            for kind in np.intersect1d(calls.kind[is_late], calls.kind[is_healthy])
        ]
    )
    features["calls slower, median"] = float(np.median(ratio)) if len(ratio) else 0.0
    features["calls slower, worst"] = float(ratio.max(initial=0.0))
    features["calls faster, worst"] = float(ratio.min(initial=0.0))
    healthy_rate = is_healthy.sum() / max(1, healthy_end_ns - episode.window[0])
    features["calls more"] = float(np.log(is_late.sum() / max(1, episode.window[1] - late_ns) / healthy_rate))
    return features


def _describe_logs(episode: EpisodeView, time_window: TimeWindow) -> dict[str, float] | None:
    """Return the increase of lines and error lines, their topics, and the share of services that write them."""
    times = read_table(episode, "logs", ("time",))["time"].cast("int64").to_numpy()
    is_recent, is_healthy = _select_rows(times, time_window)
    if not is_recent.any() and not is_healthy.any():
        return None
    expected = is_healthy.sum() * time_window.length_ratio
    features = {"lines more": float(np.log((is_recent.sum() + 1) / (expected + 1)))}
    bad = select_error_lines(episode)
    is_bad_recent, is_bad_healthy = _select_rows(bad["time"].cast("int64").to_numpy(), time_window)
    excess = is_bad_recent.sum() - is_bad_healthy.sum() * time_window.length_ratio
    features["error lines"] = float(np.log1p(max(0.0, excess)))
    for topic, words in TOPICS.items():
        hit = pc.match_substring_regex(bad["message"], words, ignore_case=True)  # type: ignore[attr-defined]
        hits = hit.fill_null(False).to_numpy()
        increase = hits[is_bad_recent].sum() - hits[is_bad_healthy].sum() * time_window.length_ratio
        features[f"error lines of {topic}"] = float(max(0.0, increase) / max(1.0, excess))
    writers = bad["service"].filter(pa.array(is_bad_recent)).drop_null()
    features["complaining services"] = len(writers.unique()) / max(1, len(episode.services))
    return features


def _describe_events(episode: EpisodeView, time_window: TimeWindow) -> dict[str, float] | None:
    """Return the number of Kubernetes events by reason, beyond the number expected from the reference."""
    frame = read_frame(episode, "events", ("time", "reason", "service"))
    if frame.empty:
        return None
    is_recent, is_healthy = _select_rows(frame["time"].to_numpy(), time_window)
    healthy_counts = frame.loc[is_healthy, "reason"].astype(str).value_counts()
    counts = frame.loc[is_recent, "reason"].astype(str).value_counts()
    return {
        f"event: {reason}": float(np.log1p(max(0.0, count - healthy_counts.get(reason, 0) * time_window.length_ratio)))
        for reason, count in counts.items()
    }


def _select_rows(times: np.ndarray, time_window: TimeWindow) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows are in the time window, and which are in its healthy window."""
    is_recent = (times >= time_window.start_ns) & (times < time_window.end_ns)
    is_healthy = (times >= time_window.healthy_start_ns) & (times < time_window.healthy_end_ns)
    return is_recent, is_healthy


_COMPLEXITY = "O(S·T + N + L + O), and the same for each training episode"
diagnoser = functools.partial(
    baseline,
    task="rca",
    kind="own",
    needs=("labels",),
    speed="instant",
    developed_on=OWN,
    complexity=_COMPLEXITY,
    departures=("The time of the alarm is not used, because training episodes have none.",),
)
_OWN = "None; signatures of deviations by role, as in runbooks"


class _SignatureDiagnoser(RegisteredBaseline):
    """Base class of diagnosers that compare signatures with training faults on a common scale."""

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn from signatures of training faults; episodes without a fault only contribute to the scale."""
        examples = [(describe_fault(item.view), fault_pair(item)) for item in training]
        signatures = [(signature, pair) for signature, pair in examples if signature is not None]
        self.names_ = tuple(sorted({name for signature, _ in signatures for name in signature.features}))
        self.pairs_ = [pair for _, pair in signatures if pair is not None]
        self.classes_ = sorted(set(self.pairs_), key=str)
        matrix = self._build_matrix([signature for signature, _ in signatures])
        self.scale_ = np.maximum(np.sqrt((matrix**2).mean(axis=0)), 1e-6) if len(matrix) else np.ones(len(self.names_))
        faults = [signature for signature, pair in signatures if pair is not None]
        self.training_matrix_ = self._build_matrix(faults) / self.scale_
        self._learn()
        return self

    def diagnose(self, episode: EpisodeView, alarm_ns: int) -> Diagnosis:
        """Compare the episode's signature with the signatures of training faults."""
        if not getattr(self, "pairs_", None):
            return Diagnosis.abstain()
        signature = describe_fault(episode)
        if signature is None:
            return Diagnosis.abstain()
        row = (self._build_matrix([signature]) / self.scale_)[0]
        pair, confidence, reported = self._answer(row)
        evidence = tuple(
            Evidence(service=signature.suspect, subject=name, score=float(row[self.names_.index(name)]), detail=text)
            for name, text in reported
            if signature.suspect is not None
        )
        return Diagnosis(system_level=pair[0], fault_type=pair[1], confidence=confidence, evidence=evidence)

    def _build_matrix(self, signatures: Sequence[Signature]) -> Matrix:
        rows = [[signature.features.get(name, 0.0) for name in self.names_] for signature in signatures]
        return np.array(rows).reshape(len(signatures), len(self.names_))

    def _learn(self) -> None:
        """Learn from `training_matrix_` and `pairs_`."""

    def _answer(self, row: Matrix) -> tuple[RootCausePair, float, list[tuple[str, str]]]:
        raise NotImplementedError


@diagnoser("nearest-signature", title="Nearest signature", paper=_OWN)
class NearestSignature(_SignatureDiagnoser):
    """Answer with the pair whose training faults are most similar.

    Features are divided by their root mean square and limited by tanh. The similarity is the cosine, which hardly
    depends on the size of the fault. The nearest faults vote with their similarity.

    Parameters
    ----------
    neighbours
        Number of training faults that vote.

    References
    ----------
    Cover, Hart, Nearest neighbor pattern classification, IEEE Trans. Inf. Theory 1967; the signature is our own.
    """

    def __init__(self, *, neighbours: int = 3) -> None:
        self.neighbours = neighbours

    def _answer(self, row: Matrix) -> tuple[RootCausePair, float, list[tuple[str, str]]]:
        squashed, training = np.tanh(row), np.tanh(self.training_matrix_)
        length = np.linalg.norm(training, axis=1) * np.linalg.norm(squashed)
        likeness = np.divide(training @ squashed, length, out=np.zeros(len(training)), where=length > 0)
        nearest = np.argsort(-likeness, kind="stable")[: self.neighbours]
        votes: dict[RootCausePair, float] = {}
        for number in nearest.tolist():
            pair = self.pairs_[number]
            votes[pair] = votes.get(pair, 0.0) + max(0.0, float(likeness[number])) + 1e-9
        pair = min(votes, key=lambda candidate: (-votes[candidate], str(candidate)))
        match = next(number for number in nearest.tolist() if self.pairs_[number] == pair)
        common = squashed * training[match]
        reported = [
            (self.names_[column], "also in a similar training fault")
            for column in np.argsort(-common, kind="stable")[:5]
            if common[column] > 0
        ]
        return pair, votes[pair] / sum(votes.values()), reported


class _Trees(_SignatureDiagnoser):
    """Base class of diagnosers with decision trees on signatures."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def _build_model(self) -> Any:
        raise NotImplementedError

    def _learn(self) -> None:
        self.model_ = self._build_model()
        if self.pairs_:
            self.model_.fit(self.training_matrix_, [self.classes_.index(pair) for pair in self.pairs_])
            # A forest recomputes its importances on every access.
            self.importances_ = self.model_.feature_importances_

    def _predict_probabilities(self, row: Matrix) -> Matrix:
        """Return class probabilities."""
        return self.model_.predict_proba(row[None])[0]

    def _answer(self, row: Matrix) -> tuple[RootCausePair, float, list[tuple[str, str]]]:
        shares = self._predict_probabilities(row)
        best = int(shares.argmax())
        weight = self.importances_ * np.abs(row)
        reported = [
            (self.names_[column], "important in training")
            for column in np.argsort(-weight, kind="stable")[:5]
            if weight[column] > 0
        ]
        return self.classes_[int(self.model_.classes_[best])], float(shares[best]), reported


@diagnoser(
    "rca-tree",
    title="Tree on signatures",
    paper="Breiman et al., CART, 1984; the features are our own",
    stochastic=True,
)
class RCATree(_Trees):
    """Answer with a small decision tree on the episode's signature.

    Parameters
    ----------
    seed
        Breaks ties between equally good splits.

    References
    ----------
    Breiman, Friedman, Olshen, Stone, Classification and regression trees, 1984.
    """

    def _build_model(self) -> Any:
        from sklearn.tree import DecisionTreeClassifier

        return DecisionTreeClassifier(max_depth=6, class_weight="balanced", random_state=self.seed)


@diagnoser(
    "rca-forest",
    title="Forest on signatures",
    paper="Geurts, Ernst, Wehenkel, Extremely randomized trees, 2006; the features are our own",
    stochastic=True,
)
class RCAForest(_Trees):
    """Answer with the vote of 100 random trees on the episode's signature.

    Parameters
    ----------
    seed
        Seed of the trees.

    References
    ----------
    Geurts, Ernst, Wehenkel, Extremely randomized trees, Machine Learning 2006.
    """

    def _build_model(self) -> Any:
        from sklearn.ensemble import ExtraTreesClassifier

        return ExtraTreesClassifier(n_estimators=100, class_weight="balanced", random_state=self.seed)

    def _predict_probabilities(self, row: Matrix) -> Matrix:
        # Equals `predict_proba`, without its overhead per tree.
        sample = row[None].astype(np.float32)
        trees = self.model_.estimators_
        return np.sum([tree.tree_.predict(sample)[0] for tree in trees], axis=0) / len(trees)
