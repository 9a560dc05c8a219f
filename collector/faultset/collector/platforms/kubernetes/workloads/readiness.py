"""Words for what keeps an application on a cluster from starting."""

from __future__ import annotations

from collections.abc import Iterable

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import container_statuses, is_ready

_NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})


def images_missing(pods: Iterable[Object]) -> tuple[str, ...]:
    """Return the images that nodes cannot get."""
    missing = {
        status["image"]
        for pod in pods
        for status in container_statuses(pod)
        if (status.get("state", {}).get("waiting") or {}).get("reason") in _NO_IMAGE
    }
    return tuple(sorted(missing))


def unready(pods: Iterable[Object]) -> str:
    """Return one sentence about the pods that are not ready, with the cluster's reasons."""
    said = [_describe(pod) for pod in pods if not is_ready(pod)]
    return "; ".join(said[:5]) + (f"; {len(said) - 5} more" if len(said) > 5 else "") if said else "all pods are ready"


def _describe(pod: Object) -> str:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    words = []
    for container in container_statuses(pod):
        waiting = container.get("state", {}).get("waiting") or {}
        last = container.get("lastState", {}).get("terminated") or {}
        if waiting:
            words.append(f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip())
        if last:
            words.append(f"last exit {last.get('exitCode')} ({last.get('reason')})")
    if not words:
        words = [c.get("message") or "" for c in status.get("conditions") or [] if c.get("status") == "False"][:1]
    return f"pod {name} is {status.get('phase', 'Pending')}: {', '.join(w for w in words if w) or 'no reason given'}"
