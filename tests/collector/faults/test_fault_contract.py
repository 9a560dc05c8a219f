"""What every registered fault promises, on the platform in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from faultset.collector.apps import AppSpec, app_names, load_app
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import FaultSpec, fault, faults
from faultset.collector.plans.fault_selection import unavailable_reason
from faultset.collector.platforms.fake import FakePlatform
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
HOTEL_FAULTS_OF_THE_PAPER = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15}
HOTEL = load_app("hotel")


def test_every_applicable_fault_of_the_papers_table_is_there() -> None:
    assert {spec.paper_number for spec in faults().values()} - {None} == HOTEL_FAULTS_OF_THE_PAPER


@pytest.mark.parametrize("spec", faults().values(), ids=faults())
def test_a_fault_is_labelled_and_described(spec: FaultSpec) -> None:
    assert spec.system_level in LEVELS
    assert spec.fault_type in TYPES
    assert spec.summary.endswith(".")
    assert spec.targets(HOTEL)


def test_a_second_fault_of_a_name_is_refused_with_both_owners() -> None:
    with pytest.raises(ValueError, match=r"target_port, line \d+ and in .*test_fault_contract"):

        @fault(
            "target-port",
            system_level="Virtualization",
            fault_type="Misconfiguration",
            targets=lambda app: (),
            check=lambda platform, target, parameters, before: None,
        )
        def another(platform, target, rng):
            """Never."""
            return {}


def status_of(platform: FakePlatform, service: str) -> dict[str, Any]:
    """The state of the container of a service's newest pod."""
    name = pods_of(platform, service)[-1]["metadata"]["name"]
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
    status["restartCount"] = status.get("restartCount", 0) + 1
    status["lastState"] = {"terminated": {"exitCode": 2, "reason": "Error"}}


def runs_the_new_image(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status = status_of(platform, target)
    status["image"], status["state"] = parameters["image"], {"running": {}}


def waits_for_a_node(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    for pod in pods_of(platform, target):
        platform.objects["Pod", pod["metadata"]["name"]]["status"]["phase"] = "Pending"


def waits_for_its_image(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    status_of(platform, target)["state"] = {"waiting": {"reason": "ErrImagePull"}}


def waits_for_its_claim(platform: FakePlatform, target: str, parameters: Mapping[str, Any]) -> None:
    platform.objects["PersistentVolumeClaim", parameters["claim"]]["status"] = {"phase": "Pending"}
    waits_for_a_node(platform, target, parameters)


EFFECTS: dict[str, Effect] = {
    "auth-missing": a_consumer_has_ended,
    "buggy-image": has_ended("Error"),
    "container-kill": is_killed_again,
    "cpu-hog": is_busy,
    "cpu-throttle": is_throttled_again,
    "memory-leak": has_ended("OOMKilled"),
    "missing-image": waits_for_its_image,
    "nonexistent-node": waits_for_a_node,
    "pod-failure": runs_the_new_image,
    "redeploy-without-pv": waits_for_its_claim,
    "revoke-auth": a_consumer_has_ended,
    "user-unregistered": a_consumer_has_ended,
}
"""What pods show once a fault has acted; the checks of the other faults look at what the injection itself changes."""
FITTING = [
    pytest.param(spec, app, id=f"{spec.name}-{app.name}")
    for app in (load_app(name) for name in app_names())
    for spec in faults().values()
    if not unavailable_reason(spec, app)
]


@pytest.mark.parametrize(("spec", "app"), FITTING)
def test_every_fault_passes_the_shipped_check_in_every_application_it_fits(spec: FaultSpec, app: AppSpec) -> None:
    check_fault(spec, app, effect=EFFECTS.get(spec.name, no_effect))


def test_services_without_a_port_are_no_targets_of_faults_of_services() -> None:
    shop = load_app("astronomy-shop")
    assert {name for name in ("target-port", "wrong-selector") if "accounting" in faults()[name].targets(shop)} == set()
    assert "accounting" in faults()["scale-to-zero"].targets(shop)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"system_level": "App"}, 'system_level "App"; permitted are Hardware, Operating System'),
        ({"fault_type": "Bug"}, 'fault_type "Bug"; permitted are Misconfiguration'),
        ({"category": "odd"}, 'category "odd"; permitted are functional, symptomatic'),
        ({"check": lambda platform, target, parameters: None}, "must take the arguments"),
    ],
)
def test_a_definition_with_a_wrong_value_is_refused_with_one_sentence(changes: dict, sentence: str) -> None:
    given = {"system_level": "Virtualization", "fault_type": "Misconfiguration", "targets": lambda app: ()}
    given |= {"check": lambda platform, target, parameters, before: None}
    with pytest.raises(ValueError, match=sentence):
        fault("never", **{**given, **changes})


def break_(spec: FaultSpec, **changes: Any) -> FaultSpec:
    return replace(spec, targets=lambda app: ("geo",), **changes)


def forgetful(platform, target, rng):
    """Draw a port and say nothing of it."""
    platform.patch(
        "Service", target, {"spec": {"ports": [{"port": 8083, "targetPort": int(rng.integers(9000, 9999))}]}}
    )
    return {}


def moody(platform, target, rng):
    """Draw from elsewhere."""
    import random

    platform.patch("Service", target, {"spec": {"selector": {"app": "other"}}})
    return {"port": random.random()}


def killing(platform, target, rng):
    """Kill without having declared it."""
    platform.kill(pods_of(platform, target)[0]["metadata"]["name"])
    return {}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"inject": forgetful}, "draws random numbers, but its parameters are {} for every seed"),
        ({"inject": moody}, "has other parameters for the same seed"),
        ({"inject": killing}, "uses kill without declaring it in needs"),
        ({"inject": lambda platform, target, rng: {}}, "does nothing to the platform"),
        (
            {"inject": lambda platform, target, rng: 1 / 0},
            r"fails: ZeroDivisionError: .*_contract.py, line \d+",
        ),
        ({"check": lambda *given: None}, "says nothing although the fault shows"),
        ({"check": lambda *given: "always"}, "sees the fault where there is none: always"),
        ({"check": lambda *given: {}["pod"]}, r"the check of .* fails: KeyError: 'pod' \(.*test_fault_contract.py"),
        ({"observe": lambda *given: {}["pod"]}, r"the observe of .* fails: KeyError: 'pod'"),
    ],
)
def test_a_fault_that_breaks_a_promise_is_told(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_fault(break_(faults()["target-port"], **changes))
