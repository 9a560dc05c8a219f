"""Manifests: ordinary Kubernetes objects, in an order in which they can be applied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.credentials import decoded
from faultset.collector.spec.manifests import manifests


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
        assert container["resources"]["limits"] == {
            "cpu": f"{round(1000 * service.cpu_limit)}m",
            "memory": "256Mi",
        }
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
