"""Init containers of a spec: their manifests, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.files import format_spec
from faultset.collector.spec.manifests import manifests
from faultset.core.errors import UsageError
from tests.collector.spec.edits import changed

SHOP = """
name: shop
title: A shop
version: "1"
entry: [web, 8080]
configs: {settings: {size: small}}
services:
  web:
    kind: frontend
    container: web
    program: [faultset-service, web]
    port: 8080
    stores: [db]
    memory_limit_mib: 16
    init:
      - name: prepare
        program: [/bin/sh, -c, 'echo "$SIZE"; cat /etc/shop/size']
        environment: {SIZE: {config: settings, key: size}}
        files: {/etc/shop: {config: settings}}
        cpu_request: 0.2
        memory_limit_mib: 64
      - {name: wait-for-db, wait_for: db}
    operations: {/: {steps: [{respond: {json: 1}}]}}
  db: {kind: database, container: db, program: [faultset-store, mongodb], port: 27017, claim: db-pvc}
requests: {look: {method: GET, path: /}}
mixes: {only: {title: one kind, shares: {look: 1.0}}}
default_mix: only
"""
INIT = ("services", "web", "init")


def test_they_stand_in_the_pod_with_what_they_are_given() -> None:
    app = read_app(SHOP, "shop.yaml")
    assert read_app(format_spec(app), "written") == app
    made = manifests(app, telemetry_endpoint="http://telemetry:4318")
    (pod,) = [
        one["spec"]["template"]["spec"]
        for one in made
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "web")
    ]
    prepare, wait = pod["initContainers"]
    assert prepare["command"][0] == "/bin/sh"
    reference = {"configMapKeyRef": {"name": "settings", "key": "size"}}
    assert prepare["env"][-1] == {"name": "SIZE", "valueFrom": reference}
    assert prepare["volumeMounts"] == [{"name": "files-0", "mountPath": "/etc/shop", "readOnly": True}]
    assert prepare["resources"] == {
        "requests": {"cpu": "200m", "memory": "32Mi"},
        "limits": {"cpu": "1000m", "memory": "64Mi"},
    }
    assert (wait["image"], wait["command"]) == ("faultset/app:1.0.0", ["faultset-wait", "db:27017"])
    assert {"name": "files-0", "configMap": {"name": "settings"}} in pod["volumes"]
    (web,) = pod["containers"]
    assert not any(mount["name"] == "files-0" for mount in web["volumeMounts"])
    assert web["resources"]["requests"] == {"cpu": "5m", "memory": "16Mi"}


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ((*INIT, 1, "wait_for"), "database", "unknown name 'database', expected one of db, web"),
        ((*INIT, 1, "wait_for"), "web", "web cannot wait for itself"),
        ((*INIT, 1, "name"), "prepare", "another container of web has the name 'prepare'"),
        ((*INIT, 1, "name"), "web", "another container of web has the name 'web'"),
        ((*INIT, 1, "name"), "Wait", "lower-case letters"),
        ((*INIT, 1, "program"), ["/bin/true"], "exactly one of program and wait_for"),
        ((*INIT, 0, "program"), ["true"], "'true' is not in the image"),
        ((*INIT, 0, "environment", "SIZE", "key"), "weight", "unknown key 'weight' of ConfigMap settings"),
        ((*INIT, 0, "cpu_request"), 2.0, "must not exceed cpu_limit .1., got 2"),
        (("services", "web", "memory_request_mib"), 17, "must not exceed memory_limit_mib .16., got 17"),
        (
            ("services", "db", "init"),
            [{"name": "w", "wait_for": "web"}],
            "must not wait for each other: (db waits for )?web waits for db",
        ),
    ],
)
def test_what_could_never_start_is_refused(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=rf"^shop\.yaml, line \d+, field .*{sentence}"):
        read_app(changed(SHOP, *path, value=value), "shop.yaml")


def test_the_line_of_an_init_container_is_named() -> None:
    with pytest.raises(UsageError, match=r"line 22, field services\.web\.init\.1\.wait_for"):
        read_app(SHOP.replace("wait_for: db", "wait_for: dp"), "shop.yaml")
