"""Whether an application that somebody else has deployed is there, with the objects of its operator."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.kubernetes.recovery import check_deployed, open_objects
from faultset.core.errors import PlatformError

TIDB = load_app("tidb-pingcap")
ROOT = "/apis/pingcap.com/v1alpha1/namespaces/tidb-cluster/tidbclusters"


class FakeApi:
    """An API server with a few named objects, by path."""

    def __init__(self, **names: list[str]):
        self.names = {"tidbclusters": ["basic"], "deployments": ["basic-discovery"], "namespaces": []} | names
        self.asked: list[str] = []

    def get(self, path: str, query: Any = None) -> dict[str, Any]:
        self.asked.append(path)
        plural = next(part for part in reversed(path.split("/")) if part in self.names or part == "tidb-cluster")
        items = [{"metadata": {"name": name}} for name in self.names.get(plural, [])]
        return {"items": items, "metadata": {"resourceVersion": "1"}}


def test_an_operators_stateful_sets_and_custom_resource_are_looked_for_by_their_own_names() -> None:
    api = FakeApi(statefulsets=["basic-pd", "basic-tikv", "basic-tidb"])
    objects = open_objects(api, TIDB, "tidb-cluster")  # type: ignore[arg-type]
    check_deployed(objects, TIDB)
    (cluster,) = objects.list("TidbCluster")
    assert (cluster["apiVersion"], cluster["kind"]) == ("pingcap.com/v1alpha1", "TidbCluster")
    assert api.asked[-1] == ROOT
    assert objects._path("TidbCluster", "basic") == f"{ROOT}/basic"
    assert objects._path("StatefulSet", "pd") == "/apis/apps/v1/namespaces/tidb-cluster/statefulsets/basic-pd"


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ({"statefulsets": ["basic-pd", "basic-tidb"]}, "StatefulSet basic-tikv"),
        ({"statefulsets": ["basic-pd", "basic-tikv", "basic-tidb"], "tidbclusters": []}, "TidbCluster basic"),
    ],
)
def test_what_is_not_deployed_is_named_with_its_kind(names: dict[str, list[str]], missing: str) -> None:
    objects = open_objects(FakeApi(**names), TIDB, "tidb-cluster")  # type: ignore[arg-type]
    with pytest.raises(PlatformError, match=f"namespace tidb-cluster has no {missing}, which the app file of"):
        check_deployed(objects, TIDB)
