"""Which pod and container a process belongs to, read from its control groups.

The kubelet names the group of a pod after the pod's uid, with the cgroupfs driver as a folder `pod<uid>`, with the
systemd driver as a slice in which `_` stands for `-`. Runtimes add the container's id, with a prefix of their own
under systemd. A process in a control group namespace of its own sees the groups of others behind `/../`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_POD = re.compile(rf"(?:^|[/-])pod(?P<uid>{_UID})(?:\.slice)?(?=[/:]|$)")
_CONTAINER = re.compile(r"(?P<prefix>[a-z-]*)[:-]?(?<![0-9a-f])(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)")
_NOT_A_CONTAINER = "conmon"
"""CRI-O's monitor of a container stands in a group that is named after the container."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A pod's uid and, for the processes of containers, the container's id."""

    pod_uid: str
    container_id: str | None


def place_of(cgroups: str) -> Place | None:
    """Return where a process runs.

    Parameters
    ----------
    cgroups
        Text of `/proc/PID/cgroup`, of either version.

    Returns
    -------
    Place or None
        None for a process of no pod, and for one whose hierarchies name different pods.
    """
    found = {place for line in cgroups.splitlines() if (place := _place_in(line.split(":", 2)[-1]))}
    if len({place.pod_uid for place in found}) != 1:
        return None
    containers = {place.container_id for place in found} - {None}
    if len(containers) > 1:
        return None
    return Place(pod_uid=next(iter(found)).pod_uid, container_id=containers.pop() if containers else None)


def _place_in(path: str) -> Place | None:
    pods = list(_POD.finditer(path))
    if not pods:
        return None
    uid = pods[-1]["uid"].replace("_", "-")
    container = _CONTAINER.match(path[pods[-1].end() :].lstrip("/:"))
    if container is None or _NOT_A_CONTAINER in container["prefix"]:
        return Place(pod_uid=uid, container_id=None)
    return Place(pod_uid=uid, container_id=container["id"])
