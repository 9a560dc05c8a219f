"""Kubernetes manifests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.credentials import decoded
from faultset.collector.spec.manifests import manifests, service_manifests, workload
from faultset.core.errors import UsageError
from tests.collector.spec.edits import changed, objects_of


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return manifests(load_app("hotel"), telemetry_endpoint="http://telemetry:4318")


def of(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def test_objects_come_before_those_that_need_them(objects: list[dict[str, Any]]) -> None:
    order = list(dict.fromkeys(o["kind"] for o in objects))
    assert order == ["PersistentVolume", "PersistentVolumeClaim", "ConfigMap", "Secret", "Service", "Deployment"]
    assert len({(o["kind"], o["metadata"]["name"]) for o in objects}) == len(objects)


def test_a_database_binds_its_volume_statically_and_is_recreated(objects: list[dict[str, Any]]) -> None:
    volume, claim = of(objects, "PersistentVolume", "geo-pv"), of(objects, "PersistentVolumeClaim", "geo-pvc")
    assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"] == "geo-storage"
    assert volume["spec"]["hostPath"] == {"path": "/data/volumes/geo-pv", "type": "DirectoryOrCreate"}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    spec = of(objects, "Deployment", "mongodb-geo")["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    pod = spec["template"]["spec"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "geo-pvc"}} in pod["volumes"]
    assert {"name": "data", "mountPath": "/data/db"} in pod["containers"][0]["volumeMounts"]
    assert pod["containers"][0]["command"] == ["faultset-store", "mongodb", "--auth"]


def test_every_workload_is_selected_by_its_service_and_has_no_probe(objects: list[dict[str, Any]]) -> None:
    app = load_app("hotel")
    for name, service in app.services.items():
        deployment, front = of(objects, "Deployment", name), of(objects, "Service", name)
        template = deployment["spec"]["template"]
        assert front["spec"]["selector"] == template["metadata"]["labels"] == {"io.kompose.service": name}
        assert deployment["spec"]["selector"]["matchLabels"] == front["spec"]["selector"]
        (port,) = front["spec"]["ports"]
        assert port["port"] == port["targetPort"] == service.port
        (container,) = template["spec"]["containers"]
        assert not {"livenessProbe", "readinessProbe", "startupProbe"} & set(container)
        assert container["resources"]["limits"] == {"cpu": f"{round(1000 * service.cpu_limit)}m", "memory": "256Mi"}
        assert {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in container["env"]
        scraped = template["metadata"]["annotations"].get("prometheus.io/scrape") == "true"
        assert scraped == (service.kind in ("frontend", "logic"))


def test_the_spec_travels_in_a_config_map(objects: list[dict[str, Any]]) -> None:
    (config,) = [o for o in objects if o["kind"] == "ConfigMap"]
    assert read_app(config["data"]["app.yaml"], "config") == load_app("hotel")


def test_passwords_are_new_each_time_and_only_in_secrets(objects: list[dict[str, Any]]) -> None:
    again = manifests(load_app("hotel"), telemetry_endpoint="http://telemetry:4318")
    passwords = [
        {
            decoded(word)
            for one in made
            if one["kind"] == "Secret"
            for key, word in one["data"].items()
            if key != "build-seed"
        }
        for made in (objects, again)
    ]
    assert len(passwords[0]) == 2 * 9
    assert not passwords[0] & passwords[1]
    rest = json.dumps([one for one in objects if one["kind"] != "Secret"])
    assert not [word for word in passwords[0] if word in rest]


def test_an_administrators_password_is_in_the_pod_of_its_store_only(objects: list[dict[str, Any]]) -> None:
    secrets = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "Secret"}
    for deployment in (one for one in objects if one["kind"] == "Deployment"):
        mounted = [
            v["secret"]["secretName"] for v in deployment["spec"]["template"]["spec"]["volumes"] if "secret" in v
        ]
        name = deployment["metadata"]["name"]
        is_store = load_app("hotel").services[name].store_driver is not None
        assert [("administrator" in secrets[secret]) for secret in mounted] == [is_store]
        assert not is_store or mounted == [f"{name}-credentials"]


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


OBJECTS = objects_of(SPEC)


def test_replicas_and_probes_are_those_of_the_spec() -> None:
    spec = OBJECTS["Deployment", "web"]["spec"]
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
    assert not [key for key in OBJECTS if key[0] == "StatefulSet" or key == ("Service", "keeper")]
    resource = OBJECTS["Bank", "main"]
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
    order = list(OBJECTS)
    definition = OBJECTS["CustomResourceDefinition", "banks.bank.example"]["spec"]
    assert definition["names"]["shortNames"] == ["bk"]
    assert definition["versions"][0]["subresources"] == {"status": {}}
    place = [order.index(key) for key in (
        ("CustomResourceDefinition", "banks.bank.example"), ("ServiceAccount", "operator"), ("Role", "operator"),
        ("RoleBinding", "operator"), ("Deployment", "operator"), ("Bank", "main"),
    )]  # fmt: skip
    assert place == sorted(place)
    pod = OBJECTS["Deployment", "operator"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "operator"
    assert "serviceAccountName" not in OBJECTS["Deployment", "web"]["spec"]["template"]["spec"]


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
