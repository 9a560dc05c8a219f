"""Each requirement of a cluster is a row that says what was found and how to mend it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faultset.collector.platforms.kubernetes.checks import check_cluster
from faultset.collector.platforms.kubernetes.permissions import check_permissions
from faultset.datasets.errors import PlatformError

CPU = "container_cpu_usage_seconds_total"
POD = {"namespace": "kube-system", "pod": "coredns-1"}
ANNOTATED = "global: {scrape_interval: 5s}\nx: [__meta_kubernetes_pod_annotation_prometheus_io_scrape]"


@pytest.fixture
def whole(api_server, prometheus, jaeger) -> Any:
    """An API server of a cluster that has everything."""
    prometheus.config = ANNOTATED
    prometheus.add(CPU, [(time.time(), 1)], **POD, container="coredns")
    prometheus.add("container_network_receive_bytes_total", [(time.time(), 1)], **POD, interface="eth0")
    prometheus.add("kube_pod_status_phase", [(time.time(), 1)], **POD, phase="Running")
    api_server.add_service("observe/prometheus-server:80", prometheus)
    api_server.add_service("observe/jaeger:16686", jaeger)
    api_server.add_service("observe/jaeger:4318", lambda *asked: {})
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    api_server.nodes = [{"metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": room, "images": []}}]
    return api_server


def _rows(api: Any, **options: Any) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in check_cluster(api, **options)}


def test_a_whole_cluster_lacks_nothing_but_our_images(whole, connect) -> None:
    rows = _rows(connect(whole))
    assert [check for check, row in rows.items() if not row["ok"]] == ["images"]
    assert "build them" in rows["images"]["remedy"]
    assert rows["cluster"]["found"].startswith("Kubernetes v1.31.2 at http://127.0.0.1")
    assert rows["scrape interval"]["found"] == "5 s"
    assert rows["room on the nodes"]["found"] == "for 4 episodes at a time"
    assert all(row["remedy"] == "" for row in rows.values() if row["ok"])


def test_a_cluster_that_answers_nothing_is_one_row(connect, refused) -> None:
    def down(*asked: Any) -> Any:
        raise refused(502, b"bad gateway")

    [row] = check_cluster(connect(down))
    assert (row["check"], row["ok"]) == ("cluster", False)
    assert "correct the kubeconfig" in row["remedy"]


def test_a_verb_that_is_refused_is_named_with_its_purpose(whole, connect) -> None:
    whole.refused = {("pods/exec", "create"), ("namespaces", "delete")}
    api = connect(whole)
    rows = _rows(api)
    assert rows["may run commands in pods"]["found"] == "may not create pods/exec"
    assert rows["may give every episode namespaces of its own"]["found"] == "may not delete namespaces"
    with pytest.raises(PlatformError, match=r"may not delete namespaces and 1 more, .*grant the role"):
        check_permissions(api)


def test_metrics_of_pods_alone_are_enough_but_said(whole, connect, prometheus) -> None:
    prometheus.samples = []
    prometheus.add(CPU, [(time.time(), 1)], **POD)
    rows = _rows(connect(whole))
    assert rows["container metrics"]["ok"]
    assert "1 series of pods, none of their containers" in rows["container metrics"]["found"]
    assert not rows["network metrics"]["ok"]
    assert "--containerd" in rows["network metrics"]["remedy"]
    assert not rows["kube-state-metrics"]["ok"]
    assert "install kube-state-metrics" in rows["kube-state-metrics"]["remedy"]


def test_a_slow_scraper_and_a_missing_job_for_pods_are_said(whole, connect, prometheus) -> None:
    prometheus.config = "global: {scrape_interval: 1m}"
    rows = _rows(connect(whole))
    assert not rows["scrape interval"]["ok"]
    assert rows["scrape interval"]["found"] == "60 s"
    assert not rows["metrics of the services"]["ok"]
    assert "prometheus.io/scrape" in rows["metrics of the services"]["remedy"]


def test_missing_servers_are_rows_and_no_errors(whole, connect) -> None:
    whole.services = []
    rows = _rows(connect(whole))
    assert not rows["Prometheus"]["ok"]
    assert not rows["Jaeger"]["ok"]
    assert "--install-telemetry" in rows["Jaeger"]["remedy"]
    assert "container metrics" not in rows


def test_a_small_node_has_no_room(whole, connect) -> None:
    whole.nodes[0]["status"]["allocatable"] = {"cpu": "500m", "memory": "16Gi", "pods": "110"}
    rows = _rows(connect(whole))
    assert not rows["room on the nodes"]["ok"]
    assert rows["room on the nodes"]["found"] == "for 0 episodes at a time"
