"""Limits with which a store is started anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.pods import pods_of
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.api.pod_state import is_ready


def start_with_limit(platform: Platform, target: str, option: str, value: int) -> dict[str, Any]:
    """Add an option to the command of a store's container; its pod is replaced."""
    option_words = [option, str(value)]
    command = [*(container_of(platform, target).get("command") or []), *option_words]
    patch_container(platform, target, recreate=True, command=command)
    return {"arguments": option_words}


def runs_with_limit(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether a ready pod was started with the arguments, for the `check` of a fault."""
    wanted = list(parameters["arguments"])
    for pod in pods_of(platform, target):
        if is_ready(pod) and (pod["spec"]["containers"][0].get("command") or [])[-len(wanted) :] == wanted:
            return f"{pod['metadata']['name']} runs with {' '.join(wanted)}"
    return None
