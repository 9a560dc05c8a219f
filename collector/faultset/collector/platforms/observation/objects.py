"""Events and changes of objects as an episode records them."""

from __future__ import annotations

import calendar
import functools
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from faultset.collector.platforms.objects import Object, quantity
from faultset.core.json_text import canonical_json
from faultset.core.times import SECOND_NS


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """One occurrence of an event."""

    time_ns: int
    type: str
    reason: str
    kind: str
    name: str
    service: str | None
    message: str
    count: int


class EventRecorder:
    """All occurrences, in the order in which they were recorded.

    Parameters
    ----------
    clock
        Returns the time in nanoseconds since 1970.
    service_of
        Returns the workload that owns an object, or None.
    """

    def __init__(self, *, clock: Callable[[], int], service_of: Callable[[Mapping[str, Any]], str | None]):
        self.occurrences: list[Occurrence] = []
        self._clock = clock
        self._service_of = service_of
        self._counts: dict[tuple[str, str, str], int] = {}

    def normal(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        """Record an event that is part of ordinary life."""
        self._record("Normal", about, reason, message)

    def warning(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        """Record an event that somebody should look at."""
        self._record("Warning", about, reason, message)

    def reasons(self, name: str) -> list[str]:
        """Return the reasons recorded about all objects of a name, in order."""
        return [occurrence.reason for occurrence in self.occurrences if occurrence.name == name]

    def _record(self, kind_of_event: str, about: Mapping[str, Any], reason: str, message: str) -> None:
        metadata = about["metadata"]
        key = (metadata["uid"], reason, message)
        self._counts[key] = self._counts.get(key, 0) + 1
        occurrence = Occurrence(
            time_ns=self._clock(),
            type=kind_of_event,
            reason=reason,
            kind=about["kind"],
            name=metadata["name"],
            service=self._service_of(about),
            message=message,
            count=self._counts[key],
        )
        self.occurrences.append(occurrence)


LARGEST_TEXTS = 256 * 1024
"""Most characters of a ConfigMap that are kept; Kubernetes allows 1 MiB."""
HIDDEN = "<hidden>"
_SECRET_KEY = re.compile(r"passw|secret|token|credential|(?:private|api|access)[-_.]?key", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The state of one object from a moment on; None once it is gone. `data` holds the texts of a ConfigMap."""

    time_ns: int
    kind: str
    name: str
    service: str | None
    state: str | None
    data: str | None = None


class ChangeLog:
    """Every change of a whitelisted state, in order.

    Parameters
    ----------
    clock
        Returns the time in nanoseconds since 1970.
    service_of
        Returns the workload that owns an object, or None.
    """

    def __init__(self, *, clock: Callable[[], int], service_of: Callable[[Mapping[str, Any]], str | None]):
        self.observations: list[Observation] = []
        self._clock = clock
        self._service_of = service_of
        self._last: dict[tuple[str, str], Observation] = {}

    def changed(self, kind: str, name: str, found: Object | None) -> None:
        """Record the state of an object if it differs from the last one recorded."""
        last = self._last.get((kind, name))
        whitelist = WHITELISTS.get(kind) or (_custom_resource if last or is_custom(found) else None)
        if whitelist is None:
            return
        state = None if found is None else json.dumps(whitelist(found), sort_keys=True, separators=(",", ":"))
        if last is not None and last.state == state:
            return
        service = last.service if found is None and last is not None else self._service_of(found) if found else None
        data = shown_texts(found) if kind == "ConfigMap" and found is not None else None
        seen = Observation(time_ns=self._clock(), kind=kind, name=name, service=service, state=state, data=data)
        self._last[(kind, name)] = seen
        self.observations.append(seen)

    def observe(self, start_ns: int, end_ns: int, interval_ns: int) -> Iterator[Observation]:
        """Yield the states within `[start_ns, end_ns)`: all of them every interval from the start, and changes."""
        current: dict[tuple[str, str], Observation] = {}
        grid_ns = start_ns
        pending = [seen for seen in list(self.observations) if seen.time_ns < end_ns]
        if pending and pending[0].time_ns > start_ns:
            grid_ns += (pending[0].time_ns - start_ns) // interval_ns * interval_ns
        for seen in pending:
            while grid_ns <= seen.time_ns and grid_ns < end_ns:
                yield from _restamped(current, grid_ns)
                grid_ns += interval_ns
            key = (seen.kind, seen.name)
            if seen.state is None:
                current.pop(key, None)
            else:
                current[key] = seen
                if seen.time_ns >= start_ns:
                    yield seen
        while grid_ns < end_ns:
            yield from _restamped(current, grid_ns)
            grid_ns += interval_ns


def _restamped(current: Mapping[tuple[str, str], Observation], time_ns: int) -> Iterator[Observation]:
    for seen in current.values():
        yield replace(seen, time_ns=time_ns)


def shown_texts(config_map: Mapping[str, Any]) -> str | None:
    """Return the texts of a ConfigMap by key as canonical JSON; None when they are too long to be kept.

    Texts under keys that are named as secrets are, which should not stand in a ConfigMap, are hidden.
    """
    texts = {key: HIDDEN if _SECRET_KEY.search(key) else text for key, text in (config_map.get("data") or {}).items()}
    made = canonical_json(texts)
    return made if len(made) <= LARGEST_TEXTS else None


def _deployment(found: Object) -> dict[str, Any]:
    spec, status = found["spec"]["template"]["spec"], found.get("status", {})
    container = spec["containers"][0]
    limits = (container.get("resources") or {}).get("limits") or {}
    return {
        "replicas": found["spec"]["replicas"],
        "readyReplicas": status.get("readyReplicas", 0),
        "availableReplicas": status.get("availableReplicas", 0),
        "generation": found["metadata"]["generation"],
        "image": container["image"],
        "command": [*(container.get("command") or ()), *(container.get("args") or ())],
        "nodeSelector": spec.get("nodeSelector") or {},
        "cpu_limit": quantity(limits["cpu"]) if "cpu" in limits else None,
        "memory_limit": quantity(limits["memory"]) if "memory" in limits else None,
    }


def _pod(found: Object) -> dict[str, Any]:
    status = found.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    first = status.get("initContainerStatuses") or []
    reason = conditions.get("PodScheduled", {}).get("reason")
    if found["metadata"].get("deletionTimestamp"):
        reason = "Terminating"
    return {
        "phase": status.get("phase", "Pending"),
        "node": found["spec"].get("nodeName"),
        "ready": conditions.get("Ready", {}).get("status") == "True",
        "reason": reason,
        "containers": [_container(container) for container in status.get("containerStatuses", [])],
        **({"initContainers": [_container(one) for one in first]} if first else {}),
    }


def _container(status: dict[str, Any]) -> dict[str, Any]:
    (state, detail), *_ = status["state"].items()
    ended = status["state"].get("terminated") or status.get("lastState", {}).get("terminated") or {}
    return {
        "name": status["name"],
        "image": status["image"],
        "ready": status["ready"],
        "restartCount": status["restartCount"],
        "state": state,
        "reason": detail.get("reason") or ended.get("reason"),
        "exitCode": ended.get("exitCode"),
    }


def _service(found: Object) -> dict[str, Any]:
    ports = [{"port": port["port"], "targetPort": port["targetPort"]} for port in found["spec"].get("ports", [])]
    return {"ports": ports, "selector": found["spec"].get("selector") or {}}


def _endpoints(found: Object) -> dict[str, Any]:
    subsets = found.get("subsets") or []
    return {
        "ready": sum(len(subset.get("addresses") or ()) for subset in subsets),
        "notReady": sum(len(subset.get("notReadyAddresses") or ()) for subset in subsets),
        "ports": sorted({port["port"] for subset in subsets for port in subset.get("ports") or ()}),
    }


def _claim(found: Object) -> dict[str, Any]:
    return {"phase": found.get("status", {}).get("phase"), "volume": found["spec"].get("volumeName")}


def _volume(found: Object) -> dict[str, Any]:
    claim = (found["spec"].get("claimRef") or {}).get("name")
    return {"phase": found.get("status", {}).get("phase"), "claim": claim}


def _data(found: Object) -> dict[str, Any]:
    texts = {key: found[key] for key in ("data", "stringData", "binaryData") if found.get(key)}
    return {"digest": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]}


def _replica_set(found: Object) -> dict[str, Any]:
    return {
        "replicas": found["spec"]["replicas"],
        "readyReplicas": found.get("status", {}).get("readyReplicas", 0),
        "image": found["spec"]["template"]["spec"]["containers"][0]["image"],
    }


def is_custom(found: Object | None) -> bool:
    """Say whether an object is of a kind that an application defines itself: Kubernetes' own groups end otherwise.

    >>> is_custom({"apiVersion": "pingcap.com/v1alpha1"}), is_custom({"apiVersion": "storage.k8s.io/v1"})
    (True, False)
    """
    group = "" if found is None else found.get("apiVersion", "").rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


def _custom_resource(found: Object) -> dict[str, Any]:
    status = found.get("status") or {}
    conditions = [
        {key: condition.get(key) for key in ("type", "status", "reason", "message")}
        for condition in status.get("conditions") or ()
    ]
    phases = {part: state["phase"] for part, state in status.items() if isinstance(state, dict) and "phase" in state}
    generation = found["metadata"].get("generation")
    return {"generation": generation, "spec": found.get("spec") or {}, "conditions": conditions, "phases": phases}


WHITELISTS: dict[str, Callable[[Object], dict[str, Any]]] = {
    "Deployment": _deployment,
    "StatefulSet": _deployment,
    "ReplicaSet": _replica_set,
    "Pod": _pod,
    "Service": _service,
    "Endpoints": _endpoints,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
    "ConfigMap": _data,
}


def rfc3339(time_ns: int) -> str:
    """Return a time in whole seconds, as in `metadata.creationTimestamp`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns // SECOND_NS))


def rfc3339_ns(time_ns: int) -> str:
    """Return a time with nine decimals, as container runtimes stamp log lines."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    return f"{_second(seconds)}.{rest:09d}Z"


@functools.lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def parse_rfc3339_ns(text: str) -> int:
    """Return nanoseconds since 1970 of a UTC time with nine decimals."""
    date, _, rest = text.rstrip("Z").partition(".")
    numbers = [int(date[start:end]) for start, end in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
    return calendar.timegm((*numbers, 0, 0, 0)) * SECOND_NS + int(rest.ljust(9, "0")[:9] or 0)
