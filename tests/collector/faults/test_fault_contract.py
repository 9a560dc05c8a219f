"""What every registered fault promises, on the platform in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from faultset.collector.apps import AppSpec, app_names, load_app
from faultset.collector.faults.registry import FaultSpec, fault, faults
from faultset.collector.plans.requests import unavailable_reason
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.testing import check_fault

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
CASES = [
    pytest.param(spec, target, id=f"{name}-{target}")
    for name, spec in faults().items()
    for target in dict.fromkeys((spec.targets(HOTEL)[0], spec.targets(HOTEL)[-1]))
]


def platform(folder: Path) -> FakePlatform:
    made = FakePlatform(HOTEL, Journal(folder / "journal.jsonl"))
    made.deploy()
    return made


def spec_of(subject: FakePlatform) -> dict:
    kept = ("Deployment", "Service", "PersistentVolumeClaim", "ConfigMap", "Secret")
    return {
        key: {k: v for k, v in o.items() if k in ("spec", "data")}
        for key, o in subject.objects.items()
        if key[0] in kept
    }


def test_every_applicable_fault_of_the_papers_table_is_there() -> None:
    assert {spec.paper_number for spec in faults().values()} - {None} == HOTEL_FAULTS_OF_THE_PAPER


@pytest.mark.parametrize("spec", faults().values(), ids=faults())
def test_a_fault_is_labelled_and_described(spec: FaultSpec) -> None:
    assert spec.system_level in LEVELS
    assert spec.fault_type in TYPES
    assert spec.summary.endswith(".")
    assert spec.targets(HOTEL)


@pytest.mark.parametrize(("spec", "target"), CASES)
def test_undo_brings_every_object_back(spec: FaultSpec, target: str, tmp_path: Path) -> None:
    subject = platform(tmp_path)
    before = spec_of(subject)
    parameters = spec.inject(subject, target, np.random.default_rng(5))
    json.dumps(parameters)
    assert subject.calls != [("deploy",)]
    subject.undo()
    assert spec_of(subject) == before
    assert subject.impairments == {}
    assert subject.journal.open_undo_operations() == []


@pytest.mark.parametrize(("spec", "target"), CASES)
def test_the_same_seed_gives_the_same_parameters(spec: FaultSpec, target: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = spec.inject(platform(tmp_path / "a"), target, np.random.default_rng(5))
    two = spec.inject(platform(tmp_path / "b"), target, np.random.default_rng(5))
    assert one == two


@pytest.mark.parametrize(("spec", "target"), CASES)
def test_nothing_is_confirmed_on_a_healthy_target(spec: FaultSpec, target: str, tmp_path: Path) -> None:
    faulty, healthy = tmp_path / "a", tmp_path / "b"
    faulty.mkdir()
    healthy.mkdir()
    parameters = spec.inject(platform(faulty), target, np.random.default_rng(5))
    if spec.name != "pod-kill":  # its parameter is the pod that is to vanish, and pod names differ
        subject = platform(healthy)
        parameters = {
            **parameters,
            **(
                {"pod": subject.list("Pod", {subject.app.label_key: target})[0]["metadata"]["name"]}
                if "pod" in parameters
                else {}
            ),
        }
        before = spec.observe(subject, target) if spec.observe else None
        assert spec.check(subject, target, parameters, before) is None


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


def was_killed_again(platform: FakePlatform, target: str, parameters) -> None:
    status = platform.objects["Pod", parameters["pod"]]["status"]["containerStatuses"][0]
    status["restartCount"] += 1
    status["lastState"] = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-02"}}


def was_throttled_again(platform: FakePlatform, target: str, parameters) -> None:
    row = next(row for row in platform.rows["metrics"] if row["pod"] == parameters["pod"])
    platform.rows["metrics"].append({**row, "time": row["time"] + 1, "value": row["value"] + 6})


EFFECTS = {"container-kill": was_killed_again, "cpu-throttle": was_throttled_again}
EFFECTS |= dict.fromkeys(("target-port", "scale-to-zero", "pod-kill", "wrong-selector"), lambda *arguments: None)
FITTING = [
    pytest.param(spec, app, id=f"{spec.name}-{app.name}")
    for app in (load_app(name) for name in app_names())
    for spec in faults().values()
    if not unavailable_reason(spec, app)
]


@pytest.mark.parametrize(("spec", "app"), FITTING)
def test_every_fault_passes_the_shipped_check_in_every_application_it_fits(spec: FaultSpec, app: AppSpec) -> None:
    check_fault(spec, app, effect=EFFECTS.get(spec.name))


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
