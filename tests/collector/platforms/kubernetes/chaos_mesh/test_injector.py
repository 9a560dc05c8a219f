"""What Chaos Mesh does to a pod is replaced, renewed, lifted and shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faultset.collector.platforms.impairments import Bandwidth, Loss, Partition
from faultset.collector.platforms.kubernetes.chaos_mesh import platform
from faultset.collector.platforms.kubernetes.chaos_mesh.platform import ChaosMeshImpairer
from faultset.collector.platforms.kubernetes.client import Api
from faultset.core.errors import PlatformError


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
    monkeypatch.setattr(platform, "RENEWAL_AGE_S", -1.0)
    impairer.renew()
    first, second = chaos_mesh.made
    assert first["spec"] == second["spec"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert actions(chaos_mesh) == ["partition"]
    assert platform.RENEWAL_AGE_S < platform.LEASE_S


def test_a_failed_pod_has_a_long_lease_without_a_successor(
    impairer: ChaosMeshImpairer, chaos_mesh: Any, geo: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "RENEWAL_AGE_S", -1.0)
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
