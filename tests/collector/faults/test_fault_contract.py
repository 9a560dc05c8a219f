"""Every registered fault keeps what it promises, on the platform in memory."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faultset.collector.apps import AppSpec, app_names, load_app
from faultset.collector.faults.deployments import list_pods
from faultset.collector.faults.registry import FaultSpec, faults
from faultset.collector.mitigation.judge import HealthyState, RepairJudge
from faultset.collector.plans.fault_choice import unavailable_reason
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.testing import check_fault
from faultset.collector.testing.fault import Effect, no_effect

LEVELS = {"Hardware", "Operating System", "Virtualization", "Application"}
TYPES = {
    "Misconfiguration",
    "Code Defect",
    "Authentication Issue",
    "Network/Storage Issue",
    "Operation Error",
    "Dependency Problem",
}
FAULTS_OF_THE_PAPER = set(range(1, 16)) - {10}
"""All of them but the one that is no fault."""
APPS = [load_app(name) for name in app_names()]


def test_every_fault_of_the_papers_table_is_there() -> None:
    assert {spec.paper_number for spec in faults().values()} - {None} == FAULTS_OF_THE_PAPER


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("network-partition", r"cuts off geo-\S+"),
        ("slow-build", "changes Deployment geo, pod geo-"),
        ("scale-to-zero", "changes Deployment geo, pod geo-"),
        ("container-kill", "changes pod geo-"),
    ],
)
def test_what_replaces_kills_or_cuts_off_the_target_is_not_gray(name: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=f"is declared gray, but {sentence}"):
        check_fault(replace(faults()[name], gray=True), "hotel", effect=EFFECTS.get(name, no_effect), targets=["geo"])


def test_at_least_fifteen_kinds_are_gray_and_most_of_them_are_drawn_weak_or_strong() -> None:
    assert sum(spec.gray for spec in faults().values()) >= 15
    assert sum(spec.gray and bool(spec.intensity) for spec in faults().values()) >= 12


@pytest.mark.parametrize("spec", faults().values(), ids=faults())
def test_a_fault_is_labelled_and_described(spec: FaultSpec) -> None:
    assert spec.system_level in LEVELS
    assert spec.fault_type in TYPES
    assert spec.summary.endswith(".")
    assert any(spec.targets(app) for app in APPS)


BUILT_IN = {name: spec for name, spec in faults().items() if spec.inject.__module__.startswith("faultset.collector.")}


@pytest.mark.parametrize("spec", BUILT_IN.values(), ids=BUILT_IN)
def test_a_described_share_is_computed_from_what_is_drawn(spec: FaultSpec) -> None:
    tree = ast.parse(inspect.getsource(inspect.getmodule(spec.inject)))  # type: ignore[arg-type]
    texts = [keyword.value for keyword in ast.walk(tree) if isinstance(keyword, ast.keyword)]
    texts = [one for one in texts if isinstance(one, ast.Constant | ast.JoinedStr) and "%" in ast.unparse(one)]
    for literal in (part for text in texts for part in ast.walk(text) if isinstance(part, ast.Constant)):
        assert not re.search(r"\d+ %", str(literal.value)), f"write {literal.value!r} with the constant of the draw"
    if spec.intensity:
        assert not re.search(r"\bhalf\b|\bthirds?\b|\bquarters?\b|%|at least|at most", spec.summary)


@pytest.mark.parametrize("name", ["payment-failure", "image-slow-load"])
def test_the_described_strengths_of_a_flag_are_those_drawn(name: str, tmp_path: Path) -> None:
    app, spec = load_app("astronomy"), faults()[name]
    journal = Journal(tmp_path / "journal.jsonl", durable=False)
    platform = FakePlatform(app, journal)
    platform.deploy()
    (target,) = spec.targets(app)
    drawn = {spec.inject(platform, target, np.random.default_rng(seed))["variant"] for seed in range(40)}
    journal.close()
    assert {re.sub(r"\D", "", variant) for variant in drawn} == set(re.findall(r"\d+", spec.intensity))


def status_of(platform: FakePlatform, service: str) -> dict[str, Any]:
    """The state of the container of a service's newest pod."""
    name = list_pods(platform, service)[-1]["metadata"]["name"]
    return platform.objects["Pod", name]["status"]["containerStatuses"][0]


def is_killed_again(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status = platform.objects["Pod", parameters["pod"]]["status"]["containerStatuses"][0]
    status["restartCount"] += 1
    status["lastState"] = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-02"}}


def is_throttled_again(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    rows = [row for row in platform.rows["metrics"] if row["pod"] == parameters["pod"]]
    last = next(row for row in reversed(rows) if row["metric"].endswith("throttled_periods_total"))
    platform.rows["metrics"].append({**last, "time": last["time"] + 1, "value": last["value"] + 6})


def is_busy(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    rows = [row for row in platform.rows["metrics"] if row["pod"] == parameters["pod"]]
    last = next(row for row in reversed(rows) if row["metric"].endswith("cpu_usage_seconds_total"))
    platform.rows["metrics"].append({**last, "time": last["time"] + 10**8, "value": last["value"] + 9.0})


def has_ended(reason: str) -> Effect:
    """The container of the target has ended for a reason."""

    def effect(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
        status_of(platform, target)["lastState"] = {"terminated": {"exitCode": 1, "reason": reason}}

    return effect


def a_consumer_has_ended(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status = status_of(platform, parameters["restarted"][0])
    status["restartCount"] = (
        status.get("restartCount", 0) + 2
    )  # a pod of a set comes back under its name and counts anew
    status["lastState"] = {"terminated": {"exitCode": 2, "reason": "Error"}}


def runs_the_new_image(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status = status_of(platform, target)
    status["image"], status["state"] = parameters["image"], {"running": {}}


def waits_for_a_node(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    for pod in list_pods(platform, target):
        platform.objects["Pod", pod["metadata"]["name"]]["status"]["phase"] = "Pending"


def waits_for_its_image(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status_of(platform, target)["state"] = {"waiting": {"reason": "ErrImagePull"}}


def waits_for_its_claim(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    platform.objects["PersistentVolumeClaim", parameters["claim"]]["status"] = {"phase": "Pending"}
    waits_for_a_node(platform, target, parameters)


def is_not_ready(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    for pod in list_pods(platform, target):
        platform.objects["Pod", pod["metadata"]["name"]]["status"]["conditions"] = [
            {"type": "Ready", "status": "False"}
        ]


def is_started_again(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status_of(platform, target)["restartCount"] = 1


def one_pod_runs_the_new_image(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status = platform.objects["Pod", parameters["pod"]]["status"]["containerStatuses"][0]
    status["image"], status["state"] = parameters["image"], {"running": {}}


def wants_a_key(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    """The new pod waits for a variable or a file, or ends without a variable; without a folder's file it runs."""
    pod, status = list_pods(platform, target)[-1], status_of(platform, target)
    if parameters["use"] == "variable":
        status["state"] = {"waiting": {"reason": "CreateContainerConfigError"}}
    elif parameters["use"] == "file":
        status["state"] = {"waiting": {"reason": "ContainerCreating"}}
        event = {"time": time.time_ns(), "type": "Warning", "reason": "FailedMount", "kind": "Pod", "count": 1}
        about = {"name": pod["metadata"]["name"], "service": target, "message": "MountVolume.SetUp failed"}
        platform.rows["events"].append({**event, **about})


def has_ended_since(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status = status_of(platform, target)
    status["restartCount"] += 1
    status["lastState"] = {"terminated": {"exitCode": 2, "reason": "Error"}}


def is_refused_by_the_api_server(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    assert platform.app.operator is not None
    resource = platform.app.operator.resource
    event = {"time": time.time_ns(), "type": "Warning", "reason": "FailedUpdateSTS", "kind": resource.kind}
    event |= {"name": resource.name, "service": None, "message": "StatefulSet is invalid", "count": 1}
    platform.rows["events"].append(event)


def waits_for_its_new_claim(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    for claim in platform.simulation.store.each("PersistentVolumeClaim", {platform.app.label_key: target}):
        claim["status"] = {"phase": "Pending"}
    waits_for_a_node(platform, target, parameters)


def store_says(**state: object) -> Effect:
    """The store of the target says something of its state to its administrator."""

    def effect(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
        platform.answers["faultset-store"] = json.dumps(state)

    return effect


EFFECTS: dict[str, Effect] = {
    "auth-missing": a_consumer_has_ended,
    "buggy-image": has_ended("Error"),
    "connection-pool-exhausted": runs_the_new_image,
    "consumer-stopped": store_says(consume_refused="NOPERM this user has no permissions"),
    "container-kill": is_killed_again,
    "cpu-hog": is_busy,
    "cpu-throttle": is_throttled_again,
    "failing-build": runs_the_new_image,
    "failing-readiness-probe": is_not_ready,
    "heavy-query": store_says(working=True),
    "killing-liveness-probe": is_started_again,
    "invalid-security-context": is_refused_by_the_api_server,
    "invalid-toleration": is_refused_by_the_api_server,
    "locked-store": store_says(working=True),
    "memory-leak": has_ended("OOMKilled"),
    "memory-limit": has_ended("OOMKilled"),
    "missing-image": waits_for_its_image,
    "nonexistent-node": waits_for_a_node,
    "one-bad-replica": one_pod_runs_the_new_image,
    "nonexistent-storage-class": waits_for_its_new_claim,
    "pod-failure": runs_the_new_image,
    "poison-message": store_says(unreadable=1),
    "read-only-account": store_says(write_refused="NOPERM this user has no permissions"),
    "redeploy-without-pv": waits_for_its_claim,
    "slow-build": runs_the_new_image,
    "revoke-auth": a_consumer_has_ended,
    "user-unregistered": a_consumer_has_ended,
    "wrong-config-key": wants_a_key,
    "wrong-secret": has_ended_since,
    "wrong-operator-image": waits_for_its_image,
    "volume-full": store_says(file_limit=1000, file_write="err"),
}
"""What pods show once a fault has acted; the checks of the other faults look at what the injection itself changes."""
FITTING = [
    pytest.param(spec, app, id=f"{spec.name}-{app.name}")
    for app in APPS
    for spec in faults().values()
    if not unavailable_reason(spec, app)
]


class ObservedPlatform(FakePlatform):
    """Notes which objects are asked for by name."""

    named: set[tuple[str, str]]

    def get(self, kind: str, name: str) -> Any:
        self.named.add((kind, name))
        return super().get(kind, name)


FITTING_ONCE = {
    spec.name: (spec, app) for app in reversed(APPS) for spec in faults().values() if not unavailable_reason(spec, app)
}


@pytest.mark.parametrize(("spec", "app"), FITTING_ONCE.values(), ids=FITTING_ONCE)
def test_a_missing_object_is_reported_as_not_repaired_by_name(spec: FaultSpec, app: AppSpec, tmp_path: Path) -> None:
    target = spec.targets(app)[0]
    platform = ObservedPlatform(app, Journal(tmp_path / "journal.jsonl", durable=False))
    platform.named = set()
    platform.deploy()
    healthy, before = HealthyState.of(platform), spec.state_before(platform, target)
    parameters = spec.inject_with(platform, target, np.random.default_rng(1), None)
    if spec.name not in ("cpu-hog", "cpu-throttle"):  # their effects need samples, and their checks read no object
        EFFECTS.get(spec.name, no_effect)(platform, target, parameters)
    platform.named = {key for key in healthy.desired.objects if key[1] == target}
    judge = RepairJudge(
        platform,
        spec,
        target,
        parameters,
        before=before,
        healthy=healthy,
        unhealthy_requests=lambda start_ns, end_ns: "",
    )
    judge.read(0, 1)
    needed = platform.named & healthy.desired.objects.keys()
    assert needed
    for kind, name in needed:
        complete = platform.simulation
        platform.simulation = pickle.loads(pickle.dumps(complete))
        platform.simulation.store.remove(kind, name)
        judge.begin_window()
        details = {part.part: part.detail for part in judge.read(0, 1)}
        assert f"{kind} {name} is missing" in details["presence"]
        platform.simulation = complete
    platform.journal.close()


@pytest.mark.parametrize(("spec", "app"), FITTING)
def test_every_fault_passes_the_shipped_check_in_every_application_it_fits(spec: FaultSpec, app: AppSpec) -> None:
    targets = spec.targets(app)
    check_fault(spec, app, effect=EFFECTS.get(spec.name, no_effect), targets=[*targets[:2], *targets[2:][-1:]])


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "app"), FITTING)
def test_every_fault_passes_the_shipped_check_on_every_target(spec: FaultSpec, app: AppSpec) -> None:
    check_fault(spec, app, effect=EFFECTS.get(spec.name, no_effect))
