"""Rollouts and restarts before an episode, as in an application that has been running for days."""

from __future__ import annotations

import numpy as np

from faultset.collector.faults.pods import get_pod_name
from faultset.collector.faults.targets import list_code_services, list_operators
from faultset.collector.platforms.base import NotSupported, Platform

_ROLLOUT_RANGE, _RESTART_RANGE = (2, 5), (1, 3)
"""Range of the number of services, excluding its end."""


def age_application(platform: Platform, rng: np.random.Generator) -> bool:
    """Roll out and restart some services, which leaves old ReplicaSets, events and restart counts.

    Returns
    -------
    bool
        Whether anything was changed; applications deployed by others are left unchanged.
    """
    app = platform.app
    services = [*list_code_services(app), *list_operators(app)] if app.deployed is None else []
    if not services:
        return False
    order = [str(service) for service in rng.permutation(services)]
    rollout_count, restart_count = int(rng.integers(*_ROLLOUT_RANGE)), int(rng.integers(*_RESTART_RANGE))
    for service in order[:rollout_count]:
        annotations = {"kubernetes.io/change-cause": f"release {int(rng.integers(100, 1000))}"}
        platform.patch("Deployment", service, {"spec": {"template": {"metadata": {"annotations": annotations}}}})
    # other services, because the new pod of a rollout may not be running yet
    for service in order[rollout_count : rollout_count + restart_count]:
        try:
            platform.kill(get_pod_name(platform, service))
        except NotSupported:
            break
    return True
