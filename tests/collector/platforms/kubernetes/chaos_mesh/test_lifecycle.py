"""Experiments are waited for, removed in good order, and by force where their finalizers hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import (
    FAILED_POD,
    KILLED_POD,
    ChaosExperiment,
    build_manifest,
    disturbed_pods,
    find_failure,
    inject,
    remove,
    remove_all,
)
from faultset.collector.platforms.kubernetes.client import Api
from faultset.core.errors import PlatformError

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
