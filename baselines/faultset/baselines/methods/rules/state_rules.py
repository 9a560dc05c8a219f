"""Localizers that use Kubernetes events and the states of Kubernetes objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.object_states import (
    SAMPLING_NS,
    count_restarts,
    find_signs,
    object_histories,
    parse_state,
    read_object_states,
    read_specification,
    successful_rollouts,
)
from faultset.baselines.registry import localizer
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView, read_frame

_CONTROLLER_ACTIONS = frozenset({"ScalingReplicaSet", "SuccessfulCreate", "SuccessfulDelete", "Killing"})
_PERMANENT_KINDS = frozenset({"Deployment", "Service", "Endpoints", "PersistentVolumeClaim", "ConfigMap", "Secret"})


@localizer(
    "kubernetes-state",
    title="Kubernetes state",
    paper="None; a rule on the output of kubectl",
    kind="rule",
    tables=("objects",),
    complexity="O(N), N object states",
)
class KubernetesState(TrainingFreeBaseline):
    """Rank services by problems of their objects: pods not ready, no endpoints, unbound claims, restarts.

    A problem counts by the share of the time since the alarm for which it lasts, so that a rollout counts less than an
    outage. Problems that an object already had in the reference do not count. Each restart counts as 1. Without
    problems, the method abstains.

    References
    ----------
    None; the rule is our own.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        frame = read_object_states(episode)
        healthy_end_ns = min(episode.reference[1], alarm_ns)
        end_ns = episode.window[1]
        start_ns = max(healthy_end_ns, alarm_ns - SAMPLING_NS)
        scores: dict[str, float] = defaultdict(float)
        pods: dict[tuple[str, str], float] = defaultdict(float)
        evidence: list[Evidence] = []
        for history in object_histories(frame):
            kind, name, service, times = history.kind, history.name, history.service, history.times_ns
            states = [parse_state(text) for text in history.texts]
            healthy = [state for time, state in zip(times, states, strict=True) if time < healthy_end_ns]
            fields = frozenset().union(*(state.keys() for state in healthy))
            healthy_signs = set().union(*(find_signs(kind, state, fields) for state in healthy))
            durations_ns: dict[str, int] = defaultdict(int)
            # The last observation is valid until the next one is due.
            ends = [*times[1:], min(end_ns, times[-1] + SAMPLING_NS)]
            for time, next_time, state in zip(times, ends, states, strict=True):
                length = min(next_time, end_ns) - max(time, start_ns)
                if length > 0:
                    for sign in find_signs(kind, state, fields) - healthy_signs:
                        durations_ns[sign] += length
            gone_ns = end_ns - times[-1]
            if healthy and kind in _PERMANENT_KINDS and gone_ns > 2.5 * SAMPLING_NS:
                durations_ns[f"{kind} gone"] += gone_ns
            for sign, length in sorted(durations_ns.items()):
                share = min(1.0, length / max(1, end_ns - start_ns))
                scores[service] += share
                if kind == "Pod":
                    pods[service, name] += share
                evidence.append(Evidence(service=service, subject=f"{kind}/{name}", score=share, detail=sign))
        restarts = _count_pod_restarts(frame, healthy_end_ns)
        for pod, count in restarts.items():
            pods[pod] += count
        for service, count in _sum_by_service(restarts).items():
            scores[service] += count
            evidence.append(Evidence(service=service, subject="containers", score=count, detail="restarts"))
        return Ranking.of(scores, episode.services, evidence, pods=pods)


@localizer(
    "most-restarts",
    title="Most restarts",
    paper="None; a control",
    kind="control",
    tables=("objects", "metrics"),
    complexity="O(N)",
)
class MostRestarts(TrainingFreeBaseline):
    """Control: rank services by container restarts since the reference.

    Uses the pods' restart counts, or the metric if there are no object states.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        frame = read_object_states(episode)
        counts = _count_pod_restarts(frame, min(episode.reference[1], alarm_ns))
        if not (frame["kind"] == "Pod").any():
            counts = _count_restarts_by_metric(episode, min(episode.reference[1], alarm_ns))
        scores = _sum_by_service(counts)
        evidence = [
            Evidence(service=name, subject="containers", score=count, detail="restarts")
            for name, count in scores.items()
        ]
        return Ranking.of(
            scores, episode.services, evidence, pods={owner: count for owner, count in counts.items() if owner[1]}
        )


def _sum_by_service(counts: Mapping[tuple[str, str], float]) -> dict[str, float]:
    scores: dict[str, float] = defaultdict(float)
    for (service, _), count in counts.items():
        scores[service] += count
    return dict(scores)


def _count_pod_restarts(frame: pd.DataFrame, since_ns: int) -> dict[tuple[str, str], float]:
    """Count restarts per (service, pod) since a time; pods that appear later start at 0."""
    counts: dict[tuple[str, str], float] = {}
    for pod in object_histories(frame[frame["kind"] == "Pod"]):
        totals = [count_restarts(parse_state(text)) for text in pod.texts]
        before = [total for total, time in zip(totals, pod.times_ns, strict=True) if time < since_ns]
        increase = max(totals) - (max(before) if before else 0)
        if increase > 0:
            counts[pod.service, pod.name] = float(increase)
    return counts


def _read_restart_metric(episode: EpisodeView) -> pd.DataFrame:
    columns = ("time", "service", "pod", "container", "value")
    frame = read_frame(episode, "metrics", columns, [("metric", "==", "kube_pod_container_status_restarts_total")])
    return frame[frame["service"].notna()]


def _count_restarts_by_metric(episode: EpisodeView, since_ns: int) -> dict[tuple[str, str], float]:
    frame = episode.once("restart counts", lambda: _read_restart_metric(episode))
    counts: dict[tuple[str, str], float] = defaultdict(float)
    for (service, pod, _), rows in frame.groupby(["service", "pod", "container"], observed=True, dropna=False):
        before = rows.loc[rows["time"] < since_ns, "value"]
        increase = int(rows["value"].max() - (before.max() if len(before) else 0))
        if increase > 0:
            counts[str(service), pod if isinstance(pod, str) else ""] += increase
    return dict(counts)


@localizer(
    "last-change",
    title="Last change",
    paper="None; a control",
    kind="control",
    tables=("objects", "events"),
    complexity="O(N + E)",
)
class LastChange(TrainingFreeBaseline):
    """Control: rank services by their last change before the alarm.

    A change is a new specification, configuration or object, or an event of a controller. Changes after the alarm rank
    below all earlier changes.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        scores: dict[str, float] = {}
        reported: dict[str, Evidence] = {}
        for time_ns, service, subject in self._find_changes(episode, alarm_ns):
            seconds = abs(alarm_ns - time_ns) / SECOND_NS
            score = (1.0 if time_ns <= alarm_ns else 1e-6) / (1.0 + seconds)
            if score > scores.get(service, 0.0):
                scores[service] = score
                when = "before" if time_ns <= alarm_ns else "after"
                reported[service] = Evidence(
                    service=service, subject=subject, score=score, detail=f"{seconds:.1f} s {when} the alarm"
                )
        evidence = [reported[service] for service in sorted(reported, key=lambda name: -scores[name])]
        return Ranking.of(scores, episode.services, evidence)

    def _find_changes(self, episode: EpisodeView, alarm_ns: int) -> list[_Change]:
        return [*_find_specification_changes(episode), *_find_controller_events(episode)]


@localizer(
    "last-harmful-change",
    title="Last harmful change",
    paper="None; a control",
    kind="control",
    tables=("objects", "events"),
    complexity="O(N + E)",
)
class LastHarmfulChange(LastChange):
    """Control: `last-change` without changes that look harmless.

    Harmless changes are successful rollouts, changes that were undone within the view, and new generations of an
    unchanged specification.
    """

    def _find_changes(self, episode: EpisodeView, alarm_ns: int) -> list[_Change]:
        harmless = set(successful_rollouts(episode, alarm_ns))
        changes = _find_specification_changes(episode)
        harmful_changes = _find_specification_changes(episode, harmful=True)
        harmful = [change for change in harmful_changes if change.service not in harmless]
        harmless |= {change.service for change in changes} - {change.service for change in harmful}
        return [*harmful, *(event for event in _find_controller_events(episode) if event.service not in harmless)]


class _Change(NamedTuple):
    time_ns: int
    service: str
    subject: str


def _find_specification_changes(episode: EpisodeView, *, harmful: bool = False) -> list[_Change]:
    """Return the changes of specifications; with `harmful`, only changes of content that were not undone."""
    start_ns, _ = episode.window
    changes: list[_Change] = []
    for history in object_histories(read_object_states(episode)):
        states = [read_specification(history.kind, parse_state(text)) for text in history.texts]
        if harmful:
            states = [state and {name: state[name] for name in state if name != "generation"} for state in states]
        subject = f"{history.kind}/{history.name}"
        # Objects in the first observation may be old.
        if states[0] is not None and history.times_ns[0] > start_ns + SAMPLING_NS:
            changes.append(_Change(history.times_ns[0], history.service, subject))
        for position in range(1, len(states)):
            before, state = states[position - 1], states[position]
            if state is None or before is None:
                break
            if state != before and not (harmful and states[0] in (state, states[-1])):
                changes.append(_Change(history.times_ns[position], history.service, subject))
    return changes


def _find_controller_events(episode: EpisodeView) -> list[_Change]:
    frame = read_frame(episode, "events", ("time", "reason", "kind", "name", "service"))
    frame = frame[frame["reason"].isin(_CONTROLLER_ACTIONS) & frame["service"].notna()]
    return [
        _Change(int(time_ns), str(service), f"{reason} {kind}/{name}")
        for time_ns, reason, kind, name, service in frame.itertuples(index=False)
    ]
