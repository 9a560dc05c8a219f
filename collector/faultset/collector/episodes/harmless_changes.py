"""Harmless changes: the decoys of every episode, and the changes of episodes without a fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import (
    get_container,
    get_pod_name,
    list_pods,
    patch_container,
    trigger_restart,
)
from faultset.collector.faults.registry import FaultSpec
from faultset.collector.faults.stores import administer, flush_caches
from faultset.collector.faults.targets import (
    list_code_services,
    list_databases,
    list_logic_services,
    list_networked_services,
    list_operators,
    list_replicated_frontends,
)
from faultset.collector.plans.timeline import Decoy, DecoyKind, eligible_services
from faultset.collector.platforms.base import EpisodePlatform, NotSupported, Platform
from faultset.collector.platforms.objects import ObjectNotFound
from faultset.collector.runtime.builds import draw_builds
from faultset.collector.runtime.stores.driver import REWRITE_PASSWORD
from faultset.collector.spec.manifests import config_name
from faultset.core.times import rfc3339

POD_KINDS: frozenset[DecoyKind] = frozenset({"rollout", "restart", "scale-out", "replica-restart"})
"""Kinds that add or replace pods."""
_CONFIRMATION_S = 10.0
"""Seconds from the onset until a fault is in effect and confirmed; later decoys may hit its target."""
_SETTLE_MARGIN_S = 3.0
_ROUNDING_S = 0.001


class DecoySchedule:
    """Makes the decoys of an episode step by step.

    The number of decoys, their kinds and their times do not depend on the fault. A decoy that would remove a fault from
    its target hits another service instead. Before the onset, which is `onset_s` after the start of the view, decoys of
    all kinds may hit targets; after it, only decoys that leave the fault in effect. `faults` are the faults by target.
    """

    def __init__(self, platform: Platform, decoys: Sequence[Decoy], *, onset_s: float, faults: Mapping[str, FaultSpec]):
        self._platform, self._onset_s, self._faults = platform, onset_s, faults
        self._steps = sorted((at_s, decoy.number, step) for decoy in decoys for step, at_s in enumerate(decoy.times_s))
        self._decoys = decoys
        self._choices: dict[int, tuple[DecoyKind, str]] = {}

    def take_due(self, elapsed_s: float) -> Iterator[dict[str, Any]]:
        """Make all steps that are due, and yield their changes."""
        while self._steps and self._steps[0][0] <= elapsed_s + _ROUNDING_S:
            _, number, step = self._steps.pop(0)
            decoy = self._decoys[number]
            if number not in self._choices:
                self._choices[number] = self.choose(decoy)
            kind, service = self._choices[number]
            make = _STEPS[kind].get(step)
            try:
                change = make(self._platform, service, decoy) if make else None
            except ObjectNotFound:
                continue  # the fault has removed the object
            if change is not None:
                replaces = {"replaces_pods_of": service} if kind in POD_KINDS else {}
                yield {"decoy": kind, "service": service, "number": number, "step": step, **replaces, **change}

    def choose(self, decoy: Decoy) -> tuple[DecoyKind, str]:
        """Return the kind and the service of a decoy, when its first step is due."""
        app = self._platform.app
        kind, service = decoy.choose(app)
        if kind not in POD_KINDS:
            return kind, service
        services = [name for name in eligible_services(kind, app) if self._is_safe(kind, name, decoy)]
        if service in services:
            return kind, service
        return (kind, services[decoy.seed % len(services)]) if services else ("setting", service)

    def _is_safe(self, kind: DecoyKind, service: str, decoy: Decoy) -> bool:
        """Return whether a decoy that replaces pods neither harms clients nor removes the fault of its service."""
        app = self._platform.app
        is_probed = app.deployed is None or service in app.components
        if not is_probed and not get_container(self._platform, service).get("readinessProbe"):
            return False
        fault = self._faults.get(service)
        if fault is None:
            return True
        last_s = decoy.times_s[max(_STEPS[kind])]
        if last_s + app.variation.longest_start_s + _SETTLE_MARGIN_S < self._onset_s:
            return True
        if decoy.times_s[0] < self._onset_s + _CONFIRMATION_S:
            return False
        if kind in ("scale-out", "replica-restart"):
            # the pods that are removed are unready or the newest, and a fault that is repeated hits the newest
            is_in_kept_pods = fault.gray or not fault.ends_with_pods
            return is_in_kept_pods and fault.repeat_s is None and bool(list_pods(self._platform, service))
        return not fault.ends_with_pods and (kind == "restart" or self._runs_healthy_build(service))

    def _runs_healthy_build(self, service: str) -> bool:
        """Return whether a service's image has no defect, so that another healthy build changes nothing."""
        app = self._platform.app
        if app.deployed is not None or service in app.components:
            return True
        tag = get_container(self._platform, service)["image"].rpartition(":")[2]
        return tag in draw_builds(app.variation.seed).healthy


_Step = Callable[[Platform, str, Decoy], dict[str, Any] | None]
"""Makes one step of a decoy; returns its changes, or None if there was nothing to change."""


def _delete_pod(platform: Platform, service: str, decoy: Decoy) -> dict[str, Any] | None:
    """Delete the newest pod while the others serve."""
    pods = list_pods(platform, service)
    if len(pods) < 2:
        return None
    pod = pods[-1]["metadata"]["name"]
    platform.delete("Pod", pod)
    return {"pod": pod}


def _scale(platform: Platform, service: str, decoy: Decoy, *, step: int) -> dict[str, Any]:
    operator = platform.app.operator
    if operator is not None and service in operator.components:
        resource = operator.resource
        replicas = platform.get(resource.kind, resource.name)["spec"][service]["replicas"] + step
        platform.patch(resource.kind, resource.name, {"spec": {service: {"replicas": replicas}}})
    else:
        replicas = platform.get("Deployment", service)["spec"]["replicas"] + step
        platform.patch("Deployment", service, {"spec": {"replicas": replicas}})
    return {"replicas": replicas}


def _change_configuration(platform: Platform, service: str, decoy: Decoy) -> dict[str, Any]:
    """Write a key that no program reads into a ConfigMap of the application."""
    name = config_name(platform.app)
    platform.patch("ConfigMap", name, {"data": {f"{service}.notes": f"reviewed {decoy.seed:x}"}})
    return {"config_map": name}


def _change_setting(platform: Platform, service: str, decoy: Decoy) -> dict[str, Any]:
    """Change a setting that has no effect on running pods."""
    rng = np.random.default_rng(decoy.seed)
    operator = platform.app.operator
    if operator is not None and service in operator.components:
        change = {"maxFailoverCount": int(rng.integers(1, 10))}
        platform.patch(operator.resource.kind, operator.resource.name, {"spec": {service: change}})
        return change
    change = {"progressDeadlineSeconds": int(rng.integers(300, 600))}
    if rng.random() < 0.5:
        change = {"revisionHistoryLimit": int(rng.integers(2, 9))}
    platform.patch("Deployment", service, {"spec": change})
    return change


def _name_batch_pod(decoy: Decoy) -> str:
    return f"batch-{decoy.seed:08x}"


def _start_batch_pod(platform: Platform, service: str, decoy: Decoy) -> dict[str, Any]:
    """Run a pod that uses CPU time on the node, as a batch job does."""
    name = _name_batch_pod(decoy)
    milli_cores = 50 + decoy.seed % 200
    image = next(pod["spec"]["containers"][0]["image"] for pod in list_pods(platform, service))
    container = {
        "name": "batch",
        "image": image,
        "command": ["/bin/sh", "-c", "while :; do :; done"],
        "resources": {"limits": {"cpu": f"{milli_cores}m", "memory": "128Mi"}},
    }
    metadata = {"name": name, "labels": {"job-name": name}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
    platform.apply([{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}])
    return {"pod": name, "milli_cores": milli_cores, "image": image}


def _delete_batch_pod(platform: Platform, service: str, decoy: Decoy) -> dict[str, Any]:
    platform.delete("Pod", _name_batch_pod(decoy), grace_period_s=0)
    return {"pod": _name_batch_pod(decoy)}


_STEPS: Mapping[DecoyKind, Mapping[int, _Step]] = {
    "rollout": {0: lambda platform, service, decoy: _roll_out(platform, service, decoy.number)},
    "restart": {0: lambda platform, service, decoy: _restart(platform, service)},
    "scale-out": {0: partial(_scale, step=1), 2: partial(_scale, step=-1)},
    "replica-restart": {0: partial(_scale, step=1), 1: _delete_pod, 2: partial(_scale, step=-1)},
    "configuration": {0: _change_configuration},
    "setting": {0: _change_setting},
    "node-load": {0: _start_batch_pod, 1: _delete_batch_pod},
}
"""Steps of each kind by the index of their time; see `Decoy.times_s`."""


def disturb(platform: EpisodePlatform, rng: np.random.Generator) -> dict[str, Any]:
    """Make one harmless change: more load, which clients may notice, or a rollout of another healthy build."""
    services = list_code_services(platform.app) if platform.app.deployed is None else ()
    services = services or list_replicated_frontends(platform.app)
    if rng.random() < 0.5 or not services:
        factor = round(float(rng.uniform(1.3, 1.8)), 2)
        platform.step_load(factor)
        return {"harmless_change": "load-step", "factor": factor}
    service = str(rng.choice(services))
    return {"harmless_change": "rollout", "service": service, **_roll_out(platform, service, -2)}


def imitate_fault(platform: Platform, rng: np.random.Generator) -> dict[str, Any]:
    """Restart pods, flush caches or rewrite objects as a fault does, but without harm."""
    kind = int(rng.integers(3)) if platform.app.deployed is None else int(rng.integers(1, 3))
    if kind == 0:
        store = str(rng.choice(list_databases(platform.app)))
        administer(platform, store, REWRITE_PASSWORD)
        caches = flush_caches(platform, store)
        for consumer in filter(platform.app.has_deployment, platform.app.consumers(store)):
            _restart(platform, consumer)
        return {"sham": "account-rewritten", "store": store, "flushed": caches}
    app = platform.app
    restartable, rewritable = (
        list_logic_services(app) or list_replicated_frontends(app),
        list_networked_services(app) or app.components,
    )
    service = str(rng.choice(restartable if kind == 1 and restartable else rewritable))
    if kind == 1 and restartable:
        _restart(platform, service)
        return {"sham": "restart", "service": service}
    ports = platform.get("Service", service)["spec"]["ports"]
    platform.patch("Service", service, {"spec": {"ports": ports}})
    return {"sham": "service-rewritten", "service": service}


def _roll_out(platform: Platform, service: str, number: int) -> dict[str, Any]:
    """Roll out another healthy build, a different one for each number; restart pods of services without such builds."""
    if platform.app.deployed is not None or service in platform.app.components:
        return _restart(platform, service)
    repository = get_container(platform, service)["image"].rpartition(":")[0]
    _, *others = draw_builds(platform.app.variation.seed).healthy
    image = f"{repository}:{others[number % len(others)]}"
    patch_container(platform, service, image=image)
    return {"image": image}


def _restart(platform: Platform, service: str) -> dict[str, Any]:
    operator = platform.app.operator
    if operator is None or service not in operator.components:
        trigger_restart(platform, service)
    else:
        annotation = {"kubectl.kubernetes.io/restartedAt": rfc3339(time.time_ns())}
        platform.patch(operator.resource.kind, operator.resource.name, {"spec": {service: {"annotations": annotation}}})
    return {}


_ROLLOUT_RANGE, _RESTART_RANGE = (2, 5), (1, 3)
"""Range of the number of services, excluding its end."""


def age_application(platform: Platform, rng: np.random.Generator) -> bool:
    """Roll out and restart some services, which leaves old ReplicaSets, events and restart counts.

    Return whether anything was changed; applications deployed by others are left unchanged.
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
