"""Stateful services, probes, and services that an operator makes."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.files import format_spec
from faultset.collector.spec.manifests import manifests, service_manifests, workload
from faultset.core.errors import UsageError
from tests.collector.spec.edits import changed

SPEC = """
name: bank
title: A bank
version: "1"
entry: [web, 8080]
services:
  web:
    kind: frontend
    container: web
    program: [faultset-service, web]
    port: 8080
    replicas: 2
    readiness: {every_s: 2}
    liveness: {path: /metrics, port: 9464, delay_s: 5}
    operations: {"/": {steps: [{respond: {json: {}}}]}}
  keeper:
    kind: logic
    container: keeper
    program: [faultset-service, keeper]
    port: 8081
    replicas: 3
    stateful: true
    storage: {size: 2Gi}
    cpu_request: 0.5
    operations: {"/Keep": {steps: [{respond: {json: {}}}]}}
  operator:
    kind: infrastructure
    container: operator
    program: [faultset-service, operator]
    port: 8082
    operations: {"/State": {steps: [{respond: {json: {}}}]}}
operator:
  service: operator
  components: [keeper]
  resource:
    group: bank.example
    version: v1
    kind: Bank
    plural: banks
    short: [bk]
    name: main
    spec: {version: "7"}
requests: {look: {method: GET, path: /}}
mixes: {only: {title: one kind, shares: {look: 1.0}}}
default_mix: only
"""


def made(text: str = SPEC) -> dict[tuple[str, str], dict[str, Any]]:
    objects = manifests(read_app(text, "bank.yaml"), telemetry_endpoint="http://telemetry:4318")
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def test_the_spec_is_written_as_it_was_read() -> None:
    app = read_app(SPEC, "bank.yaml")
    assert read_app(format_spec(app), "written") == app


def test_replicas_and_probes_are_those_of_the_spec() -> None:
    spec = made()["Deployment", "web"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 2
    assert container["readinessProbe"]["tcpSocket"] == {"port": 8080}
    assert container["readinessProbe"]["periodSeconds"] == 2
    assert container["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": 9464}
    assert container["livenessProbe"]["initialDelaySeconds"] == 5


def test_a_stateful_service_is_a_stateful_set_behind_a_headless_service() -> None:
    app = read_app(SPEC, "bank.yaml")
    found = workload(app, app.services["keeper"], "http://telemetry:4318")
    front, peers = service_manifests(app, app.services["keeper"])
    assert (found["kind"], found["spec"]["replicas"], found["spec"]["serviceName"]) == ("StatefulSet", 3, "keeper-peer")
    (claim,) = found["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert "storageClassName" not in claim["spec"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert {"name": "data", "mountPath": "/data/db"} in container["volumeMounts"]
    assert container["resources"]["requests"]["cpu"] == "500m"
    assert (front["spec"].get("clusterIP"), peers["metadata"]["name"]) == (None, "keeper-peer")
    assert peers["spec"]["clusterIP"] == "None"
    assert peers["spec"]["selector"] == front["spec"]["selector"]


def test_a_component_is_part_of_the_custom_resource_and_not_among_the_workloads() -> None:
    objects = made()
    assert not [key for key in objects if key[0] == "StatefulSet" or key == ("Service", "keeper")]
    resource = objects["Bank", "main"]
    assert resource["apiVersion"] == "bank.example/v1"
    assert resource["spec"] == {
        "version": "7",
        "keeper": {
            "image": "faultset/app:1.0.0",
            "replicas": 3,
            "requests": {"cpu": "500m", "memory": "32Mi", "storage": "2Gi"},
            "limits": {"cpu": "1000m", "memory": "256Mi"},
        },
    }


def test_the_definition_and_the_operators_rights_come_before_the_operator_and_the_resource() -> None:
    order = list(made())
    definition = made()["CustomResourceDefinition", "banks.bank.example"]["spec"]
    assert definition["names"]["shortNames"] == ["bk"]
    assert definition["versions"][0]["subresources"] == {"status": {}}
    place = [order.index(key) for key in (
        ("CustomResourceDefinition", "banks.bank.example"), ("ServiceAccount", "operator"), ("Role", "operator"),
        ("RoleBinding", "operator"), ("Deployment", "operator"), ("Bank", "main"),
    )]  # fmt: skip
    assert place == sorted(place)
    pod = made()["Deployment", "operator"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "operator"
    assert "serviceAccountName" not in made()["Deployment", "web"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("path", "value", "line", "reason"),
    [
        (("services", "web", "storage"), {"size": "1Gi"}, "services.web.storage", "only a stateful service can have"),
        (("services", "web", "claim"), "web-pvc", "services.web.replicas", "only one pod can use a claim"),
        (("services", "keeper", "claim"), "keep-pvc", "services.keeper.claim", "a stateful service must have storage"),
        (("services", "web", "replicas"), -1, "services.web.replicas", "greater than or equal to 0"),
        (("services", "web", "readiness"), {"path": "/", "every": 3}, "services.web.readiness.every", "unknown key"),
        (("operator", "components"), ["keeper", "vault"], "operator.components.1", "unknown name 'vault', expected"),
        (("operator", "components"), ["web"], "operator.components.0", "web must be stateful"),
        (("operator", "components"), ["operator"], "operator.components.0", "operator cannot create itself"),
        (("operator", "service"), "boss", "operator.service", "unknown name 'boss', expected one of"),
        (("operator", "service"), None, "operator.service", "must name the operator's service"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(path: tuple[str, ...], value: Any, line: str, reason: str) -> None:
    text = changed(SPEC, *path, value=value)
    with pytest.raises(UsageError) as refused:
        read_app(text, "bank.yaml")
    assert f"field {line}: " in str(refused.value)
    assert reason in str(refused.value)
    number = int(str(refused.value).partition("line ")[2].partition(",")[0])
    last = line.rpartition(".")[2]
    assert last.isdigit() or f"{last}:" in text.splitlines()[number - 1]
