"""Kubernetes objects as plain dicts, predicates on them, and recorders of their events and changes."""

from __future__ import annotations

import copy
import functools
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeVar

from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS
from faultset.datasets.telemetry_formats.kubernetes_objects import (
    RECORDED_KINDS,
    Object,
    is_custom,
    record_state,
    render_texts,
)

T = TypeVar("T")


class ObjectNotFound(PlatformError):
    """No object with the requested kind and name exists."""


def deep_copy(value: T) -> T:
    """Return a deep copy of plain data; faster than `copy.deepcopy`."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


BACK_OFF_REASONS = frozenset(
    {"CrashLoopBackOff", "RunContainerError", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"}
)


def is_active(pod: Object) -> bool:
    """Return whether a pod has not ended and is not being deleted."""
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")


def is_ready(pod: Object) -> bool:
    """Return whether the pod's Ready condition holds."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def container_statuses(pod: Object) -> list[dict[str, Any]]:
    """Return the statuses of a pod's containers, init containers first."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def is_unschedulable(pod: Object) -> bool:
    """Return whether no node can run the pod.

    >>> is_unschedulable({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}})
    True
    """
    conditions = pod.get("status", {}).get("conditions") or []
    return any(condition["type"] == "PodScheduled" and condition["status"] == "False" for condition in conditions)


def waits_in_back_off(pod: Object) -> bool:
    """Return whether a container of the pod is in back-off.

    >>> waits_in_back_off({"status": {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}})
    True
    >>> waits_in_back_off({"status": {"containerStatuses": [{"state": {"running": {}}}]}})
    False
    """
    return any(
        (status.get("state", {}).get("waiting") or {}).get("reason") in BACK_OFF_REASONS
        for status in container_statuses(pod)
    )


WORKLOADS = ("Deployment", "StatefulSet")
"""Kinds of objects that own an application's pods."""


def is_rolled_out(workload: Object) -> bool:
    """Return whether all replicas are available and current, and no older ones remain.

    >>> is_rolled_out({"metadata": {}, "spec": {"replicas": 1}, "status": {"availableReplicas": 1}})
    True
    >>> is_rolled_out({"metadata": {}, "spec": {"replicas": 1}, "status": {"availableReplicas": 1, "replicas": 2}})
    False
    """
    state, replicas = workload.get("status", {}), workload["spec"].get("replicas", 1)
    generation = workload["metadata"].get("generation", 0)
    is_seen = state.get("observedGeneration", generation) >= generation
    updated, available = state.get("updatedReplicas", replicas), state.get("availableReplicas", 0)
    return is_seen and updated >= replicas and available >= replicas and state.get("replicas", replicas) <= replicas


def is_applied(resource: Object) -> bool:
    """Return whether the operator of a custom resource has applied its current generation.

    >>> is_applied({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}})
    False

    Without an observed generation the conditions decide.

    >>> is_applied({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    True
    """
    state = resource.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in state.get("conditions", [])}
    generation = resource["metadata"].get("generation", 0)
    is_seen = state.get("observedGeneration", generation) >= generation
    return is_seen and bool(conditions) and all(status == "True" for status in conditions.values())


@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """An occurrence of an event."""

    time_ns: int
    type: str
    reason: str
    kind: str
    name: str
    service: str | None
    message: str
    count: int


class EventRecorder:
    """Records events in order."""

    def __init__(self, *, clock: Callable[[], int], service_of: Callable[[Mapping[str, Any]], str | None]):
        self.events: list[EventRecord] = []
        self._clock = clock
        self._service_of = service_of
        self._counts: dict[tuple[str, str, str], int] = {}

    def normal(self, resource: Mapping[str, Any], reason: str, message: str) -> None:
        self._record("Normal", resource, reason, message)

    def warning(self, resource: Mapping[str, Any], reason: str, message: str) -> None:
        self._record("Warning", resource, reason, message)

    def reasons(self, name: str) -> list[str]:
        """Return the reasons of all events about objects with the given name, in order."""
        return [event.reason for event in self.events if event.name == name]

    def _record(self, event_type: str, resource: Mapping[str, Any], reason: str, message: str) -> None:
        metadata = resource["metadata"]
        key = (metadata["uid"], reason, message)
        self._counts[key] = self._counts.get(key, 0) + 1
        event = EventRecord(
            time_ns=self._clock(),
            type=event_type,
            reason=reason,
            kind=resource["kind"],
            name=metadata["name"],
            service=self._service_of(resource),
            message=message,
            count=self._counts[key],
        )
        self.events.append(event)


@dataclass(frozen=True, kw_only=True)
class ObjectState:
    """The state of an object from `time_ns` on.

    `state` is None after deletion; `data` contains the strings of a ConfigMap.
    """

    time_ns: int
    kind: str
    name: str
    service: str | None
    state: str | None
    data: str | None = None


class ChangeLog:
    """Records the states of objects in order, reduced to the recorded fields."""

    def __init__(self, *, clock: Callable[[], int], service_of: Callable[[Mapping[str, Any]], str | None]):
        self.observations: list[ObjectState] = []
        self._clock = clock
        self._service_of = service_of
        self._last: dict[tuple[str, str], ObjectState] = {}

    def record(self, kind: str, name: str, resource: Object | None) -> None:
        """Record the state of an object if it differs from the last recorded state."""
        last = self._last.get((kind, name))
        if last is None and kind not in RECORDED_KINDS and not is_custom(resource):
            return
        state = None if resource is None else record_state(resource, kind)
        if last is not None and last.state == state:
            return
        service = (
            last.service if resource is None and last is not None else self._service_of(resource) if resource else None
        )
        data = render_texts(resource) if kind == "ConfigMap" and resource is not None else None
        observation = ObjectState(time_ns=self._clock(), kind=kind, name=name, service=service, state=state, data=data)
        self._last[(kind, name)] = observation
        self.observations.append(observation)

    def discard(self, before_ns: int) -> None:
        """Remove the states before a time, except the last state of each object that existed at that time."""
        earlier = list(takewhile(lambda observation: observation.time_ns < before_ns, self.observations))
        current: dict[tuple[str, str], ObjectState] = {}
        for observation in earlier:
            if observation.state is None:
                current.pop((observation.kind, observation.name), None)
            else:
                current[observation.kind, observation.name] = observation
        # another thread appends, so replace only the beginning
        self.observations[: len(earlier)] = current.values()

    def observe(self, start_ns: int, end_ns: int, interval_ns: int) -> Iterator[ObjectState]:
        """Yield the states in `[start_ns, end_ns)`: every change, and all objects once per interval."""
        current: dict[tuple[str, str], ObjectState] = {}
        grid_ns = start_ns
        pending = [observation for observation in list(self.observations) if observation.time_ns < end_ns]
        if pending and pending[0].time_ns > start_ns:
            grid_ns += (pending[0].time_ns - start_ns) // interval_ns * interval_ns
        for observation in pending:
            while grid_ns <= observation.time_ns and grid_ns < end_ns:
                yield from _restamp(current, grid_ns)
                grid_ns += interval_ns
            key = (observation.kind, observation.name)
            if observation.state is None:
                current.pop(key, None)
            else:
                current[key] = observation
                if observation.time_ns >= start_ns:
                    yield observation
        while grid_ns < end_ns:
            yield from _restamp(current, grid_ns)
            grid_ns += interval_ns


def _restamp(current: Mapping[tuple[str, str], ObjectState], time_ns: int) -> Iterator[ObjectState]:
    for observation in current.values():
        yield replace(observation, time_ns=time_ns)


def rfc3339_ns(time_ns: int) -> str:
    """Return a time with nine decimals in the format of container runtimes."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    return f"{_format_second(seconds)}.{rest:09d}Z"


@functools.lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def merge(target: Any, change: Any) -> Any:
    """Return the result of an RFC 7386 merge patch; the arguments are not changed."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def merge_patch(current: Any, target: Any) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) that turns one object into another; lists are replaced as a whole.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4, "d": 3}})
    {'a': None, 'b': {'c': 4}}
    """
    change: dict[str, Any] = {key: None for key in current if key not in target}
    for key, value in target.items():
        before = current.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(before, value):
                change[key] = inner
        elif value != before or key not in current:
            change[key] = copy.deepcopy(value)
    return change
