"""The operator's status reaches a TidbCluster that changes at the same time, and its wishes reach the pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.apps.tidb.operator import STATUS_ATTEMPTS, Reconciler, stateful_set
from faultset.collector.runtime.cluster_api import ApiRefusal
from faultset.collector.spec.manifests import custom_resources

TIDB = load_app("tidb")


class Changing:
    """An API server whose TidbCluster is changed by somebody else before each of the first writes."""

    def __init__(self, times: int):
        (made,) = custom_resources(TIDB)
        self.found = made | {"metadata": made["metadata"] | {"resourceVersion": "1", "generation": 1}}
        self.times, self.writes = times, 0

    def get(self, resource: Any, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.found) if resource.plural == "tidbclusters" else None

    def set_status(self, resource: Any, found: dict[str, Any], status: dict[str, Any]) -> None:
        self.writes += 1
        if self.times:
            self.times -= 1
            metadata = self.found["metadata"]
            metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
            metadata["generation"] += 1
        if found["metadata"]["resourceVersion"] != self.found["metadata"]["resourceVersion"]:
            raise ApiRefusal(409, "the object has been modified; please apply your changes to the latest version")
        self.found = {**found, "status": status}


def report(api: Any) -> None:
    reconciler = Reconciler(TIDB, api, telemetry="http://t")
    cluster = reconciler.cluster()
    assert cluster is not None
    reconciler.report(cluster, None)


def test_a_status_is_written_on_the_newest_form_and_says_which_one_was_seen() -> None:
    api = Changing(times=2)
    report(api)
    assert api.writes == 3
    assert api.found["metadata"]["generation"] == 3
    assert api.found["status"]["observedGeneration"] == 1, "the form that the operator has acted on"


def test_a_resource_that_changes_all_the_time_is_left_to_the_next_look() -> None:
    api = Changing(times=99)
    with pytest.raises(ApiRefusal, match="modified"):
        report(api)
    assert api.writes == STATUS_ATTEMPTS


def test_a_resource_that_is_gone_needs_no_status() -> None:
    api = Changing(times=1)
    clusters = iter([api.found])
    api.get = lambda of, name: next(clusters, None) if of.plural == "tidbclusters" else None  # type: ignore[method-assign]
    api.times = 1
    reconciler = Reconciler(TIDB, api, telemetry="http://t")  # type: ignore[arg-type]
    cluster = reconciler.cluster()
    assert cluster is not None
    reconciler.report({**cluster, "metadata": cluster["metadata"] | {"resourceVersion": "0"}}, None)
    assert api.writes == 1


def test_variables_and_spread_of_a_component_reach_its_pods() -> None:
    (cluster,) = custom_resources(TIDB)
    spread = [{"maxSkew": 5, "topologyKey": "kubernetes.io/os", "whenUnsatisfiable": "DoNotSchedule"}]
    cluster["spec"]["tidb"] |= {"env": [{"name": "TZ", "value": "UTC"}], "topologySpreadConstraints": spread}
    pod = stateful_set(TIDB, cluster, "tidb", "http://t")["spec"]["template"]["spec"]
    assert pod["topologySpreadConstraints"] == spread
    assert pod["containers"][0]["env"][-1] == {"name": "TZ", "value": "UTC"}
    other = stateful_set(TIDB, cluster, "pd", "http://t")["spec"]["template"]["spec"]
    assert "topologySpreadConstraints" not in other
