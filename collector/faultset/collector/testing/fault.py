"""The check of a fault: what every fault promises, tried on a platform in memory."""

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
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import FaultSpec, get_fault
from faultset.collector.plans.fault_choice import unavailable_reason
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.impairments import Partition
from faultset.collector.platforms.journal import Journal, assigned_fields
from faultset.collector.platforms.objects import copied
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import APP_REPOSITORY
from faultset.collector.spec.custom_resources import custom_resources
from faultset.collector.spec.manifests import flag_manifests
from faultset.collector.spec.variation import Variation
from faultset.core.errors import UsageError, in_one_sentence

T = TypeVar("T")
Effect = Callable[[FakePlatform, str, Mapping[str, Any]], None]
_THROTTLED = "container_cpu_cfs_throttled_periods_total"
_USED = "container_cpu_usage_seconds_total"
_CORES = 0.4
_BACK_OFF_S = 30.0
"""After this time a container that was killed once runs again."""
_SEED = 5
_OTHER_SEEDS = range(10, 26)


def no_effect(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    """Leave a platform in memory as the injection has made it."""


def check_fault(
    fault: str | FaultSpec,
    app: str | AppSpec = "hotel",
    *,
    effect: Effect = no_effect,
    targets: Sequence[str] | None = None,
) -> None:
    """Try a fault on the targets that it has in an application, on a platform in memory.

    Its label and summary must be complete. For each target the injection must act, return parameters that JSON can
    hold, use no more of the platform than the fault declares in `needs`, and be undone by the journal. The
    parameters must be the same for the same seed, and differ between seeds when random numbers were drawn; one that
    declares an intensity draws. One that is declared gray leaves the pods, the workload and the Service of its
    target as they are. `check` must say nothing on a target without the fault, even when its containers were killed
    and throttled before, must see the fault after the injection and `effect`, and must say nothing again once it is
    undone.

    Parameters
    ----------
    app
        Name, file or specification of an application in which the fault has targets.
    effect
        Called with the platform, the target and the parameters after the injection. Pods in memory run nothing: it
        makes the platform show what a real one would, so that `check` can find it. Not needed where the injection
        itself is what `check` looks at.
    targets
        Services to try it on; all its targets by default.

    Raises
    ------
    AssertionError
        The fault breaks a promise; the sentence says which, on which target, and where an exception was raised.
    UsageError
        There is no such fault, or its plug-in cannot be loaded.
    """
    spec = get_fault(fault) if isinstance(fault, str) else fault
    app = load_app(app) if isinstance(app, str) else app
    # the platform in memory stands still between an injection and its check
    app = app.with_variation(Variation(longest_start_s=0.0), app.image)
    assert spec.summary.endswith("."), f"the docstring of fault {spec.name} must begin with a sentence"
    reason = unavailable_reason(spec, app)
    assert not reason, f"fault {spec.name} {reason}; name an application that it can be applied to"
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        deployed = _deployed(pickle.dumps(app))
        for target in spec.targets(app) if targets is None else targets:
            assert target in app.services, f"fault {spec.name} has the target {target}, which {app.name} has not"
            _Trial(spec, target, app, deployed, Path(folder)).run(effect)


def try_fault(spec: FaultSpec, app: AppSpec) -> list[dict[str, Any]]:
    """Inject a fault into each of its targets on a platform in memory; return what it did, as records.

    Raises
    ------
    UsageError
        The fault has no target, its code fails (the sentence has the file and line), or what it did is not undone.
    """
    if reason := unavailable_reason(spec, app):
        raise UsageError(f"fault {spec.name} {reason}; name another application with --app")
    with tempfile.TemporaryDirectory(prefix="faultset-") as folder:
        deployed = _deployed(pickle.dumps(app))
        try:
            return [_Trial(spec, target, app, deployed, Path(folder)).record() for target in spec.targets(app)]
        except AssertionError as error:
            raise UsageError(str(error)) from error


class _Trial:
    """A fault tried on one target."""

    def __init__(self, spec: FaultSpec, target: str, app: AppSpec, deployed: bytes, folder: Path):
        self._spec, self._target, self._app, self._deployed, self._folder = spec, target, app, deployed, folder
        self._what = f"fault {spec.name} on {target}"
        self._journals: list[Journal] = []

    def run(self, effect: Effect) -> None:
        try:
            self._run(effect)
        finally:
            for journal in self._journals:
                journal.close()

    def record(self) -> dict[str, Any]:
        """Inject, look, undo; return target, parameters, calls and evidence."""
        try:
            platform = self._platform()
            before, untouched = self._observed(platform), _objects(platform)
            parameters, _ = self._inject(platform, _SEED)
            calls = [" ".join(str(word) for word in call[:3]) for call in platform.calls]
            seen = self._seen(platform, parameters, before)
            platform.undo()
            self._must_be_undone(platform, untouched)
        finally:
            for journal in self._journals:
                journal.close()
        return {"target": self._target, "parameters": parameters, "calls": calls, "evidence": seen or ""}

    def _run(self, effect: Effect) -> None:
        faulty, twin, healthy = (self._platform() for _ in range(3))
        before = self._observed(faulty)
        untouched = _objects(faulty)
        parameters, has_drawn = self._inject(faulty, _SEED)
        try:
            json.dumps(parameters)
        except TypeError as error:
            raise AssertionError(f"{self._what} returns parameters that JSON cannot hold: {error}") from None
        assert faulty.calls, f"{self._what} does nothing to the platform"
        undeclared = sorted(_needs_of(faulty) - self._spec.needs)
        assert not undeclared, (
            f"{self._what} uses {', '.join(undeclared)} without declaring it in needs; campaigns on platforms that "
            "cannot do it would not leave the fault out"
        )
        again, _ = self._inject(twin, _SEED)
        assert again == parameters, f"{self._what} has other parameters for the same seed: {parameters}, then {again}"
        assert has_drawn or not self._spec.intensity, f"{self._what} declares an intensity, and draws nothing"
        if self._spec.gray:
            self._must_be_gray(faulty)
        if has_drawn:
            assert any(self._inject(self._platform(), seed)[0] != parameters for seed in _OTHER_SEEDS), (
                f"{self._what} draws random numbers, but its parameters are {parameters} for every seed; return what "
                "was drawn, so that the label has it"
            )
        seen = self._seen(healthy, parameters, self._observed(healthy))
        assert seen is None, f"the check of {self._what} sees the fault where there is none: {seen}"
        effect(faulty, self._target, parameters)
        seen = self._seen(faulty, parameters, before)
        assert seen, (
            f"the check of {self._what} says nothing although the fault shows; where pods would have to run, make the "
            "platform in memory show their state with effect="
        )
        faulty.undo()
        self._must_be_undone(faulty, untouched)
        faulty.replace_pods(self._target)
        since = self._called("observe", lambda: self._spec.state_from_now(faulty, self._target, before))
        seen = self._seen(faulty, parameters, since)
        assert seen is None, (
            f"the check of {self._what} sees the fault after it was undone: {seen}; if it sees what has happened "
            'rather than what is, declare check_sees="events"'
        )

    def _must_be_gray(self, faulty: FakePlatform) -> None:
        changed = _changed_keys(_running(self._platform(), self._target), _running(faulty, self._target))
        assert not changed, f"{self._what} is declared gray, but changes {', '.join(changed)}"
        cut = [pod for pod, one in faulty.impairments.items() if isinstance(one, Partition)]
        assert not cut, f"{self._what} is declared gray, but cuts {', '.join(cut)} off"

    def _must_be_undone(self, platform: FakePlatform, untouched: Mapping[tuple[str, str], Any]) -> None:
        assert _objects(platform) == untouched, f"{self._what} is not undone: objects differ from those before"
        assert not platform.impairments, f"{self._what} is not undone: an impairment is left"

    def _platform(self) -> FakePlatform:
        path = self._folder / f"{self._target}-{len(self._journals)}.jsonl"
        self._journals.append(Journal(path, durable=False))
        made = FakePlatform.from_state(self._app, self._journals[-1], self._deployed)
        # the samples are as old as on a platform that runs, however long ago they were made
        late_ns = time.time_ns() - 10**9 - max((row["time"] for row in made.rows["metrics"]), default=0)
        for row in made.rows["metrics"]:
            row["time"] += late_ns
        return made

    def _inject(self, platform: FakePlatform, seed: int) -> tuple[dict[str, Any], bool]:
        rng = np.random.default_rng(seed)
        begun = rng.bit_generator.state
        parameters = self._called("function", lambda: dict(self._spec.inject(platform, self._target, rng)))
        return parameters, rng.bit_generator.state != begun

    def _observed(self, platform: FakePlatform) -> Any:
        return self._called("observe", lambda: self._spec.state_before(platform, self._target))

    def _seen(self, platform: FakePlatform, parameters: Mapping[str, Any], before: Any) -> str | None:
        return self._called("check", lambda: self._spec.check(platform, self._target, parameters, before))

    def _called(self, part: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:  # whatever the fault's code does
            raise AssertionError(f"the {part} of {self._what} fails: {in_one_sentence(error)}") from error


def _needs_of(platform: FakePlatform) -> set[str]:
    """Return what the calls so far need of a platform."""
    needs = {call[0] for call in platform.calls} & {"exec", "kill", "secret"}
    return needs | {type(call[2]).__name__.lower() for call in platform.calls if call[0] == "impair"}


@lru_cache(maxsize=8)
def _deployed(pickled_app: bytes) -> bytes:
    """Return a platform with the application; its containers are busy, and were killed and throttled before."""
    app = pickle.loads(pickled_app)
    platform = FakePlatform(app, Journal(Path(os.devnull), durable=False))
    if app.deployed is None:
        platform.deploy()
    else:
        platform.apply(_foreign_objects(app))
    now = time.time_ns()
    for service in app.services:
        for pod in pods_of(platform, service):
            name = pod["metadata"]["name"]
            container = pod["spec"]["containers"][0]["name"]
            sample = {"service": service, "container": container, "labels": "{}", "kind": "counter"}
            for age_s in (3, 2, 1):
                counted = {**sample, "time": now - age_s * 10**9, "pod": name}
                platform.rows["metrics"].append({**counted, "metric": _THROTTLED, "value": 100.0})
                platform.rows["metrics"].append({**counted, "metric": _USED, "value": 100 - _CORES * age_s})
    pods = [pod["metadata"]["name"] for pod in platform.list("Pod")]
    platform.simulation.end(*pods, code=137, out_of_memory=True)
    platform.simulation.advance(_BACK_OFF_S)
    return platform.state()


def _foreign_objects(app: AppSpec) -> list[dict[str, Any]]:
    """Return what stands for an application that somebody else deploys: workloads, Services, flags, custom resource."""
    made: list[dict[str, Any]] = [*flag_manifests(app), *custom_resources(app)]
    for name, service in app.services.items():
        labels = {app.label_key: name}
        container = {"name": name, "image": f"{APP_REPOSITORY}:1.0.0", "resources": {}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        if service.storage is not None:
            spec["volumeClaimTemplates"] = [{"metadata": {"name": service.storage.name}, "spec": {}}]
        metadata = {"name": name, "labels": labels}
        kind = "StatefulSet" if service.stateful else "Deployment"
        made.append({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
        if service.port:
            ports = [{"port": service.port, "targetPort": service.port}]
            spec = {"selector": labels, "ports": ports}
            made.append({"apiVersion": "v1", "kind": "Service", "metadata": dict(metadata), "spec": spec})
    return made


def _running(platform: FakePlatform, target: str) -> dict[str, Any]:
    """Return what runs of a service and how it is reached, but for the resources that its pods may use."""
    found = {
        f"{kind} {name}": copied(one["spec"])
        for (kind, name), one in platform.objects.items()
        if kind in ("Deployment", "StatefulSet", "Service") and name == target
    }
    for pod in pods_of(platform, target):
        spec = copied(pod["spec"])
        for container in spec["containers"]:
            container.pop("resources", None)
        restarts = [one.get("restartCount") for one in pod["status"]["containerStatuses"]]
        found[f"pod {pod['metadata']['name']}"] = (pod["metadata"]["creationTimestamp"], restarts, spec)
    return found


def _changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _objects(platform: FakePlatform) -> dict[tuple[str, str], dict[str, Any]]:
    kinds = {"Deployment", "StatefulSet", "Service", "PersistentVolumeClaim", "ConfigMap", "Secret"}
    if platform.app.operator is not None:
        kinds.add(platform.app.operator.resource.kind)
    content: dict[tuple[str, str], dict[str, Any]] = {}
    for key, found in platform.objects.items():
        if key[0] in kinds:
            content[key] = {field: copied(value) for field, value in found.items() if field in ("spec", "data")}
            for field in assigned_fields(found):
                del content[key]["spec"][field]
    return content
