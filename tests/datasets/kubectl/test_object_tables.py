"""Objects and rows in kubectl's columns."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.datasets.kubectl.object_tables import object_cells, object_tables, pod_status
from faultset.datasets.kubectl.printing import format_columns

DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "geo", "namespace": "hotel", "labels": {"b": "2", "a": "1"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "geo"}},
        "template": {
            "spec": {"containers": [{"name": "geo", "image": "app:1"}, {"name": "proxy", "image": "proxy:2"}]}
        },
    },
    "status": {"readyReplicas": 1, "updatedReplicas": 2},
}


def test_columns_are_three_blanks_apart_and_six_wide_at_least() -> None:
    assert format_columns(["N", "READY"], [["a", "1/1"]]) == "N     READY\na     1/1"
    assert format_columns([], [["abc", "d"], ["e", None]]) == "abc   d\ne     <none>"
    assert format_columns([], []) == ""


def test_a_cell_ends_with_its_first_line() -> None:
    assert format_columns(["MESSAGE"], [["one\ntwo"], ["x" * 500]]) == f"MESSAGE\none...\n{'x' * 500}"


def test_a_workload_has_the_columns_of_wide() -> None:
    text = object_tables(
        {"Deployment": [object_cells(DEPLOYMENT) | {"AGE": "5s"}]}, wide=True, namespaces=True, labels=True
    )
    head, row = (line.split() for line in text.split("\n"))
    assert dict(zip(head, row, strict=True)) == {
        "NAMESPACE": "hotel", "NAME": "geo", "READY": "1/2", "UP-TO-DATE": "2", "AVAILABLE": "0", "AGE": "5s",
        "CONTAINERS": "geo,proxy", "IMAGES": "app:1,proxy:2", "SELECTOR": "app=geo", "LABELS": "a=1,b=2",
    }  # fmt: skip


def test_names_have_their_kind_when_several_are_shown() -> None:
    rows = {"Deployment": [{"NAME": "geo"}], "Pod": [{"NAME": "geo-1", "AGE": "5s"}], "Service": []}
    deployments, pods = object_tables(rows, header=False).split("\n\n")
    assert deployments.split() == ["deployment.apps/geo", *["<none>"] * 4]
    assert pods.split() == ["pod/geo-1", *["<none>"] * 3, "5s"]
    assert object_tables({"Pod": rows["Pod"]}, header=False).startswith("geo-1 ")
    assert object_tables({"Pod": rows["Pod"]}, header=False, show_kind=True).startswith("pod/geo-1 ")


@pytest.mark.parametrize(
    ("states", "metadata", "word"),
    [
        ([{"running": {}}], {}, "Running"),
        ([{"running": {}}, {"waiting": {"reason": "ImagePullBackOff"}}], {}, "ImagePullBackOff"),
        ([{"terminated": {"exitCode": 3}}], {}, "ExitCode:3"),
        ([{"terminated": {"exitCode": 1, "reason": "Error"}}], {}, "Error"),
        ([{"waiting": {}}], {}, "Running"),
        ([{"waiting": {"reason": "CrashLoopBackOff"}}], {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Terminating"),
    ],
)
def test_the_status_of_a_pod_is_that_of_its_first_container_in_trouble(
    states: list[dict[str, Any]], metadata: dict[str, Any], word: str
) -> None:
    statuses = [{"state": state} for state in states]
    assert pod_status({"metadata": metadata, "status": {"phase": "Running", "containerStatuses": statuses}}) == word


def test_endpoints_name_three_addresses() -> None:
    found = {
        "kind": "Endpoints",
        "metadata": {"name": "geo"},
        "subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(5)], "ports": [{"port": 80}]}],
    }
    assert object_cells(found)["ENDPOINTS"] == "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ([{"running": {}}, {"waiting": {"reason": "PodInitializing"}}], "Init:0/2"),
        ([{"terminated": {"exitCode": 0, "reason": "Completed"}}, {"running": {}}], "Init:1/2"),
        ([{"terminated": {"reason": "Completed"}}, {"terminated": {"exitCode": 1, "reason": "Error"}}], "Init:Error"),
        ([{"terminated": {"exitCode": 9}}], "Init:ExitCode:9"),
        ([{"waiting": {"reason": "CrashLoopBackOff"}}], "Init:CrashLoopBackOff"),
        ([{"terminated": {"exitCode": 0}}], "PodInitializing"),
    ],
)
def test_a_pod_whose_init_containers_have_not_ended_says_so(states: list[dict[str, Any]], word: str) -> None:
    first = [{"state": state, "restartCount": 3} for state in states]
    status = {
        "initContainerStatuses": first,
        "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}, "restartCount": 0}],
    }
    pod = {"kind": "Pod", "metadata": {"name": "geo-1"}, "spec": {"containers": [{}]}, "status": status}
    assert pod_status(pod) == word
    assert object_cells(pod)["RESTARTS"] == (0 if word == "PodInitializing" else 3 * len(states))
