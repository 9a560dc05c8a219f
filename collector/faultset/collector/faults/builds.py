"""Faults that roll out an image with a defective program."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from numpy.random import Generator

from faultset.collector.faults.deployments import (
    container_status,
    draw_build,
    get_container,
    get_pod_name,
    last_end,
    last_error_line,
    list_pods,
    patch_container,
    roll_out_build,
    runs_new_image,
)
from faultset.collector.faults.registry import Parameters, either, fault, percent_between
from faultset.collector.faults.targets import (
    list_calling_services,
    list_logic_services,
    list_networked_services,
    list_store_users,
)
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import is_ready
from faultset.collector.runtime.builds import DELAYS, FAILURES, HELD_CONNECTIONS, LEAKS, WRONG_PORTS
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

_SCALE_TIMEOUT_S = 30.0
_SHARES = [*(defect.failing_share for defect in FAILURES), *(defect.waiting_share for defect in DELAYS)]


def new_build_fails(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the pod runs the new image and has crashed or logs errors."""
    status = container_status(platform, target)
    if not status.get("image", "").endswith(parameters["image"]):
        return None
    if ended := last_end(status):
        return f"{target} runs {status['image']} and exited with code {ended['exitCode']}"
    line = last_error_line(platform, get_pod_name(platform, target))
    return f"{target} runs {status['image']} and logs: {line}" if line is not None else None


_BUILD = {"system_level": "Application", "needs": ("runtime",)}
_DEFECT = {**_BUILD, "fault_type": "Code Defect"}


@fault(
    "buggy-image",
    **_BUILD,
    fault_type="Misconfiguration",
    paper_number=5,
    targets=list_store_users,
    check=new_build_fails,
)
def buggy_image(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a build whose database client uses a closed port; the old pod is deleted first."""
    return roll_out_build(platform, target, rng, WRONG_PORTS, recreate=True)


@fault(
    "slow-build",
    **_DEFECT,
    targets=list_networked_services,
    check=runs_new_image,
    intensity=f"{either(f'{slow.wait_s:g} s for {100 * slow.waiting_share:g} %' for slow in DELAYS)} of the requests",
)
def slow_build(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a build that delays a share of its requests."""
    return roll_out_build(platform, target, rng, DELAYS)


@fault(
    "failing-build",
    **_DEFECT,
    targets=list_networked_services,
    check=runs_new_image,
    intensity=f"{either(f'{100 * defect.failing_share:g}' for defect in FAILURES)} % of the requests",
)
def failing_build(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a build that fails a share of its requests."""
    return roll_out_build(platform, target, rng, FAILURES)


@fault(
    "connection-pool-exhausted",
    **_DEFECT,
    targets=list_calling_services,
    check=runs_new_image,
    intensity=f"a pool of {either(defect.pool_size for defect in HELD_CONNECTIONS)} connections; "
    f"{percent_between(defect.kept_share for defect in HELD_CONNECTIONS)} of the calls hold theirs for 2 to 5 s",
)
def connection_pool_exhausted(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a build that returns some connections to its pool late, so that calls wait."""
    return roll_out_build(platform, target, rng, HELD_CONNECTIONS)


def runs_another_program(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the running pod was started with the wrong command."""
    for pod in list_pods(platform, target):
        command = pod["spec"]["containers"][0].get("command", [])
        if command[-1:] == [parameters["program"]] and pod["status"].get("phase") == "Running":
            return f"pod {pod['metadata']['name']} runs {' '.join(command)}"
    return None


@fault(
    "wrong-binary",
    **_BUILD,
    fault_type="Network/Storage Issue",
    paper_number=15,
    targets=list_logic_services,
    check=runs_another_program,
)
def wrong_binary(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Start another service's program in the target's container."""
    command = get_container(platform, target)["command"]
    program = str(rng.choice([name for name in list_logic_services(platform.app) if name != target]))
    patch_container(platform, target, recreate=True, command=[*command[:-1], program])
    return {"program": program}


def runs_with_good_pods(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether one pod runs the bad build and another does not."""
    ready = [pod for pod in list_pods(platform, target) if is_ready(pod)]
    bad = [pod for pod in ready if _runs(pod, parameters["image"])]
    if bad and len(ready) > len(bad):
        return f"{bad[0]['metadata']['name']} runs {parameters['image']} next to {len(ready) - len(bad)} good pods"
    return None


@fault(
    "one-bad-replica",
    **_DEFECT,
    targets=list_networked_services,
    check=runs_with_good_pods,
    at_one_pod=True,
    intensity=f"one pod of two to four; {percent_between(_SHARES)} of its requests fail or are delayed",
)
def one_bad_replica(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Scale the service out, then run a build that fails or delays requests in one of its pods."""
    replicas = int(rng.integers(2, 5))
    build = draw_build(platform, target, rng, (*DELAYS, *FAILURES))
    platform.patch("Deployment", target, {"spec": {"replicas": replicas}})
    platform.wait(
        lambda: sum(map(is_ready, list_pods(platform, target))) >= replicas,
        timeout_s=_SCALE_TIMEOUT_S,
        what=f"{replicas} pods of {target}",
    )
    pod = list_pods(platform, target)[0]
    containers = copy.deepcopy(pod["spec"]["containers"])
    containers[0]["image"] = build["image"]
    platform.patch("Pod", pod["metadata"]["name"], {"spec": {"containers": containers}})
    return {"replicas": replicas, "pod": pod["metadata"]["name"], **build}


def _runs(pod: Object, image: str) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    return statuses[0].get("image", "").endswith(image) and "running" in statuses[0].get("state", {})


def was_killed_for_memory(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    status = container_status(platform, target)
    ended = last_end(status)
    if status.get("image", "").endswith(parameters["image"]) and ended.get("reason") == "OOMKilled":
        return f"{target} was OOMKilled with exit code {ended['exitCode']}"
    return None


@fault(
    "memory-leak",
    **_DEFECT,
    category="symptomatic",
    targets=list_logic_services,
    check=was_killed_for_memory,
    intensity="9, 12 or 15 MiB/s",
)
def memory_leak(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a build that leaks memory until its container reaches its limit and is killed."""
    return roll_out_build(platform, target, rng, LEAKS)
