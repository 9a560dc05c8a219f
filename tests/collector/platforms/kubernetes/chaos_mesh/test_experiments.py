"""Experiments: manifests that the schemas accept, injection, renewal and removal."""

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
from faultset.collector.platforms.kubernetes.chaos_mesh import experiments
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import (
    FAILED_POD,
    KILLED_POD,
    ChaosExperiment,
    ChaosMeshImpairer,
    build_experiment,
    build_manifest,
    disturbed_pods,
    find_failure,
    inject,
    kill_container,
    remove,
    remove_all,
)
from faultset.collector.platforms.kubernetes.client import Api
from faultset.core.errors import PlatformError, UsageError

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
    impairment: Impairment, kind: str, spec: dict[str, Any], geo: dict[str, Any], validated: Validated
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
    """Return a fault's impairments, with their pods, on a platform that cannot select requests."""
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


NO_NETEM = "Error: Specified qdisc kind is unknown."


@pytest.fixture
def api(chaos_mesh: Any, connect: Callable[..., Api]) -> Api:
    return connect(chaos_mesh)


def experiment(name: str = "e", what: ChaosExperiment = FAILED_POD) -> dict[str, Any]:
    return build_manifest(
        what, name=name, namespace="hotel-1-control", pod="geo-1", pod_namespace="hotel-1", duration_s=60.0
    )


def test_an_experiment_is_there_once_it_acts(api: Api, chaos_mesh: Any) -> None:
    found = inject(api, experiment())
    assert disturbed_pods(found) == ["geo-1"]
    remove(api, [found])
    remove(api, [found])
    assert chaos_mesh.experiments == {}
    assert chaos_mesh.removed == ["podchaos"]


def test_one_that_never_settles_is_one_sentence_with_the_daemon_s_words_and_leaves_nothing(
    api: Api, chaos_mesh: Any
) -> None:
    chaos_mesh.failing, chaos_mesh.hanging = NO_NETEM, True
    with pytest.raises(PlatformError) as caught:
        inject(api, experiment())
    assert str(caught.value) == (f"Chaos Mesh did not inject PodChaos pod-failure into geo-1 within 0.1 s: {NO_NETEM}")
    assert caught.value.exit_code == 4
    assert chaos_mesh.experiments == {}
    assert chaos_mesh.removed == [
        "finalizers of podchaos",
        "podnetworkchaos/hotel-1/geo-1",
        "podhttpchaos/hotel-1/geo-1",
    ]
    assert "geo-1" in chaos_mesh.pods, "a pod that nothing was done to stays"


def test_a_pod_whose_disturbance_does_not_end_is_replaced(
    api: Api, chaos_mesh: Any, caplog: pytest.LogCaptureFixture
) -> None:
    found = inject(api, experiment())
    chaos_mesh.hanging = True
    remove(api, [found])
    assert chaos_mesh.experiments == {}
    assert chaos_mesh.removed[-1] == "pods/geo-1"
    assert "removing its finalizers and replacing the pods geo-1" in caplog.text


def test_all_of_ours_in_a_namespace_are_removed_and_none_is_no_error(api: Api, chaos_mesh: Any) -> None:
    inject(api, experiment("one"))
    inject(api, experiment("two", KILLED_POD))
    assert remove_all(api, "hotel-1-control") == 2
    assert remove_all(api, "hotel-1-control") == 0
    chaos_mesh.kinds = ()
    assert remove_all(api, "hotel-1-control") == 0


def test_a_chaos_mesh_that_says_nothing_is_told_so() -> None:
    assert find_failure({"status": {"conditions": [{"type": "Selected", "status": "False"}]}}) == ""
    said = {"conditions": [{"type": "Selected", "status": "False", "reason": "no pod is selected"}]}
    assert find_failure({"status": said}) == "Selected: no pod is selected"


def test_the_newest_failure_counts() -> None:
    events = [
        {"type": "Failed", "message": "second", "timestamp": "2026-01-01T00:00:02Z"},
        {"type": "Failed", "message": "first", "timestamp": "2026-01-01T00:00:01Z"},
        {"type": "Succeeded", "timestamp": "2026-01-01T00:00:03Z"},
    ]
    record = {"id": "hotel-1/geo-1", "phase": "Injected/Wait", "events": events}
    found = {"status": {"experiment": {"containerRecords": [record]}}}
    assert find_failure(found) == "second"
    assert disturbed_pods(found) == ["geo-1"]


@pytest.fixture
def impairer(chaos_mesh: Any, connect: Callable[..., Api]) -> ChaosMeshImpairer:
    return ChaosMeshImpairer(connect(chaos_mesh), "hotel-1-control", "hotel-1")


def actions(chaos_mesh: Any) -> list[str]:
    return [one["spec"].get("action") for one in chaos_mesh.experiments.values()]


def test_a_pod_is_impaired_until_lifted_and_the_evidence_says_so(
    impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any]
) -> None:
    assert impairer.evidence(geo) is None
    impairer.impair(geo, Partition())
    assert impairer.evidence(geo) == "NetworkChaos partition is injected into geo-1"
    impairer.lift("geo-1")
    impairer.lift("geo-1")
    assert impairer.evidence(geo) is None
    assert chaos_mesh.experiments == {}


def test_a_second_impairment_takes_the_place_of_the_first(
    impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any]
) -> None:
    impairer.impair(geo, Partition())
    impairer.impair(geo, Bandwidth(bytes_per_s=4000))
    assert actions(chaos_mesh) == ["bandwidth"]
    impairer.lift("u-1")
    assert actions(chaos_mesh) == []


def test_a_lease_is_renewed_by_a_successor_before_it_ends(
    impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    impairer.impair(geo, Partition())
    impairer.renew()
    assert len(chaos_mesh.made) == 1
    monkeypatch.setattr(experiments, "RENEWAL_AGE_S", -1.0)
    impairer.renew()
    first, second = chaos_mesh.made
    assert first["spec"] == second["spec"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert actions(chaos_mesh) == ["partition"]
    assert experiments.RENEWAL_AGE_S < experiments.LEASE_S


def test_a_failed_pod_has_a_long_lease_without_a_successor(
    impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "RENEWAL_AGE_S", -1.0)
    impairer.fail(geo)
    impairer.renew()
    [made] = chaos_mesh.made
    assert (made["spec"]["action"], made["spec"]["duration"]) == ("pod-failure", "3600s")


def test_what_was_done_to_a_pod_that_is_gone_is_removed(
    impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any]
) -> None:
    impairer.impair(geo, Partition())
    chaos_mesh.pods.clear()
    impairer.renew()
    assert chaos_mesh.experiments == {}
    assert impairer.evidence(geo) is None


def test_kills_happen_once_and_leave_nothing(impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any]) -> None:
    impairer.kill_pod(geo)
    impairer.kill(geo, "hotel-reserv-geo")
    assert [one["spec"]["action"] for one in chaos_mesh.made] == ["pod-kill", "container-kill"]
    assert chaos_mesh.experiments == {}


def test_an_impairment_that_fails_leaves_the_one_before(
    impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any]
) -> None:
    impairer.impair(geo, Partition())
    chaos_mesh.failing = "Error: Specified qdisc kind is unknown."
    with pytest.raises(PlatformError, match="did not inject NetworkChaos loss into geo-1"):
        impairer.impair(geo, Loss(probability=0.1))
    assert actions(chaos_mesh) == ["partition"]


def test_closing_removes_everything(impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any]) -> None:
    impairer.start()
    impairer.impair(geo, Partition())
    impairer.close()
    impairer.close()
    assert chaos_mesh.experiments == {}
