"""Every disturbance becomes an experiment that the schemas of Chaos Mesh permit, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema
import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import FaultSpec, faults
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.impairments import (
    Abort,
    Bandwidth,
    Delay,
    Hold,
    Impairment,
    Loss,
    Partition,
    Reset,
    draw_course,
)
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import (
    FAILED_POD,
    KILLED_POD,
    ChaosExperiment,
    build_experiment,
    build_manifest,
    kill_container,
)
from faultset.core.errors import UsageError

Validated = Callable[[dict[str, Any]], dict[str, Any]]
HTTP = {"port": 8083, "mode": "all"}
WANTED: list[tuple[Impairment, str, dict[str, Any]]] = [
    (Loss(probability=0.08), "NetworkChaos", {"action": "loss", "loss": {"loss": "8", "correlation": "0"}}),
    (
        Delay(latency_s=0.0615, jitter_s=0.006),
        "NetworkChaos",
        {"action": "delay", "delay": {"latency": "61.5ms", "jitter": "6ms", "correlation": "0"}, "direction": "to"},
    ),
    (Partition(), "NetworkChaos", {"action": "partition", "direction": "both"}),
    (
        Bandwidth(bytes_per_s=2345.0),
        "NetworkChaos",
        {"action": "bandwidth", "bandwidth": {"rate": "2345bps", "limit": 4 << 20, "buffer": 3200}},
    ),
    (Abort(share=1), "HTTPChaos", {"target": "Response", "replace": {"code": 503}, **HTTP}),
    (Reset(share=1, path="/Nearby"), "HTTPChaos", {"target": "Request", "abort": True, "path": "/Nearby", **HTTP}),
    (Hold(share=1, latency_s=0.25), "HTTPChaos", {"target": "Request", "delay": "250ms", **HTTP}),
]
"""Impairment, and the kind of its experiment with some of its specification."""
IMPAIRING = {"loss", "delay", "partition", "bandwidth", "abort", "reset", "hold"}


def _manifest(experiment: ChaosExperiment, duration_s: float | None = 420.0) -> dict[str, Any]:
    return build_manifest(
        experiment, name="e", namespace="hotel-1-control", pod="geo-1", pod_namespace="hotel-1", duration_s=duration_s
    )


@pytest.mark.parametrize(("impairment", "kind", "spec"), WANTED, ids=lambda one: type(one).__name__.lower())
def test_an_impairment_becomes_an_experiment_on_its_pod_alone(
    impairment: Impairment,
    kind: str,
    spec: dict[str, Any],
    geo: dict[str, Any],
    validated: Validated,
) -> None:
    made = validated(_manifest(build_experiment(impairment, geo)))
    assert made["kind"] == kind
    assert {**made["spec"], **spec} == made["spec"]
    assert made["spec"]["selector"]["pods"] == {"hotel-1": ["geo-1"]}
    assert made["spec"]["duration"] == "420s"
    assert made["metadata"]["namespace"] == "hotel-1-control"
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "faultset"}


def test_no_impairment_is_left_out_of_the_table() -> None:
    assert {type(impairment) for impairment, _, _ in WANTED} == {*get_args(Impairment)}


def test_pods_are_killed_failed_and_lose_a_container_by_podchaos(validated: Validated) -> None:
    killed, failed = validated(_manifest(KILLED_POD, None)), validated(_manifest(FAILED_POD, 60))
    assert (killed["spec"]["action"], killed["spec"]["gracePeriod"]) == ("pod-kill", 0)
    assert "duration" not in killed["spec"]
    assert (failed["spec"]["action"], failed["spec"]["duration"]) == ("pod-failure", "60s")
    container = validated(_manifest(kill_container("main"), None))["spec"]
    assert (container["action"], container["containerNames"]) == ("container-kill", ["main"])


def _injected(spec: FaultSpec, folder: Path, course: Any = None) -> list[tuple[dict[str, Any], Impairment]]:
    """Return the impairments that a fault makes where requests cannot be told apart, with their pods."""
    app = load_app("hotel")
    found: list[tuple[dict[str, Any], Impairment]] = []
    for target in spec.targets(app):
        journal = Journal(folder / f"{spec.name}-{target}.jsonl", durable=False)
        platform = FakePlatform(app, journal)
        vars(platform)["selects_requests"] = False
        platform.deploy()
        spec.inject_with(platform, target, np.random.default_rng(7), course)
        journal.close()
        found += [(platform.get("Pod", pod), made) for pod, made in platform.impairments.items()]
    return found


@pytest.mark.parametrize("spec", [one for one in faults().values() if one.needs & IMPAIRING], ids=lambda one: one.name)
def test_every_fault_that_impairs_a_pod_can_be_made(spec: FaultSpec, tmp_path: Path, validated: Validated) -> None:
    found = _injected(spec, tmp_path)
    assert found
    for pod, impairment in found:
        validated(_manifest(build_experiment(impairment, pod)))


@pytest.mark.parametrize("spec", [one for one in faults().values() if one.schedules], ids=lambda one: one.name)
def test_a_fault_that_changes_over_time_is_refused(spec: FaultSpec, tmp_path: Path) -> None:
    course = draw_course(spec.schedules[0], 60, np.random.default_rng(1))
    for pod, impairment in _injected(spec, tmp_path, course):
        if impairment.changes:
            with pytest.raises(UsageError, match="use --schedule constant"):
                build_experiment(impairment, pod)
        else:
            assert isinstance(impairment, Abort | Reset | Hold), "only faults of requests leave a course out here"
            assert impairment.share == 1


def test_a_share_of_requests_or_one_caller_is_refused_with_what_is_possible(geo: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"only all requests to a pod .* needs 40 % of the requests of all callers"):
        build_experiment(Abort(share=0.4), geo)
    with pytest.raises(UsageError, match="needs 100 % of the requests of search"):
        build_experiment(Reset(share=1, caller="search"), geo)
    del geo["spec"]["containers"][0]["ports"]
    with pytest.raises(UsageError, match="container of pod geo-1 declares none"):
        build_experiment(Reset(share=1), geo)


def test_the_schemas_refuse_what_the_api_server_would(validated: Validated) -> None:
    made = _manifest(build_experiment(Loss(probability=0.1), {}))
    for wrong in ({"loss": {"loss": 10}}, {"action": "bogus"}, {"unknown": 1}, {"mode": "some"}):
        with pytest.raises(jsonschema.ValidationError):
            validated({**made, "spec": {**made["spec"], **wrong}})
