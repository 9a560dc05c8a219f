"""Harmless changes: those that any episode may have, and those that no-fault episodes make instead of a fault."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.stores import administer, flush_caches
from faultset.collector.faults.targets import (
    code_services,
    databases,
    logic_services,
    networked_services,
    replicated_frontends,
)
from faultset.collector.platforms.base import EpisodePlatform, Platform
from faultset.collector.runtime.builds import GOOD
from faultset.collector.runtime.stores.driver import REWRITE_PASSWORD

LEAST_READINESS_DELAY_S, MOST_READINESS_DELAY_S = 10, 30
"""How long a rollout waits for its new pods, as for programs that start slowly."""


def harmless_change(platform: Platform, rng: np.random.Generator) -> dict[str, Any]:
    """Change a setting of a random Deployment that has no effect on its running pods."""
    app = platform.app
    service = str(rng.choice([name for name in sorted(app.services) if app.has_deployment(name)]))
    setting, value = ("progressDeadlineSeconds", int(rng.integers(300, 600)))
    if rng.random() < 0.5:
        setting, value = "revisionHistoryLimit", int(rng.integers(2, 9))
    platform.patch("Deployment", service, {"spec": {setting: value}})
    return {"change": setting, "service": service, "value": value}


def roll_out(platform: Platform, rng: np.random.Generator, targets: Collection[str]) -> dict[str, Any]:
    """Roll out another good build of a random service that is no target and calls none, for it may not start then.

    The new pods are asked whether they are ready after some seconds, so that clients notice nothing and the rollout
    takes its time; what a cluster holds that others deployed is rolled out only where it has such a probe.

    Returns
    -------
    dict
        `service`, and `image` if it has another one now; empty where there is no such service.
    """
    spared = {*targets, *(consumer for target in targets for consumer in platform.app.consumers(target))}
    services = [name for name in _services_to_roll_out(platform) if name not in spared]
    return _roll_out(platform, str(rng.choice(services)), rng) if services else {}


def disturb(platform: EpisodePlatform, rng: np.random.Generator) -> dict[str, Any]:
    """Make one harmless change: more load, which clients may notice, or a rollout of another good build."""
    services = _services_to_roll_out(platform)
    if rng.random() < 0.5 or not services:
        factor = round(float(rng.uniform(1.3, 1.8)), 2)
        platform.step_load(factor)
        return {"harmless_change": "load-step", "factor": factor}
    return {"harmless_change": "rollout", **_roll_out(platform, str(rng.choice(services)), rng)}


def imitate_fault(platform: Platform, rng: np.random.Generator) -> dict[str, Any]:
    """Restart pods, flush caches or rewrite objects as faults do, without harm."""
    kind = int(rng.integers(3)) if platform.app.deployed is None else int(rng.integers(1, 3))
    if kind == 0:
        store = str(rng.choice(databases(platform.app)))
        administer(platform, store, REWRITE_PASSWORD)
        caches = flush_caches(platform, store)
        for consumer in filter(platform.app.has_deployment, platform.app.consumers(store)):
            _restart(platform, consumer)
        return {"sham": "account-rewritten", "store": store, "flushed": caches}
    app = platform.app
    restartable, rewritable = (
        logic_services(app) or replicated_frontends(app),
        networked_services(app) or app.components,
    )
    service = str(rng.choice(restartable if kind == 1 and restartable else rewritable))
    if kind == 1 and restartable:
        _restart(platform, service)
        return {"sham": "restart", "service": service}
    ports = platform.get("Service", service)["spec"]["ports"]
    platform.patch("Service", service, {"spec": {"ports": ports}})
    return {"sham": "service-rewritten", "service": service}


def clients_may_notice(made: Mapping[str, Any]) -> bool:
    """Say whether what `imitate_fault` did restarts pods, which takes longer on a busy host and may slow requests."""
    return made.get("sham") in ("restart", "account-rewritten")


def _services_to_roll_out(platform: Platform) -> list[str]:
    """Return the services that can be rolled out such that clients do not notice."""
    services = code_services(platform.app) or replicated_frontends(platform.app)
    is_ours = platform.app.deployed is None
    return [name for name in services if is_ours or container_of(platform, name).get("readinessProbe")]


def _roll_out(platform: Platform, service: str, rng: np.random.Generator) -> dict[str, Any]:
    if platform.app.deployed is not None or service in platform.app.components:
        _restart(platform, service)
        return {"service": service}
    container = container_of(platform, service)
    repository, _, tag = container["image"].rpartition(":")
    image = f"{repository}:{rng.choice(sorted(GOOD - {tag}))}"
    fields: dict[str, Any] = {"image": image}
    if probe := _readiness_probe(container):
        delay_s = int(rng.integers(LEAST_READINESS_DELAY_S, MOST_READINESS_DELAY_S + 1))
        fields["readinessProbe"] = {**probe, "initialDelaySeconds": delay_s}
    patch_container(platform, service, **fields)
    return {"service": service, "image": image}


def _readiness_probe(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a container's probe, or one that connects to its first port; None without a port."""
    if "readinessProbe" in container or not container.get("ports"):
        return container.get("readinessProbe")
    return {"tcpSocket": {"port": container["ports"][0]["containerPort"]}, "periodSeconds": 1}


def _restart(platform: Platform, service: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    annotations = {"kubectl.kubernetes.io/restartedAt": stamp}
    operator = platform.app.operator
    if operator is not None and service in operator.components:
        change = {"spec": {service: {"annotations": annotations}}}
        platform.patch(operator.resource.kind, operator.resource.name, change)
        return
    platform.patch("Deployment", service, {"spec": {"template": {"metadata": {"annotations": annotations}}}})
