"""Faults in settings: environment variables, timeouts and keys of ConfigMaps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np

from faultset.collector.faults.deployments import (
    is_restarted,
    last_end,
    last_event,
    list_pods,
    runs_with_variables,
    set_variables,
    trigger_restart,
)
from faultset.collector.faults.registry import Parameters, fault, percent_between
from faultset.collector.faults.targets import list_calling_services, list_networked_services
from faultset.collector.platforms.base import Platform
from faultset.collector.runtime.environment import host_variable
from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.core.times import SECOND_NS
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

Use = Literal["variable", "group", "file", "folder"]


class NeededKey(NamedTuple):
    """A key of a ConfigMap that a service needs, and how its container uses it.

    A `variable` or a `file` names the key. A `group` of variables or a `folder` contains all keys of the ConfigMap.
    """

    config_map: str
    key: str
    use: Use


def list_needed_keys(app: AppSpec, service: str) -> tuple[NeededKey, ...]:
    """Return the keys of the spec's ConfigMaps that a service needs."""
    return tuple(dict.fromkeys(_find_needed_keys(app, app.services[service])))


def list_configured_services(app: AppSpec) -> tuple[str, ...]:
    """Return the services with a Deployment that need a key of a ConfigMap."""
    return tuple(name for name in app.services if app.has_deployment(name) and list_needed_keys(app, name))


def sharing_services(app: AppSpec, target: str) -> tuple[str, ...]:
    """Return the other services that use the ConfigMaps of a service; for `also_accepted`."""
    objects = {needed.config_map for needed in list_needed_keys(app, target)}
    return tuple(name for name, other in app.services.items() if name != target and objects & {*_config_maps(other)})


def _config_maps(service: ServiceSpec) -> Iterator[str]:
    for source in (*service.environment.values(), *service.environment_from, *service.files.values()):
        if source.config is not None:
            yield source.config


def _find_needed_keys(app: AppSpec, service: ServiceSpec) -> Iterator[NeededKey]:
    variables = {name for _, step in service.steps() for name in step.variables_read()}
    files = {PurePosixPath(path) for _, step in service.steps() for path in step.files_read()}
    for variable in service.environment.values():
        if variable.config is not None and variable.key is not None and not variable.optional:
            yield NeededKey(variable.config, variable.key, "variable")
    for group in service.environment_from:
        for key in app.configs.get(group.config or "", ()):
            if f"{group.prefix}{key}" in variables:
                yield NeededKey(str(group.config), key, "group")
    for folder, mounted in service.files.items():
        if mounted.config is None or mounted.optional:
            continue
        for key in mounted.items or ():
            yield NeededKey(mounted.config, key, "file")
        for key in () if mounted.items else app.configs.get(mounted.config, ()):
            if PurePosixPath(folder) / key in files:
                yield NeededKey(mounted.config, key, "folder")


_WINDOW_S = 30.0


def usual_call_ms(platform: Platform, service: str) -> float:
    """Return the 90th percentile of the durations of a service's recent successful calls in ms; 0 without calls."""
    end_ns = time.time_ns()
    durations: list[int] = []
    for batch in platform.sources["spans"].snapshot(end_ns - int(_WINDOW_S * SECOND_NS), end_ns):
        rows = batch.select(["service", "kind", "duration_ns", "status"]).to_pylist()
        durations += [
            row["duration_ns"]
            for row in rows
            if row["service"] == service and row["kind"] == "client" and row["status"] != "error"
        ]
    return float(np.quantile(durations, 0.9)) / 1e6 if durations else 0.0


_VARIABLES = {
    "system_level": "Application",
    "fault_type": "Misconfiguration",
    "check": runs_with_variables,
    "needs": ("runtime",),
}


@fault("wrong-environment", **_VARIABLES, targets=list_networked_services)
def wrong_environment(platform: Platform, target: str, rng: np.random.Generator) -> Parameters:
    """Set a listen address that does not exist, so that the new pod cannot start; the old pod is deleted first."""
    # reserved for documentation (RFC 5737)
    variables = {"POD_IP": f"192.0.2.{int(rng.integers(2, 250))}"}
    set_variables(platform, target, variables, recreate=True)
    return {"variables": variables}


@fault("wrong-host", **_VARIABLES, targets=list_calling_services, intensity="one of the services that the target calls")
def wrong_host(platform: Platform, target: str, rng: np.random.Generator) -> Parameters:
    """Set the host of a service's callee to a name that DNS cannot resolve."""
    callee = str(rng.choice(platform.app.services[target].calls))
    host = f"{callee}-{rng.choice(['v2', 'old', 'internal', 'svc', 'prod'])}{int(rng.integers(1, 100))}"
    variables = {host_variable(callee): host}
    set_variables(platform, target, variables)
    return {"callee": callee, "variables": variables}


_SHORT_SHARES = (0.3, 0.9)
_MIN_MS = 1.0


@fault(
    "short-timeout",
    **_VARIABLES,
    targets=list_calling_services,
    intensity=f"a timeout of {percent_between(_SHORT_SHARES)} of the usual call duration",
)
def short_timeout(platform: Platform, target: str, rng: np.random.Generator) -> Parameters:
    """Set a timeout below the 90th percentile of a service's calls."""
    share = round(float(rng.uniform(*_SHORT_SHARES)), 2)
    timeout_ms = max(_MIN_MS, round(share * usual_call_ms(platform, target), 1))
    variables = {"RPC_TIMEOUT_MS": f"{timeout_ms:g}"}
    set_variables(platform, target, variables)
    return {"share_of_usual": share, "variables": variables}


_RETRY_SHARES = (0.7, 1.3)
_MIN_RETRY_MS = 2.0


@fault(
    "retry-storm",
    **_VARIABLES,
    targets=list_calling_services,
    intensity=f"a timeout of {percent_between(_RETRY_SHARES)} of the usual call duration, 5 to 30 retries",
)
def retry_storm(platform: Platform, target: str, rng: np.random.Generator) -> Parameters:
    """Set a timeout near the 90th percentile of a service's calls, with immediate retries."""
    share, retries = round(float(rng.uniform(*_RETRY_SHARES)), 2), int(rng.integers(5, 31))
    timeout_ms = max(_MIN_RETRY_MS, round(share * usual_call_ms(platform, target), 1))
    variables = {"RPC_TIMEOUT_MS": f"{timeout_ms:g}", "RPC_RETRIES": str(retries)}
    set_variables(platform, target, variables)
    return {"share_of_usual": share, "variables": variables}


def lacks_key(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether a new pod waits for the key, has failed without it, or runs without it."""
    name, key = parameters["config_map"], parameters["key"]
    if key in (platform.get("ConfigMap", name).get("data") or {}) or not is_restarted(platform, target):
        return None
    for pod in list_pods(platform, target):
        if effect := _effect_of_missing_key(platform, pod, parameters["use"]):
            return f"{pod['metadata']['name']} {effect}, and ConfigMap {name} has no key {key}"
    return None


def _effect_of_missing_key(platform: Platform, pod: Object, use: str) -> str | None:
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
    targets=list_configured_services,
    check=lacks_key,
    also_accepted=sharing_services,
    needs=("runtime",),
)
def wrong_config_key(platform: Platform, target: str, rng: np.random.Generator) -> Parameters:
    """Rename a key of a ConfigMap that the service needs, and restart its pods; the old ones are deleted first."""
    keys = list_needed_keys(platform.app, target)
    needed = keys[int(rng.integers(len(keys)))]
    renamed = needed.key + str(rng.choice([".bak", ".old", ".orig", "-v2", "_new"]))
    trigger_restart(platform, target, recreate=True)
    text = platform.get("ConfigMap", needed.config_map)["data"][needed.key]
    platform.patch("ConfigMap", needed.config_map, {"data": {needed.key: None, renamed: text}})
    return {"config_map": needed.config_map, "key": needed.key, "renamed": renamed, "use": needed.use}
