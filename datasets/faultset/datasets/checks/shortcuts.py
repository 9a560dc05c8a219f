"""Test whether small models can find faults without telemetry values.

File sizes, image tags or the timing of rollouts must not reveal whether an episode has a fault, or its target. For each
kind of property, a random forest is trained on some combinations of application, fault and target, and tested on the
others. Recordings are cut into episodes; those that start in the same chunk form one group.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from faultset.core.errors import needs_extra
from faultset.core.output import Progress, StepCounter
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Episode
from faultset.datasets.recordings.cuts import CutLengths, plan_cuts
from faultset.datasets.training.folds import get_cluster_key

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset
    from faultset.datasets.format.labels import Label
    from faultset.datasets.recordings.recording import Recording
    from faultset.datasets.views import EpisodeView

pc: Any = pyarrow.compute

FOLDS = 5
MARGIN = 0.05
"""Tolerated margin above chance."""
_TREE_COUNT = 200
_SHORT_INCIDENT_SHARE = 0.1
"""Share of the incidents that are too short for the cuts of recordings."""
_MIN_AFTER_S = 2.0
_COLUMNS = {
    "metrics": ("time", "service", "pod", "metric", "labels"),
    "spans": ("time", "service", "status"),
    "logs": ("time", "service", "level"),
    "events": ("time", "service", "reason"),
    "objects": ("time", "service", "kind", "name", "state"),
    "requests": ("scheduled",),
}

Task = Literal["detection", "localization"]
Counts = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Shortcut:
    """Score of a model on one kind of property."""

    task: Task
    """Detection of faulty episodes, or ranking of the services in them."""
    properties: str
    """Kind of property that the model gets."""
    must_fail: bool
    """Whether a score above chance is a leak. Other properties may reflect symptoms of faults."""
    score: float
    """Balanced accuracy (detection) or AC@1 (localization), out of fold."""
    standard_error: float
    """Standard error of the score, clustered by group."""
    chance: float
    """Score without any information: 0.5, or the mean share of targets among the services."""
    episodes: int

    @property
    def leaks(self) -> bool:
        """Whether the score must be at chance level, but exceeds it by the margin and by two standard errors."""
        return self.must_fail and self.score - self.chance > max(MARGIN, 2 * self.standard_error)


def measure_shortcuts(dataset: Dataset, *, seed: int = 0, progress: Progress | None = None) -> list[Shortcut]:
    """Train a small model on each kind of property and score it on unseen groups; first detection, then localization.

    Episodes and cuts of recordings are used if their verdict is `manifest` or they have no fault. A kind of property is
    skipped if it has fewer than five groups; detection needs five with a fault and five without.
    """
    try:
        import sklearn  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        raise needs_extra("measuring shortcuts", "evaluate") from error
    cases: list[_Case] = []
    steps = StepCounter(len(dataset) + len(dataset.recording_files), progress)
    for episode in dataset:
        label = episode.label
        if _is_used(label):
            cluster = get_cluster_key(episode.id, episode.view.context.app, label.fault, label.targets)
            cases.append(_read_case(episode, label, cluster))
        steps.add()
    recordings = dataset.recordings()
    lengths = _choose_lengths(recordings)
    for recording in recordings:
        if lengths is not None:
            cases += _cut_cases(recording, lengths)
        steps.add()
    return [*_score_detection(cases, seed), *_score_localization(cases, seed)]


@dataclass(frozen=True)
class _Case:
    cluster: tuple[str, ...]
    faulty: bool
    targets: frozenset[str]
    services: tuple[str, ...]
    whole: Mapping[str, Counts]
    """Kind of property -> property of the episode -> value."""
    by_service: Mapping[str, Mapping[str, Counts]]
    """Kind of property -> service -> property -> value."""


_MUST_FAIL = ("image tags", "rollout timing", "row counts before the onset")
"""Kinds whose score must be at chance. Row counts before the onset are used for localization only; `chance_findings`
tests whether they reveal that there is a fault.
"""
_WHERE_PRESENT = ("image tags", "rollout timing")
"""Kinds that are tested only where they have a value: on services whose pods got a new image or became ready."""


def _is_used(label: Label) -> bool:
    """Return whether an episode has no fault, or a fault that clients noticed."""
    return label.fault is None or label.verdict == "manifest"


def _choose_lengths(recordings: Iterable[Recording[Dataset]]) -> CutLengths | None:
    """Return lengths of cuts that fit into most incidents of the recordings; None if no incident has ended."""
    lengths_s = [
        incident.fault_duration_ns / SECOND_NS
        for recording in recordings
        for incident in recording.truth.incidents
        if incident.fault_duration_ns is not None
    ]
    if not lengths_s:
        return None
    after_s = max(_MIN_AFTER_S, float(np.quantile(lengths_s, _SHORT_INCIDENT_SHARE)))
    return CutLengths(before_s=after_s / 2, after_s=after_s)


def _cut_cases(recording: Recording[Dataset], lengths: CutLengths) -> Iterator[_Case]:
    """Cut a recording into episodes, and yield their cases; the group is the chunk in which an episode starts."""
    if not plan_cuts(recording.truth, lengths, None):
        return
    with tempfile.TemporaryDirectory(prefix="faultset-cuts-") as folder:
        out = Path(folder) / "cuts"
        for episode in recording.episodes(before_s=lengths.before_s, after_s=lengths.after_s, out=out):
            label, (start_ns, _) = episode.label, episode.view.window
            if _is_used(label):
                chunk = next(chunk for chunk in recording.view.chunks if chunk.start_ns <= start_ns < chunk.end_ns)
                yield _read_case(episode, label, (recording.id, str(chunk.number)))


def _read_case(episode: Episode, label: Label, cluster: tuple[str, ...]) -> _Case:
    view = episode.view
    tables = {name: view.table(name, columns) for name, columns in _COLUMNS.items()}
    pods = _read_pods(tables["objects"])
    end_ns = view.reference[1]
    before = {name: _cut_before(table, end_ns) for name, table in tables.items() if name != "requests"}
    sizes = {name: float(record.bytes) for name, record in episode.files.items() if name.startswith("telemetry/")}
    whole: dict[str, Counts] = {
        "file sizes": sizes,
        "row counts": {name: float(len(table)) for name, table in tables.items()},
        "series counts": _count_series(tables["metrics"]),
        "event reasons": _count_values(tables["events"]["reason"]),
        "errors": _count_errors(tables),
        "image tags": _count_tags(pods),
        "rollouts": _count_rollouts(pods),
        "rollout timing": _measure_delays(pods),
    }
    by_service: dict[str, dict[str, Counts]] = {
        "row counts": _count_rows_by_service(tables, view),
        "row counts before the onset": _count_rows_by_service(before, view),
        "event reasons": {s: _count_values(_select_service(tables["events"], s)["reason"]) for s in view.services},
        "image tags": {s: _count_tags(pod for pod in pods if pod.service == s) for s in _list_rebuilt(pods)},
        "rollouts": {s: _count_rollouts(pod for pod in pods if pod.service == s) for s in view.services},
        "rollout timing": {s: _measure_delays(pod for pod in pods if pod.service == s) for s in view.services},
    }
    return _Case(cluster, label.fault is not None, frozenset(label.targets), view.services, whole, by_service)


@dataclass(frozen=True)
class _Pod:
    service: str
    tags: frozenset[str]
    ready_s: float | None
    """Seconds from the first state to the first ready state; None if the pod was ready at once or never."""


def _read_pods(objects: pa.Table) -> list[_Pod]:
    rows = objects.filter(pc.equal(objects["kind"], "Pod")).select(["name", "service", "time", "state"]).to_pylist()
    states: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        states.setdefault(row["name"], []).append(row)
    pods = []
    for history in states.values():
        tags, first, ready = set[str](), history[0]["time"].value, None
        was_ready = False
        for index, row in enumerate(history):
            state = json.loads(row["state"]) if row["state"] else {}
            tags |= {str(c.get("image", "")).rpartition(":")[2] for c in state.get("containers") or ()}
            if state.get("ready") and ready is None:
                ready, was_ready = row["time"].value, index == 0
        delay = None if ready is None or was_ready else (ready - first) / 1e9
        pods.append(_Pod(history[0]["service"] or "", frozenset(tags), delay))
    return pods


def _count_rollouts(pods: Iterable[_Pod]) -> Counts:
    return {"pods": float(sum(pod.ready_s is not None for pod in pods))}


def _measure_delays(pods: Iterable[_Pod]) -> Counts:
    """Return the longest and the shortest time until a pod became ready; pods that were ready at once are ignored."""
    delays = [pod.ready_s for pod in pods if pod.ready_s is not None]
    return {"longest": max(delays), "shortest": min(delays)} if delays else {}


def _count_values(column: pa.ChunkedArray) -> Counts:
    return {str(row["values"]): float(row["counts"]) for row in column.value_counts().to_pylist()}


def _list_rebuilt(pods: Iterable[_Pod]) -> list[str]:
    """Return the services with pods of different images: a new build was rolled out, which methods may know."""
    tags: dict[str, set[str]] = {}
    for pod in pods:
        tags.setdefault(pod.service, set()).update(pod.tags)
    return sorted(service for service, distinct in tags.items() if len(distinct) > 1)


def _count_tags(pods: Iterable[_Pod]) -> Counts:
    return {tag: float(count) for tag, count in Counter(tag for pod in pods for tag in pod.tags).items()}


def _count_series(metrics: pa.Table) -> Counts:
    columns = {name: metrics[name] for name in ("pod", "metric", "labels", "service")}
    series = pa.table(columns).group_by(list(columns)).aggregate([])
    return {
        "series": float(len(series)),
        "pods": float(len(metrics["pod"].unique())),
        "metrics": float(len(metrics["metric"].unique())),
    }


def _count_errors(tables: Mapping[str, pa.Table]) -> Counts:
    levels = _count_values(pc.utf8_lower(tables["logs"]["level"].cast(pa.string())))
    counts = {f"lines of level {level}": levels.get(level, 0.0) for level in ("warn", "warning", "error", "fatal")}
    failed = _count_values(tables["spans"]["status"]).get("error", 0.0)
    return counts | {"spans with an error": failed}


def _cut_before(table: pa.Table, end_ns: int) -> pa.Table:
    return table.filter(pc.less(table["time"].cast(pa.int64()), end_ns))


def _select_service(table: pa.Table, service: str) -> pa.Table:
    return table.filter(pc.equal(table["service"], service))


def _count_rows_by_service(tables: Mapping[str, pa.Table], view: EpisodeView) -> dict[str, Counts]:
    rows: dict[str, Counts] = {service: {} for service in view.services}
    for name, table in tables.items():
        if name == "requests":
            continue
        counts = _count_values(table["service"])
        for service in view.services:
            rows[service][name] = counts.get(service, 0.0)
    return rows


def _score_detection(cases: Sequence[_Case], seed: int) -> list[Shortcut]:
    shortcuts = []
    for kind in cases[0].whole if cases else ():
        tested = [case for case in cases if kind not in _WHERE_PRESENT or case.whole[kind]]
        faulty = np.array([case.faulty for case in tested], dtype=bool)
        groups = _number_clusters(case.cluster for case in tested)
        if min(len(set(groups[faulty])), len(set(groups[~faulty]))) < FOLDS:
            continue
        answers = _predict_out_of_fold(_build_matrix([case.whole[kind] for case in tested]), faulty, groups, seed) > 0.5
        is_right = answers == faulty
        score = (is_right[faulty].mean() + is_right[~faulty].mean()) / 2
        errors = [_compute_cluster_error(is_right[is_class], groups[is_class]) for is_class in (faulty, ~faulty)]
        shortcuts.append(_build_shortcut("detection", kind, score, 0.5, float(np.linalg.norm(errors)) / 2, len(tested)))
    return shortcuts


def _score_localization(cases: Sequence[_Case], seed: int) -> list[Shortcut]:
    cases = [case for case in cases if case.faulty]
    shortcuts = []
    for kind in cases[0].by_service if cases else ():
        tested = [
            (case, services)
            for case in cases
            if (services := _list_candidates(case, kind)) and 0 < len(case.targets & set(services)) < len(services)
        ]
        clusters = _number_clusters(case.cluster for case, _ in tested)
        if len(set(clusters)) < FOLDS:
            continue
        owner = np.repeat(np.arange(len(tested)), [len(services) for _, services in tested])
        target = np.array([service in case.targets for case, services in tested for service in services])
        chance = float(np.mean([len(case.targets & set(services)) / len(services) for case, services in tested]))
        rows = _build_matrix(
            [case.by_service[kind].get(service, {}) for case, services in tested for service in services]
        )
        scores = _predict_out_of_fold(_append_relative(rows, owner), target, clusters[owner], seed)
        hits = np.array([_compute_expected_hit(scores[owner == n], target[owner == n]) for n in range(len(tested))])
        error = _compute_cluster_error(hits, clusters)
        shortcuts.append(_build_shortcut("localization", kind, hits.mean(), chance, error, len(tested)))
    return shortcuts


def _list_candidates(case: _Case, kind: str) -> list[str]:
    return [name for name in case.services if kind not in _WHERE_PRESENT or case.by_service[kind].get(name)]


def _build_shortcut(task: Task, kind: str, score: float, chance: float, error: float, episodes: int) -> Shortcut:
    return Shortcut(
        task=task,
        properties=kind,
        must_fail=kind in _MUST_FAIL,
        score=float(score),
        standard_error=error,
        chance=chance,
        episodes=episodes,
    )


def _number_clusters(clusters: Iterable[tuple[str, ...]]) -> npt.NDArray[np.int64]:
    numbers: dict[tuple[str, ...], int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.int64)


def _build_matrix(rows: Sequence[Counts]) -> npt.NDArray[np.float64]:
    names = sorted({name for row in rows for name in row})
    return np.array([[row.get(name, 0.0) for name in names] for row in rows]).reshape(len(rows), len(names))


def _append_relative(rows: npt.NDArray[np.float64], owner: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Append each property divided by its median over the services of the same episode, or by 1 if that is larger."""
    ratios = np.empty_like(rows)
    for episode in range(owner[-1] + 1):
        services = owner == episode
        medians: npt.NDArray[np.float64] = np.median(rows[services], axis=0)
        ratios[services] = rows[services] / np.where(medians > 1, medians, 1.0)
    return np.hstack([rows, ratios])


def _predict_out_of_fold(
    features: npt.NDArray[np.float64], answer: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64], seed: int
) -> npt.NDArray[np.float64]:
    """Return the probability of `answer` for each row from forests that were not trained on the row's group."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import StratifiedGroupKFold

    if not features.shape[1]:
        return np.full(len(features), float(answer.mean()))
    scores = np.empty(len(features))
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    for train, test in folds.split(features, answer, groups):
        forest = RandomForestClassifier(_TREE_COUNT, class_weight="balanced", min_samples_leaf=2, random_state=seed)
        forest.fit(features[train], answer[train])
        probabilities: Any = forest.predict_proba(features[test])
        scores[test] = probabilities[:, 1] if answer[train].any() else 0.0
    return scores


def _compute_expected_hit(scores: npt.NDArray[np.float64], target: npt.NDArray[np.bool_]) -> float:
    """Return the probability that a random one of the top-ranked services is a target."""
    best = scores == scores.max()
    return float(target[best].mean())


def _compute_cluster_error(values: npt.NDArray[Any], groups: npt.NDArray[np.int64]) -> float:
    _, indices = np.unique(groups, return_inverse=True)
    residuals = np.bincount(indices, weights=values - values.mean())
    count = len(residuals)
    return float(np.sqrt(np.sum(residuals**2) * count / max(count - 1, 1)) / len(values))
