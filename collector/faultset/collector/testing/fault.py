"""The check of a fault: what every fault promises, tried on a platform in memory."""

from __future__ import annotations

import copy
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from faultset.collector.apps import load_app
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import FaultSpec, get_fault
from faultset.collector.plans.requests import unavailable_reason
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.spec.app import AppSpec

Effect = Callable[[FakePlatform, str, Mapping[str, Any]], None]
_THROTTLED = "container_cpu_cfs_throttled_periods_total"


def check_fault(fault: str | FaultSpec, app: str | AppSpec = "hotel", *, effect: Effect | None = None) -> None:
    """Try a fault on every target that it has in an application, on a platform in memory.

    Its label and summary must be complete. For each target the injection must act, return parameters that JSON can
    hold and that depend on the seed alone, and be undone by the journal. The check must say nothing on a target
    without the fault, even when its containers were killed and throttled before.

    Parameters
    ----------
    app
        Name, file or specification of an application in which the fault has targets.
    effect
        Called with the platform, the target and the parameters after the injection; makes the platform show what a
        real one would, so that `check` must find it. Without it, what `check` says after the injection is not
        looked at, because pods in memory run nothing.

    Raises
    ------
    AssertionError
        The fault breaks a promise; the sentence says which, and on which target.
    UsageError
        There is no such fault, or its plug-in cannot be loaded.
    """
    spec = get_fault(fault) if isinstance(fault, str) else fault
    app = load_app(app) if isinstance(app, str) else app
    assert spec.summary.endswith("."), f"the docstring of fault {spec.name} must begin with a sentence"
    reason = unavailable_reason(spec, app)
    assert not reason, f"fault {spec.name} {reason}; name an application that it can be applied to"
    for target in spec.targets(app):
        assert target in app.services, f"fault {spec.name} has the target {target}, which {app.name} has not"
        _check_target(spec, app, target, effect)


def _check_target(spec: FaultSpec, app: AppSpec, target: str, effect: Effect | None) -> None:
    what = f"fault {spec.name} on {target}"
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        journals = [Journal(Path(folder) / f"{number}.jsonl") for number in range(3)]
        try:
            faulty, twin, healthy = (_deployed(app, journal) for journal in journals)
            before = spec.observe(faulty, target) if spec.observe else None
            untouched, calls = _objects(faulty), len(faulty.calls)
            parameters = dict(spec.inject(faulty, target, np.random.default_rng(5)))
            try:
                json.dumps(parameters)
            except TypeError as error:
                raise AssertionError(f"{what} returns parameters that JSON cannot hold: {error}") from None
            assert len(faulty.calls) > calls, f"{what} does nothing to the platform"
            again = dict(spec.inject(twin, target, np.random.default_rng(5)))
            assert again == parameters, f"{what} has other parameters for the same seed: {parameters}, then {again}"
            seen = spec.check(healthy, target, parameters, spec.observe(healthy, target) if spec.observe else None)
            assert seen is None, f"the check of {what} sees the fault where there is none: {seen}"
            if effect is not None:
                effect(faulty, target, parameters)
                seen = spec.check(faulty, target, parameters, before)
                assert seen, f"the check of {what} says nothing although the fault shows"
            faulty.undo()
            assert _objects(faulty) == untouched, f"{what} is not undone: objects differ from those before"
            assert not faulty.impairments, f"{what} is not undone: an impairment is left"
        finally:
            for journal in journals:
                journal.close()


def _deployed(app: AppSpec, journal: Journal) -> FakePlatform:
    """Return a platform with the application, whose containers were all killed and throttled some time ago."""
    platform = FakePlatform(app, journal)
    if app.deployed is None:
        platform.deploy()
    else:
        platform.apply(_foreign_objects(app))
    now = time.time_ns()
    for service in app.services:
        for pod in pods_of(platform, service):
            name = pod["metadata"]["name"]
            status = platform.objects["Pod", name]["status"]["containerStatuses"][0]
            status["restartCount"] = 2
            status["lastState"] = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01"}}
            sample = {"service": service, "container": status["name"], "labels": "{}", "kind": "counter"}
            platform.rows["metrics"].append(
                {**sample, "time": now - 10**9, "pod": name, "metric": _THROTTLED, "value": 100.0}
            )
    return platform


def _foreign_objects(app: AppSpec) -> list[dict[str, Any]]:
    """Return the Deployments and Services of an application that somebody else deploys."""
    made: list[dict[str, Any]] = []
    for name, service in app.services.items():
        labels = {app.label_key: name}
        container = {"name": name, "image": f"registry.example/{name}:1.0.0", "resources": {}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": name, "labels": labels}
        made.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        if service.port:
            ports = [{"port": service.port, "targetPort": service.port}]
            spec = {"selector": labels, "ports": ports}
            made.append({"apiVersion": "v1", "kind": "Service", "metadata": dict(metadata), "spec": spec})
    return made


def _objects(platform: FakePlatform) -> dict[tuple[str, str], dict[str, Any]]:
    kinds = ("Deployment", "Service", "PersistentVolumeClaim", "ConfigMap", "Secret")
    return {
        key: {field: copy.deepcopy(value) for field, value in found.items() if field in ("spec", "data")}
        for key, found in platform.objects.items()
        if key[0] in kinds
    }
