"""States of Kubernetes objects: histories, signs of trouble, and rollouts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView, read_frame

SAMPLING_NS = 10 * SECOND_NS
"""Interval between observations of an unchanged object."""
_OBJECTS = ("time", "kind", "name", "service", "state")


@lru_cache(maxsize=4096)
def _parse_json(text: str) -> Any:
    return json.loads(text)


def parse_state(text: str) -> dict[str, Any]:
    """Parse the state of an object; return an empty state if it is not a JSON object."""
    try:
        state = _parse_json(text)
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


def read_object_states(episode: EpisodeView) -> pd.DataFrame:
    """Return the observed states of the objects of candidate services."""
    frame = read_frame(episode, "objects", _OBJECTS)
    return frame[frame["service"].isin(episode.services)]


@dataclass(frozen=True, kw_only=True)
class ObjectHistory:
    """Observed states of one object in time order."""

    kind: str
    name: str
    service: str
    times_ns: list[int]
    texts: list[str]


def object_histories(frame: pd.DataFrame) -> Iterator[ObjectHistory]:
    """Yield the history of each object, sorted by kind, name and service."""
    if frame.empty:
        return
    number = frame.groupby(["kind", "name", "service"], observed=True, sort=True).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    kinds, names, services = (frame[column].astype(object).to_numpy() for column in ("kind", "name", "service"))
    times, texts = frame["time"].to_numpy(), frame["state"].to_numpy()
    for rows in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        yield ObjectHistory(
            kind=str(kinds[rows[0]]),
            name=str(names[rows[0]]),
            service=str(services[rows[0]]),
            times_ns=times[rows].tolist(),
            texts=texts[rows].tolist(),
        )


State = Mapping[str, Any]

_BAD_WAITING = frozenset({
    "CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
})  # fmt: skip
_SPECIFICATION_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("replicas", "generation", "image", "command", "nodeSelector", "cpu_limit", "memory_limit"),
    "Service": ("ports", "selector"),
    "ConfigMap": ("digest",),
    "Secret": ("digest",),
    "PersistentVolumeClaim": ("volume",),
    "PersistentVolume": ("claim",),
}


def read_specification(kind: str, state: State) -> dict[str, Any] | None:
    """Return the fields of a state that users set, not the cluster; None for kinds without such fields."""
    if kind not in _SPECIFICATION_FIELDS:
        return None
    return {field: state[field] for field in _SPECIFICATION_FIELDS[kind] if field in state}


def find_signs(kind: str, state: State, healthy_fields: frozenset[str] = frozenset()) -> set[str]:
    """Return the signs of trouble in an object's state.

    Parameters
    ----------
    healthy_fields
        Fields that the object had when it was healthy. Kubernetes omits counts that are zero, so a missing field of
        this set counts as zero.
    """
    phase = state.get("phase")
    if kind == "Pod":
        return _find_pod_signs(state)
    if kind == "Deployment":
        return _find_deployment_signs(state, healthy_fields)
    if kind == "Endpoints":
        return {"no endpoints"} if _read_count(state, "ready", healthy_fields) == 0 else set()
    if kind == "PersistentVolumeClaim":
        return {f"claim {phase}"} if phase in ("Pending", "Lost") else set()
    if kind == "PersistentVolume":
        return {f"volume {phase}"} if phase in ("Released", "Failed") else set()
    return set()


def count_restarts(state: State) -> int:
    """Return the number of restarts of all containers of a pod."""
    return sum(_to_integer(container.get("restartCount")) or 0 for container in _list_containers(state))


def _find_pod_signs(state: State) -> set[str]:
    problems = set()
    phase = state.get("phase")
    if phase in ("Pending", "Failed", "Unknown"):
        problems.add(f"pod {phase}")
    elif phase != "Succeeded" and state.get("ready") in (False, "False"):
        problems.add("pod not ready")
    for container in _list_containers(state):
        reason = container.get("reason")
        if reason in _BAD_WAITING:
            problems.add(str(reason))
        if container.get("state") == "terminated" and container.get("exitCode") not in (0, None):
            problems.add("container ended with an error")
    return problems


def _find_deployment_signs(state: State, healthy_fields: frozenset[str]) -> set[str]:
    replicas = _read_count(state, "replicas", healthy_fields)
    if replicas is None:
        return set()
    if replicas == 0:
        return {"scaled to zero"}
    available_counts = [_read_count(state, field, healthy_fields) for field in ("readyReplicas", "availableReplicas")]
    return {"replicas missing"} if any(count is not None and count < replicas for count in available_counts) else set()


def _list_containers(state: State) -> list[Mapping[str, Any]]:
    containers = state.get("containers")
    return [item for item in containers if isinstance(item, dict)] if isinstance(containers, list) else []


def _read_count(state: State, field: str, healthy_fields: frozenset[str]) -> int | None:
    number = _to_integer(state.get(field))
    return 0 if number is None and field in healthy_fields else number


def _to_integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


_GONE_AFTER_NS = 2.5 * SAMPLING_NS
"""A pod that has not been observed for this long is gone."""
_PROGRESS_DEADLINE_NS = 600 * SECOND_NS
"""Kubernetes' default: a rollout whose new pods are not ready by then has failed."""
_STARTING_SIGNS = frozenset({"pod Pending", "pod not ready"})


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Time from the first observation of a new pod to the last observation of a replaced pod.

    If a new pod is not ready at the end of the view, the rollout lasts until then.
    """

    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class _Pod:
    times_ns: Sequence[int]
    states: Sequence[dict[str, Any]]

    @classmethod
    def of(cls, history: ObjectHistory) -> _Pod:
        return cls(times_ns=history.times_ns, states=[parse_state(text) for text in history.texts])

    def has_ended_by(self, end_ns: int) -> bool:
        return self.states[-1].get("reason") == "Terminating" or end_ns - self.times_ns[-1] > _GONE_AFTER_NS

    def is_ready_at(self, end_ns: int) -> bool:
        return not self.has_ended_by(end_ns) and _is_ready(self.states[-1])

    def is_starting_well(self, end_ns: int) -> bool:
        """Return whether the pod is ready or still starting at the end, without any failure."""
        problems = frozenset[str]().union(*(find_signs("Pod", state) for state in self.states))
        in_time = self.is_ready_at(end_ns) or end_ns - self.times_ns[0] <= _PROGRESS_DEADLINE_NS
        return (
            in_time
            and not self.has_ended_by(end_ns)
            and problems <= _STARTING_SIGNS
            and not count_restarts(self.states[-1])
        )

    @property
    def ready_times_ns(self) -> list[int]:
        """Return the times at which the pod was ready."""
        return [time for time, state in zip(self.times_ns, self.states, strict=True) if _is_ready(state)]


def successful_rollouts(episode: EpisodeView, alarm_ns: int) -> dict[str, Rollout]:
    """Return the successful rollout of each service that has one, unless it ended in the healthy period.

    In a successful rollout, old pods serve until new ones are ready. This distinguishes it from the replacement of
    failed pods. A rollout that is still under way counts if no new pod has failed.
    """
    frame = read_object_states(episode)
    (start_ns, end_ns), healthy_end_ns = episode.window, min(episode.reference[1], alarm_ns)
    old: dict[str, list[_Pod]] = defaultdict(list)
    new: dict[str, list[_Pod]] = defaultdict(list)
    for history in object_histories(frame[frame["kind"] == "Pod"]):
        (old if history.times_ns[0] <= start_ns + SAMPLING_NS else new)[history.service].append(_Pod.of(history))
    rollouts = {}
    for service, new_pods in new.items():
        if not old[service] or not all(pod.is_starting_well(end_ns) for pod in new_pods):
            continue
        replaced = [pod for pod in old[service] if pod.has_ended_by(end_ns)]
        ready_ns = min((time for pod in new_pods for time in pod.ready_times_ns), default=end_ns)
        if all(
            pod.is_ready_at(end_ns) or max(pod.ready_times_ns, default=0) + SAMPLING_NS > ready_ns
            for pod in old[service]
        ):
            under_way = not all(pod.is_ready_at(end_ns) for pod in new_pods)
            if not replaced and not under_way:
                continue  # there are more pods than before
            last_ns = end_ns if under_way else max(pod.times_ns[-1] for pod in replaced)
            if last_ns > healthy_end_ns:
                rollouts[service] = Rollout(start_ns=min(pod.times_ns[0] for pod in new_pods), end_ns=last_ns)
    return rollouts


def _is_ready(state: dict[str, Any]) -> bool:
    return state.get("ready") in (True, "True")
