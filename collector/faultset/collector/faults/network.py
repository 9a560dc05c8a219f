"""Faults of the network of a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.random import Generator

from faultset.collector.faults.deployments import get_pod_name
from faultset.collector.faults.registry import Parameters, draw_log_uniform, fault, percent_between
from faultset.collector.faults.targets import (
    add_stores_of_requests,
    list_called_services,
    list_internal_services,
    list_stores_of_requests,
)
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.impairments import Bandwidth, Course, Delay, Impairment, Loss, Partition


def is_impaired(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the platform disturbs the pod's packets or requests now."""
    return platform.disturbance_evidence(parameters["pod"])


def impair_pod(
    platform: Platform,
    target: str,
    kind: Callable[..., Impairment],
    parameters: Parameters,
    course: Course | None = None,
    **further: Any,
) -> Parameters:
    """Disturb the newest pod of a service; return the pod, the parameters and the intensity over time."""
    pod, over_time = get_pod_name(platform, target), course.as_parameters() if course else {}
    platform.impair(pod, kind(**parameters, **further, **over_time))
    return {"pod": pod, **parameters, **over_time}


_LOSS_SHARES = (0.08, 0.4)
_COMMON_FIELDS = {
    "system_level": "Operating System",
    "fault_type": "Network/Storage Issue",
    "category": "symptomatic",
    "check": is_impaired,
    "root_cause_kind": "Pod",
}


@fault(
    "network-loss",
    **_COMMON_FIELDS,
    paper_number=8,
    targets=add_stores_of_requests(list_internal_services),
    schedules=("gradual", "intermittent", "delayed"),
    intensity=f"{percent_between(_LOSS_SHARES)} of the packets",
    gray=True,
    needs=("loss",),
)
def network_loss(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Drop a share of the packets that the pod sends."""
    probability = draw_log_uniform(rng, *_LOSS_SHARES)
    return impair_pod(platform, target, Loss, {"probability": probability}, course)


@fault(
    "network-delay",
    **_COMMON_FIELDS,
    targets=list_internal_services,
    schedules=("gradual", "intermittent", "delayed"),
    intensity="60 to 500 ms",
    gray=True,
    needs=("delay",),
)
def network_delay(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Delay all packets that the pod sends."""
    latency_s = draw_log_uniform(rng, 0.06, 0.5)
    return impair_pod(platform, target, Delay, {"latency_s": latency_s}, course, jitter_s=round(latency_s / 10, 3))


@fault(
    "network-jitter",
    **_COMMON_FIELDS,
    targets=add_stores_of_requests(list_internal_services),
    schedules=("gradual", "intermittent", "delayed"),
    intensity="25 to 150 ms on average, from 0 to twice the average",
    gray=True,
    needs=("delay",),
)
def network_jitter(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Delay each packet that the pod sends by a random time, up to twice the mean."""
    latency_s = draw_log_uniform(rng, 0.025, 0.15)
    return impair_pod(platform, target, Delay, {"latency_s": latency_s}, course, jitter_s=latency_s)


@fault(
    "network-partition",
    **_COMMON_FIELDS,
    targets=add_stores_of_requests(list_internal_services),
    schedules=("intermittent", "delayed"),
    needs=("partition",),
)
def network_partition(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Drop all packets to and from the pod."""
    return impair_pod(platform, target, Partition, {}, course)


@fault(
    "bandwidth-limit",
    **_COMMON_FIELDS,
    targets=add_stores_of_requests(list_called_services),
    schedules=("intermittent", "delayed"),
    intensity="2 to 12 kB/s",
    gray=True,
    needs=("bandwidth",),
)
def bandwidth_limit(platform: Platform, target: str, rng: Generator, course: Course | None = None) -> Parameters:
    """Limit the pod to a few kilobytes a second, so that its responses queue."""
    bytes_per_s = draw_log_uniform(rng, 2000, 12_000, digits=0)
    return impair_pod(platform, target, Bandwidth, {"bytes_per_s": bytes_per_s}, course)


@fault(
    "slow-store",
    **_COMMON_FIELDS,
    targets=list_stores_of_requests,
    intensity="25 to 300 ms",
    gray=True,
    needs=("delay",),
)
def slow_store(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Delay all responses of a store, as a slow disk does."""
    latency_s = draw_log_uniform(rng, 0.025, 0.3)
    return impair_pod(platform, target, Delay, {"latency_s": latency_s}, jitter_s=round(latency_s / 2, 4))
