"""What there is of Chaos Mesh on a cluster is said, and what it cannot do, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from faultset.collector.platforms.hosts import unmet
from faultset.collector.platforms.kubernetes.chaos_mesh.installation import (
    NETEM,
    ROLE_RULES,
    SAMPLES,
    check_chaos_mesh,
    check_installation,
    unsupported_by_chaos_mesh,
)
from faultset.collector.platforms.kubernetes.client import Api
from faultset.core.errors import PlatformError

ROLE = Path(__file__).parents[5] / "docs" / "how-to" / "chaos-mesh-role.yaml"


@pytest.fixture
def api(chaos_mesh: Any, connect: Callable[..., Api]) -> Api:
    return connect(chaos_mesh)


def test_a_whole_chaos_mesh_lacks_nothing_and_is_not_touched(api: Api, chaos_mesh: Any) -> None:
    check_installation(api)
    rows = {row.check: row for row in check_chaos_mesh(api, needed=True)}
    assert all(row.ok for row in rows.values()), rows
    assert rows["Chaos Mesh"].found == "3 kinds, 1 of 1 controllers and 1 of 1 daemons ready"
    assert rows["experiments of Chaos Mesh"].found == f"accepts {', '.join(SAMPLES)}"
    assert unsupported_by_chaos_mesh(api, {}) == {}
    assert chaos_mesh.experiments == {}


def test_a_cluster_without_it_is_one_row_when_it_is_asked_for_and_none_otherwise(api: Api, chaos_mesh: Any) -> None:
    chaos_mesh.kinds = ()
    assert check_chaos_mesh(api, needed=False) == []
    [row] = check_chaos_mesh(api, needed=True)
    assert unmet([row]) == [row]
    assert "does not serve chaos-mesh.org" in row.found
    assert "omit --injector" in row.remedy
    with pytest.raises(PlatformError, match="does not work on the cluster: the API server does not serve chaos-mesh"):
        check_installation(api)


def test_a_user_who_may_not_look_is_told_so_only_when_it_is_asked_for(
    chaos_mesh: Any, connect: Callable[..., Api], refused: Any
) -> None:
    def forbidden(method: str, path: str, params: Any, body: bytes) -> Any:
        if path == "/api/v1/pods":
            raise refused(403, {"kind": "Status", "message": "pods is forbidden", "code": 403})
        return chaos_mesh(method, path, params, body)

    api = connect(forbidden)
    assert check_chaos_mesh(api, needed=False) == []
    [row] = check_chaos_mesh(api, needed=True)
    assert "pods is forbidden" in row.found
    assert row.remedy == "allow the user to list pods"


@pytest.mark.parametrize(
    ("unready", "said"),
    [("controller-manager", "0 of 1 controllers and 1 of 1 daemons"), ("chaos-daemon", "1 of 1 controllers and 0 of")],
)
def test_pods_of_it_that_are_not_ready_are_said(api: Api, chaos_mesh: Any, unready: str, said: str) -> None:
    chaos_mesh.unready = (unready,)
    [row] = check_chaos_mesh(api, needed=False)
    assert said in row.found
    assert not row.ok
    assert unmet([row]) == []


def test_a_kind_that_is_missing_is_named(api: Api, chaos_mesh: Any) -> None:
    chaos_mesh.kinds = ("PodChaos", "NetworkChaos")
    with pytest.raises(PlatformError, match="does not serve HTTPChaos"):
        check_installation(api)


def test_what_the_api_server_refuses_and_what_needs_netem_cannot_be_done(api: Api, chaos_mesh: Any) -> None:
    chaos_mesh.rejected = ("bandwidth", "pod-failure")
    own = {"delay": "this cluster cannot do delay: no netem", "kill": "no agent", "course": "no course", "hold": "none"}
    found = unsupported_by_chaos_mesh(api, own)
    assert found.keys() == {"course", *NETEM, "bandwidth", "pod-failure"}
    assert found["loss"] == "Chaos Mesh uses netem for loss, and this cluster cannot do delay: no netem"
    assert found["bandwidth"].startswith("Chaos Mesh refuses bandwidth: ")
    row = check_chaos_mesh(api, needed=True)[-1]
    assert (row.ok, row.needed) == (False, False)
    assert "refuses bandwidth: " in row.found


def test_the_documented_role_is_what_is_asked_for() -> None:
    role = yaml.safe_load(ROLE.read_text("utf-8"))
    documented = {(g, r, v) for x in role["rules"] for g in x["apiGroups"] for r in x["resources"] for v in x["verbs"]}
    assert documented == {(rule.group, r, v) for rule in ROLE_RULES for r in rule.resources for v in rule.verbs}
