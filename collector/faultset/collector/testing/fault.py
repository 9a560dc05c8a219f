"""The contract check for faults, on an in-memory platform."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from faultset.collector.apps import load_app
from faultset.collector.faults.deployments import list_pods
from faultset.collector.faults.registry import FaultSpec, get_fault
from faultset.collector.plans.fault_choice import unavailable_reason
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.impairments import Partition
from faultset.collector.platforms.journal import Journal, list_assigned_fields
from faultset.collector.platforms.objects import deep_copy
from faultset.collector.spec.app import AppSpec, Variation
from faultset.collector.spec.containers import APP_REPOSITORY
from faultset.collector.spec.manifests import custom_resources, flag_manifests
from faultset.core.errors import UsageError, in_one_sentence

T = TypeVar("T")
Effect = Callable[[FakePlatform, str, Mapping[str, Any]], None]
_THROTTLED_METRIC = "container_cpu_cfs_throttled_periods_total"
_CPU_METRIC = "container_cpu_usage_seconds_total"
_CPU_CORES = 0.4
_BACK_OFF_S = 30.0
"""Time after which a container that was killed once is running again."""
_SEED = 5
_OTHER_SEEDS = range(10, 26)


def no_effect(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    """Leave the in-memory platform unchanged after the injection."""


def check_fault(
    fault: str | FaultSpec,
    app: str | AppSpec = "hotel",
    *,
    effect: Effect = no_effect,
    targets: Sequence[str] | None = None,
) -> None:
    """Check a fault on all its targets in an application, on an in-memory platform.

    The label and the summary must be complete. For each target:

    - The injection changes the platform, returns parameters that JSON can store, and uses only the capabilities that
      the fault declares in `needs`. The journal undoes it.
    - The same seed gives the same parameters. If random numbers were drawn, some seeds give other parameters. A fault
      that declares an intensity draws random numbers.
    - A fault that is declared gray leaves the pods, the workload and the Service of its target unchanged.
    - `check` reports nothing on a healthy target, even if its containers were killed and throttled before. It reports
      the fault after the injection and `effect`, and nothing after the undo.

    Parameters
    ----------
    app
        Name, file or specification of an application in which the fault has targets.
    effect
        Called after the injection with the platform, target and parameters, to simulate the symptoms that `check` looks
        for, since in-memory pods run nothing. Not needed if `check` only looks at the injected change.
    targets
        Services to try; by default all targets of the fault.

    Raises
    ------
    AssertionError
        A check failed; the message says which, for which target, and where an exception was raised.
    UsageError
        The fault is unknown, or its plug-in cannot be loaded.
    """
    spec = get_fault(fault) if isinstance(fault, str) else fault
    app = load_app(app) if isinstance(app, str) else app
    # the clock of the in-memory platform does not advance between an injection and its check
    app = app.with_variation(Variation(longest_start_s=0.0), app.image)
    assert spec.summary.endswith("."), f"the docstring of fault {spec.name} must start with a sentence"
    reason = unavailable_reason(spec, app)
    assert not reason, f"fault {spec.name} {reason}; choose an application that it can be applied to"
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        deployed = _deploy(pickle.dumps(app))
        for target in spec.targets(app) if targets is None else targets:
            assert target in app.services, f"fault {spec.name} has the target {target}, which is not in {app.name}"
            with _Trial(spec, target, app, deployed, Path(folder)) as trial:
                trial.run(effect)


def try_fault(spec: FaultSpec, app: AppSpec) -> list[dict[str, Any]]:
    """Inject a fault into each of its targets on an in-memory platform; return its actions as records.

    Raise UsageError if it has no target, its code fails (the message has file and line), or its undo is incomplete.
    """
    if reason := unavailable_reason(spec, app):
        raise UsageError(f"fault {spec.name} {reason}; choose another application with --app")
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        deployed, records = _deploy(pickle.dumps(app)), []
        try:
            for target in spec.targets(app):
                with _Trial(spec, target, app, deployed, Path(folder)) as trial:
                    records.append(trial.record())
        except AssertionError as error:
            raise UsageError(str(error)) from error
    return records


class _Trial:
    """The trial of a fault on one target."""

    def __init__(self, spec: FaultSpec, target: str, app: AppSpec, deployed: bytes, folder: Path):
        self._spec, self._target, self._app, self._deployed, self._folder = spec, target, app, deployed, folder
        self._title = f"fault {spec.name} on {target}"
        self._journals: list[Journal] = []

    def __enter__(self) -> _Trial:
        return self

    def __exit__(self, *error: object) -> None:
        for journal in self._journals:
            journal.close()

    def record(self) -> dict[str, Any]:
        """Inject, check and undo; return the target, parameters, calls and evidence."""
        platform = self._create_platform()
        before, initial_objects = self._observe(platform), _copy_objects(platform)
        parameters, _ = self._inject(platform, _SEED)
        calls = [" ".join(str(word) for word in call[:3]) for call in platform.calls]
        evidence = self._check(platform, parameters, before)
        platform.undo()
        self._require_undone(platform, initial_objects)
        return {"target": self._target, "parameters": parameters, "calls": calls, "evidence": evidence or ""}

    def run(self, effect: Effect) -> None:
        faulty, twin, healthy = (self._create_platform() for _ in range(3))
        before = self._observe(faulty)
        initial_objects = _copy_objects(faulty)
        parameters, has_drawn = self._inject(faulty, _SEED)
        try:
            json.dumps(parameters)
        except TypeError as error:
            raise AssertionError(f"{self._title} returns parameters that JSON cannot store: {error}") from None
        assert faulty.calls, f"{self._title} does not change the platform"
        undeclared = sorted(_find_used_capabilities(faulty) - self._spec.needs)
        assert not undeclared, (
            f"{self._title} uses {', '.join(undeclared)} without declaring it in needs, so campaigns could not skip it "
            "on platforms without that capability"
        )
        repeated, _ = self._inject(twin, _SEED)
        assert repeated == parameters, (
            f"{self._title} has different parameters for one seed: {parameters}, then {repeated}"
        )
        assert has_drawn or not self._spec.intensity, f"{self._title} declares an intensity but draws no random number"
        if self._spec.gray:
            self._require_gray(faulty)
        if has_drawn:
            assert any(self._inject(self._create_platform(), seed)[0] != parameters for seed in _OTHER_SEEDS), (
                f"{self._title} draws random numbers, but its parameters are {parameters} for every seed; return the "
                "drawn values, so that they are in the label"
            )
        evidence = self._check(healthy, parameters, self._observe(healthy))
        assert evidence is None, f"the check of {self._title} reports the fault on a healthy platform: {evidence}"
        effect(faulty, self._target, parameters)
        evidence = self._check(faulty, parameters, before)
        assert evidence, (
            f"the check of {self._title} does not report the fault; if its symptoms need running pods, simulate them "
            "with effect="
        )
        faulty.undo()
        self._require_undone(faulty, initial_objects)
        faulty.replace_pods(self._target)
        new_before = self._call("observe", lambda: self._spec.state_from_now(faulty, self._target, before))
        evidence = self._check(faulty, parameters, new_before)
        assert evidence is None, (
            f"the check of {self._title} still reports the fault after the undo: {evidence}; if it looks at events "
            'rather than the current state, declare check_sees="events"'
        )

    def _require_gray(self, faulty: FakePlatform) -> None:
        changed = _list_changed_keys(
            _describe_service(self._create_platform(), self._target), _describe_service(faulty, self._target)
        )
        assert not changed, f"{self._title} is declared gray, but changes {', '.join(changed)}"
        cut_pods = [pod for pod, impairment in faulty.impairments.items() if isinstance(impairment, Partition)]
        assert not cut_pods, f"{self._title} is declared gray, but cuts off {', '.join(cut_pods)}"

    def _require_undone(self, platform: FakePlatform, initial_objects: Mapping[tuple[str, str], Any]) -> None:
        assert _copy_objects(platform) == initial_objects, f"the undo of {self._title} is incomplete: objects differ"
        assert not platform.impairments, f"the undo of {self._title} is incomplete: an impairment is active"

    def _create_platform(self) -> FakePlatform:
        path = self._folder / f"{self._target}-{len(self._journals)}.jsonl"
        self._journals.append(Journal(path, durable=False))
        platform = FakePlatform.from_state(self._app, self._journals[-1], self._deployed)
        # shift the samples so that they look recent
        late_ns = time.time_ns() - 10**9 - max((row["time"] for row in platform.rows["metrics"]), default=0)
        for row in platform.rows["metrics"]:
            row["time"] += late_ns
        return platform

    def _inject(self, platform: FakePlatform, seed: int) -> tuple[dict[str, Any], bool]:
        rng = np.random.default_rng(seed)
        initial = rng.bit_generator.state
        parameters = self._call("function", lambda: dict(self._spec.inject(platform, self._target, rng)))
        return parameters, rng.bit_generator.state != initial

    def _observe(self, platform: FakePlatform) -> Any:
        return self._call("observe", lambda: self._spec.state_before(platform, self._target))

    def _check(self, platform: FakePlatform, parameters: Mapping[str, Any], before: Any) -> str | None:
        return self._call("check", lambda: self._spec.check(platform, self._target, parameters, before))

    def _call(self, name: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:  # third-party code may raise anything
            raise AssertionError(f"the {name} of {self._title} fails: {in_one_sentence(error)}") from error


def _find_used_capabilities(platform: FakePlatform) -> set[str]:
    """Return the capabilities that the calls so far require of a platform."""
    needs = {call[0] for call in platform.calls} & {"exec", "kill", "secret"}
    return needs | {type(call[2]).__name__.lower() for call in platform.calls if call[0] == "impair"}


@lru_cache(maxsize=8)
def _deploy(pickled_app: bytes) -> bytes:
    """Return the state of a platform whose containers are busy and were killed and throttled before."""
    app = pickle.loads(pickled_app)
    platform = FakePlatform(app, Journal(Path(os.devnull), durable=False))
    if app.deployed is None:
        platform.deploy()
    else:
        platform.apply(_build_deployed_objects(app))
    now = time.time_ns()
    for service in app.services:
        for pod in list_pods(platform, service):
            name = pod["metadata"]["name"]
            container = pod["spec"]["containers"][0]["name"]
            sample = {"service": service, "container": container, "labels": "{}", "kind": "counter"}
            for age_s in (3, 2, 1):
                row = {**sample, "time": now - age_s * 10**9, "pod": name}
                platform.rows["metrics"].append({**row, "metric": _THROTTLED_METRIC, "value": 100.0})
                platform.rows["metrics"].append({**row, "metric": _CPU_METRIC, "value": 100 - _CPU_CORES * age_s})
    pods = [pod["metadata"]["name"] for pod in platform.list("Pod")]
    platform.simulation.end(*pods, code=137, out_of_memory=True)
    platform.simulation.advance(_BACK_OFF_S)
    return platform.state()


def _build_deployed_objects(app: AppSpec) -> list[dict[str, Any]]:
    """Return minimal objects of an application that is already deployed."""
    objects: list[dict[str, Any]] = [*flag_manifests(app), *custom_resources(app)]
    for name, service in app.services.items():
        labels = {app.label_key: name}
        container = {"name": name, "image": f"{APP_REPOSITORY}:1.0.0", "resources": {}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        if service.storage is not None:
            spec["volumeClaimTemplates"] = [{"metadata": {"name": service.storage.name}, "spec": {}}]
        metadata = {"name": name, "labels": labels}
        kind = "StatefulSet" if service.stateful else "Deployment"
        objects.append({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
        if service.port:
            ports = [{"port": service.port, "targetPort": service.port}]
            spec = {"selector": labels, "ports": ports}
            objects.append({"apiVersion": "v1", "kind": "Service", "metadata": dict(metadata), "spec": spec})
    return objects


def _describe_service(platform: FakePlatform, target: str) -> dict[str, Any]:
    """Return a service's workload, Service and pods, without resource limits."""
    state = {
        f"{kind} {name}": deep_copy(item["spec"])
        for (kind, name), item in platform.objects.items()
        if kind in ("Deployment", "StatefulSet", "Service") and name == target
    }
    for pod in list_pods(platform, target):
        spec = deep_copy(pod["spec"])
        for container in spec["containers"]:
            container.pop("resources", None)
        restarts = [status.get("restartCount") for status in pod["status"]["containerStatuses"]]
        state[f"pod {pod['metadata']['name']}"] = (pod["metadata"]["creationTimestamp"], restarts, spec)
    return state


def _list_changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _copy_objects(platform: FakePlatform) -> dict[tuple[str, str], dict[str, Any]]:
    kinds = {"Deployment", "StatefulSet", "Service", "PersistentVolumeClaim", "ConfigMap", "Secret"}
    if platform.app.operator is not None:
        kinds.add(platform.app.operator.resource.kind)
    content: dict[tuple[str, str], dict[str, Any]] = {}
    for key, item in platform.objects.items():
        if key[0] in kinds:
            content[key] = {field: deep_copy(value) for field, value in item.items() if field in ("spec", "data")}
            for field in list_assigned_fields(item):
                del content[key]["spec"][field]
    return content
