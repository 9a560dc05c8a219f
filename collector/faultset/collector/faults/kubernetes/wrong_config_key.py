"""A key of a ConfigMap under another name than the one that a service asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.configuration import configured_services, needed_keys, sharing_services
from faultset.collector.faults.deployments import is_restarted, order_restart
from faultset.collector.faults.pods import last_end, last_event, pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.platform import Platform


def lacks_key(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether a pod made since waits for the key, has ended for want of it, or runs without it."""
    name, key = parameters["config_map"], parameters["key"]
    if key in (platform.get("ConfigMap", name).get("data") or {}) or not is_restarted(platform, target):
        return None
    for pod in pods_of(platform, target):
        if said := _want_of_key(platform, pod, parameters["use"]):
            return f"{pod['metadata']['name']} {said}, and ConfigMap {name} has no key {key}"
    return None


def _want_of_key(platform: Platform, pod: Object, use: str) -> str | None:
    status = next(iter(pod.get("status", {}).get("containerStatuses", [])), {})
    reason = (status.get("state", {}).get("waiting") or {}).get("reason")
    if use == "variable" and reason == "CreateContainerConfigError":
        return f"waits: {reason}"
    if use == "file" and reason == "ContainerCreating":
        message = last_event(platform, pod["metadata"]["name"], "FailedMount")
        return None if message is None else f"waits: {message}"
    if use == "group" and last_end(status).get("exitCode"):
        return f"exited with code {last_end(status)['exitCode']}"
    return "runs" if use == "folder" and "running" in status.get("state", {}) else None


@fault(
    "wrong-config-key",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=configured_services,
    check=lacks_key,
    also_accepted=sharing_services,
    needs=("runtime",),
)
def wrong_config_key(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Rename a key of a ConfigMap that the service needs, and restart its pods, the old ones first."""
    found = needed_keys(platform.app, target)
    needed = found[int(rng.integers(len(found)))]
    renamed = needed.key + str(rng.choice([".bak", ".old", ".orig", "-v2", "_new"]))
    order_restart(platform, target, recreate=True)
    text = platform.get("ConfigMap", needed.config_map)["data"][needed.key]
    platform.patch("ConfigMap", needed.config_map, {"data": {needed.key: None, renamed: text}})
    return {"config_map": needed.config_map, "key": needed.key, "renamed": renamed, "use": needed.use}
