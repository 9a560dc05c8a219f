"""The checks of a cluster, with an API server that answers as one does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from faultset.collector.apps import load_app
from faultset.collector.cli.doctor import doctor
from faultset.collector.faults.registry import faults
from faultset.collector.platforms.hosts import Requirement, unmet
from faultset.collector.platforms.kubernetes import host, preflight
from faultset.collector.platforms.kubernetes.checks import check_cluster
from faultset.collector.platforms.kubernetes.preflight import ROLE_RULES, check_permissions, operator_permissions
from faultset.collector.platforms.kubernetes.settings import ClusterSettings
from faultset.collector.spec.manifests import operator_rules
from faultset.core.errors import PlatformError

CPU = "container_cpu_usage_seconds_total"
POD = {"namespace": "kube-system", "pod": "coredns-1"}
ANNOTATED = "global: {scrape_interval: 5s}\nx: [__meta_kubernetes_pod_annotation_prometheus_io_scrape]"


@pytest.fixture(autouse=True)
def probed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The result of the node agent's probe, without starting anything."""
    made: dict[str, Any] = {"unsupported": {}, "privileged": True, "error": None}

    def unsupported_needs(api: Any, repository: str = "") -> tuple[dict[str, str], bool]:
        if made["error"]:
            raise made["error"]
        return made["unsupported"], made["privileged"]

    monkeypatch.setattr(preflight, "unsupported_needs", unsupported_needs)
    return made


@pytest.fixture
def whole(api_server, prometheus, jaeger) -> Any:
    """An API server of a cluster that meets all requirements."""
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


def _rows(api: Any) -> dict[str, Requirement]:
    return {row.check: row for row in _check(api)}


def _check(api: Any) -> list[Requirement]:
    return check_cluster(api, ClusterSettings(), lambda: preflight.unsupported_needs(api))


def test_a_whole_cluster_lacks_nothing_but_our_images(whole, connect) -> None:
    rows = _rows(connect(whole))
    assert [check for check, row in rows.items() if not row.ok] == ["images"]
    assert "Build them" in rows["images"].remedy
    assert rows["cluster"].found.startswith("Kubernetes v1.31.2 at http://127.0.0.1")
    assert rows["scrape interval"].found == "5 s"
    assert rows["capacity of the nodes"].found == "for 4 concurrent episodes"
    assert all(row.remedy == "" for row in rows.values() if row.ok)


def test_a_cluster_that_answers_nothing_is_one_row(connect, refused) -> None:
    def down(*asked: Any) -> Any:
        raise refused(502, b"bad gateway")

    [row] = _check(connect(down))
    assert (row.check, row.ok) == ("cluster", False)
    assert "correct the kubeconfig" in row.remedy


def test_a_verb_that_is_refused_is_named_with_its_purpose(whole, connect) -> None:
    whole.refused = {("pods/exec", "create"), ("namespaces", "delete")}
    api = connect(whole)
    rows = _rows(api)
    assert rows["may run commands in pods"].found == "may not create pods/exec"
    assert rows["may create namespaces for every episode"].found == "may not delete namespaces"
    with pytest.raises(
        PlatformError, match=r"may not delete namespaces, .*missing permissions in total: 2.*grant the role"
    ):
        check_permissions(api)


def test_metrics_of_pods_alone_are_enough_but_said(whole, connect, prometheus) -> None:
    prometheus.samples = []
    prometheus.add(CPU, [(time.time(), 1)], **POD)
    rows = _rows(connect(whole))
    assert rows["container metrics"].ok
    assert "1 series of pods but none of containers" in rows["container metrics"].found
    assert not rows["network metrics"].ok
    assert "without bytes, packets and drops of pods" in rows["network metrics"].found
    assert "--containerd" in rows["network metrics"].remedy
    assert "network metrics" not in [row.check for row in unmet(list(rows.values()))]
    assert not rows["kube-state-metrics"].ok
    assert "install kube-state-metrics" in rows["kube-state-metrics"].remedy


def test_a_slow_scraper_and_a_missing_job_for_pods_are_said(whole, connect, prometheus) -> None:
    prometheus.config = "global: {scrape_interval: 1m}"
    rows = _rows(connect(whole))
    assert not rows["scrape interval"].ok
    assert rows["scrape interval"].found == "60 s"
    assert not rows["metrics of the services"].ok
    assert "prometheus.io/scrape" in rows["metrics of the services"].remedy


def test_missing_servers_are_rows_and_no_errors(whole, connect) -> None:
    whole.services = []
    rows = _rows(connect(whole))
    assert not rows["Prometheus"].ok
    assert not rows["Jaeger"].ok
    assert "--install-telemetry" in rows["Jaeger"].remedy
    assert "container metrics" not in rows


def test_a_small_node_has_no_capacity(whole, connect) -> None:
    whole.nodes[0]["status"]["allocatable"] = {"cpu": "500m", "memory": "16Gi", "pods": "110"}
    rows = _rows(connect(whole))
    assert not rows["capacity of the nodes"].ok
    assert rows["capacity of the nodes"].found == "for 0 concurrent episodes"


def test_what_cannot_be_done_to_pods_is_said_once_for_each_reason_and_does_not_stop_episodes(
    whole, connect, probed
) -> None:
    probed["unsupported"] = {"delay": "no netem", "resize": "no resize", "kill": "no netem"}
    probed["privileged"] = False
    row = _rows(connect(whole))["access to pods"]
    assert (row.ok, row.needed) == (False, False)
    assert row.found == "a container in every pod, since nodes do not allow agents; no netem; no resize"


def test_an_agent_that_can_do_everything_needs_no_remedy(whole, connect) -> None:
    row = _rows(connect(whole))["access to pods"]
    assert row.ok
    assert "an agent on every node" in row.found


def test_an_agent_that_does_not_start_keeps_episodes_from_running(whole, connect, probed) -> None:
    probed["error"] = PlatformError("the node agent did not start within 60 s")
    row = _rows(connect(whole))["access to pods"]
    assert row in unmet([row])
    assert row.found == "the node agent did not start within 60 s"


@pytest.fixture
def doctored(whole, connect, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the output of doctor for a cluster with or without our images."""
    whole.nodes[0]["status"]["images"] = [{"names": [f"other:{n}"]} for n in range(50)]
    api = connect(whole)
    monkeypatch.setattr(host, "Api", lambda *args, **options: api)
    return lambda *options: CliRunner().invoke(doctor, ["--platform", "kubernetes", *options])


def test_doctor_says_what_is_lost_without_what_is_not_needed_and_succeeds(doctored, prometheus) -> None:
    whole = doctored()
    assert whole.exit_code == 0, whole.output
    assert whole.output.endswith("platform kubernetes can run episodes here\n")
    prometheus.samples = [one for one in prometheus.samples if "network" not in one[0]["__name__"]]
    without = doctored()
    assert without.exit_code == 0, without.output
    assert without.output.endswith("platform kubernetes can run episodes here; missing: network metrics\n")


def test_doctor_fails_on_what_episodes_need(doctored, probed) -> None:
    probed["error"] = PlatformError("the node agent did not start within 60 s")
    done = doctored()
    assert done.exit_code == 4
    assert "checks failed; first: access to pods" in done.output


def test_doctor_names_the_faults_that_cannot_be_made_once_for_each_reason(doctored, probed) -> None:
    probed["unsupported"] = {"delay": "no netem", "resize": "no resize", "kill": "no netem"}
    done = doctored("--json")
    assert done.exit_code == 0, done.output
    row = {row["check"]: row for row in json.loads(done.output)}["faults"]
    assert (row["ok"], row["needed"]) == (False, False)
    delayed = [spec.name for spec in faults().values() if spec.needs & {"delay", "kill"}]
    assert {"container-kill", "network-delay"} <= set(delayed)
    assert row["found"].startswith(f"{len(faults()) - len(delayed) - 1} of {len(faults())} can be injected")
    assert f"not {', '.join(delayed)}: no netem; not cpu-throttle: no resize" in row["found"]


def test_a_campaign_on_a_cluster_without_the_chaos_mesh_that_it_wants_does_not_begin(doctored) -> None:
    with pytest.raises(PlatformError, match=r"Chaos Mesh does not work on the cluster: .*; install its"):
        host.KubernetesHost(injector="chaos-mesh").check()
    assert "Prometheus" in " ".join(host.KubernetesHost().check())


def test_a_cluster_without_chaos_mesh_lacks_it_only_when_it_is_the_injector(doctored) -> None:
    assert "Chaos Mesh" not in doctored().output
    done = doctored("--injector", "chaos-mesh", "--json")
    assert done.exit_code == 4
    row = {row["check"]: row for row in json.loads(done.output.partition("]")[0] + "]")}["Chaos Mesh"]
    assert not row["ok"]
    assert "does not serve chaos-mesh.org" in row["found"]
    assert "install it" in row["remedy"]


def test_native_histograms_are_counted_and_those_without_rows_named(whole, connect, prometheus) -> None:
    now = time.time()
    prometheus.metadata = {"request_seconds": "histogram", "classic": "histogram", "queue_depth": "gaugehistogram"}
    for name in ("request_seconds", "queue_depth"):
        prometheus.add_histograms(name, [(now, {"count": "0", "sum": "0"})], **POD)
    prometheus.add("classic_count", [(now, 1)], **POD)
    row = _rows(connect(whole))["native histograms"]
    assert (row.ok, row.needed) == (False, False)
    assert row.found.startswith("1 become buckets, sum and count; queue_depth will have no rows")


DOCS = Path(__file__).parents[4] / "docs" / "how-to"
OPERATOR = load_app("tidb").operator


def documented(file: str) -> set[tuple[str, str, str]]:
    rules = yaml.safe_load((DOCS / file).read_text(encoding="utf-8"))["rules"]
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def test_the_documented_role_for_operators_is_what_the_platform_asks_for() -> None:
    assert OPERATOR is not None
    asked = operator_permissions(OPERATOR.resource)
    assert documented("kubernetes-operator-role.yaml") == {
        (rule.group, resource, verb) for rule in asked for resource in rule.resources for verb in rule.verbs
    }


def test_both_documented_roles_hold_everything_that_an_operator_is_given() -> None:
    assert OPERATOR is not None
    given = operator_rules(OPERATOR.resource)
    needed = {(g, r, v) for rule in given for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    plain = {(rule.group, resource, verb) for rule in ROLE_RULES for resource in rule.resources for verb in rule.verbs}
    assert needed <= plain | documented("kubernetes-operator-role.yaml")
