"""Words for what keeps an application from being ready."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from faultset.collector.ipc.helper_processes import tail
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import container_statuses, is_ready
from faultset.collector.platforms.local.api_server.object_store import ObjectStore

LogFile = Callable[[str, str], Path]


def unready(store: ObjectStore, log_file: LogFile) -> str:
    """Return one sentence about the pods that are not ready, with their states and last log lines."""
    said = [describe(pod, log_file) for pod in store.each("Pod") if not is_ready(pod)]
    said += [
        f"{kind} {found['metadata']['name']} has no pod"
        for kind in ("Deployment", "StatefulSet")
        for found in store.each(kind)
        if found["spec"]["replicas"] and not found.get("status", {}).get("replicas")
    ]
    return "; ".join(said) if said else "all pods are ready"


def describe(pod: Object, log_file: LogFile) -> str:
    """Return what is known about one pod in a few words."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    statuses = container_statuses(pod)
    if not statuses:
        scheduled = [found for found in status.get("conditions", []) if found["type"] == "PodScheduled"]
        why = scheduled[0].get("message", "") if scheduled else ""
        return f"pod {name} is {status.get('phase', 'Pending')}{': ' + why if why else ''}"
    return ", ".join(_container(name, container, log_file) for container in statuses)


def _container(pod: str, status: dict[str, Any], log_file: LogFile) -> str:
    (state, detail), *_ = status["state"].items()
    last = status.get("lastState", {}).get("terminated") or {}
    words = f"pod {pod} is {detail.get('reason', state)} after {status['restartCount']} restarts"
    if last:
        words += f", last exit {last['exitCode']} ({last['reason']})"
    log = log_file(pod, status["name"])
    return f"{words}; its log ends: {tail(log)}"
