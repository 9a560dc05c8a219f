"""Configuration and init containers."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.credentials import decoded
from faultset.collector.spec.files import format_spec
from faultset.core.errors import UsageError
from tests.collector.spec.edits import changed, objects_of

SHOP = """
name: shop
title: A shop
version: "1"
entry: [web, 8080]
configs:
  settings: {currency: EUR, offers.json: {tea: 3}}
secrets:
  mail: {user: shop, password: null}
services:
  web:
    kind: frontend
    container: web
    program: [faultset-service, web]
    port: 8080
    environment:
      CURRENCY: {config: settings, key: currency}
      MAIL_PASSWORD: {secret: mail, key: password}
      WORKERS: 4
      HINT: {config: hints, key: any, optional: true}
    environment_from:
      - {config: settings, prefix: SHOP_}
    files:
      /etc/shop: {config: settings, items: {offers.json: today.json}}
      /etc/mail: {secret: mail}
    operations:
      /offer:
        steps:
          - setting: {variable: CURRENCY, save: currency}
          - setting: {variable: SHOP_currency, save: same}
          - setting: {file: /etc/shop/today.json, json: true, save: offers}
          - setting: {file: /etc/mail/user, save: user}
          - respond: {json: {price: $offers.tea, currency: $currency}}
requests:
  look: {method: GET, path: /offer}
mixes: {only: {title: one kind, shares: {look: 1.0}}}
default_mix: only
"""
WEB = ("services", "web")
STEPS = (*WEB, "operations", "/offer", "steps")

SHOP_WITH_INIT = """
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


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Any]:
    return objects_of(SHOP)


@pytest.mark.parametrize("text", [SHOP, SHOP_WITH_INIT])
def test_a_spec_is_written_as_it_was_read(text: str) -> None:
    app = read_app(text, "shop.yaml")
    assert read_app(format_spec(app), "written") == app


def test_config_maps_hold_texts_and_secrets_new_values_where_none_is_given(objects: dict[Any, Any]) -> None:
    assert objects["ConfigMap", "settings"]["data"] == {"currency": "EUR", "offers.json": '{\n  "tea": 3\n}'}
    data = objects["Secret", "mail"]["data"]
    assert decoded(data["user"]) == "shop"
    assert len(decoded(data["password"])) > 20
    assert objects_of(SHOP)["Secret", "mail"]["data"]["password"] != data["password"]


def test_containers_refer_to_them_as_kubernetes_writes_it(objects: dict[Any, Any]) -> None:
    pod = objects["Deployment", "web"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["env"][-4:] == [
        {"name": "CURRENCY", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "currency"}}},
        {"name": "MAIL_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "mail", "key": "password"}}},
        {"name": "WORKERS", "value": "4"},
        {"name": "HINT", "valueFrom": {"configMapKeyRef": {"name": "hints", "key": "any", "optional": True}}},
    ]
    assert container["envFrom"] == [{"prefix": "SHOP_", "configMapRef": {"name": "settings"}}]
    items = [{"key": "offers.json", "path": "today.json"}]
    assert pod["volumes"][-2:] == [
        {"name": "files-0", "configMap": {"name": "settings", "items": items}},
        {"name": "files-1", "secret": {"secretName": "mail"}},
    ]
    assert container["volumeMounts"][-2:] == [
        {"name": "files-0", "mountPath": "/etc/shop", "readOnly": True},
        {"name": "files-1", "mountPath": "/etc/mail", "readOnly": True},
    ]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ((*WEB, "environment", "CURRENCY", "config"), "setings", "ConfigMap 'setings', expected one of settings"),
        ((*WEB, "environment", "CURRENCY", "key"), "money", "unknown key 'money' of ConfigMap settings, expected one"),
        ((*WEB, "environment", "POD_IP"), "1", "POD_IP is set by the platform"),
        ((*WEB, "environment", "A B"), "1", "a variable must consist of letters"),
        ((*WEB, "environment", "DEBUG"), True, "must be text; put true in quotes"),
        ((*WEB, "environment", "DEBUG"), {"value": "1", "config": "settings"}, "one of value, config and secret"),
        ((*WEB, "environment", "DEBUG"), {"config": "settings"}, "must have key together with"),
        ((*WEB, "environment_from", 0, "config"), "none", "unknown ConfigMap 'none'"),
        ((*WEB, "files", "/etc/mail", "secret"), "post", "unknown Secret 'post', expected one of mail"),
        ((*WEB, "files", "/etc/shop", "items"), {"offer": "x"}, "unknown key 'offer' of ConfigMap settings"),
        ((*WEB, "files", "/etc/shop", "items"), {"currency": "/x"}, "a path inside its folder"),
        ((*WEB, "files", "etc"), {"secret": "mail"}, "an absolute path, got 'etc'"),
        ((*WEB, "files", "/etc/faultset/x"), {"secret": "mail"}, "overlaps /etc/faultset"),
        ((*WEB, "files", "/etc/shop/more"), {"secret": "mail"}, "overlaps /etc/shop"),
        (("configs", "shop-config"), {}, "the object with the spec"),
        (("configs", "Big"), {}, "lower-case letters"),
        (("configs", "settings", "a/b"), "x", "a key must consist of letters"),
        (("configs", "settings", "empty"), None, "a key of a ConfigMap must have a value"),
        (("configs", "settings", "large"), "x" * (1 << 20), "must not exceed 1 MiB"),
        (
            (*STEPS, 0, "setting", "variable"), "COUNTRY",
            "unknown name 'COUNTRY', expected one of CURRENCY, HINT, MAIL_PASSWORD, SHOP_currency",
        ),
        (
            (*STEPS, 2, "setting", "file"), "/etc/shop/offers.json",
            "expected one of /etc/mail/password, /etc/mail/user, /etc/shop/today.json",
        ),
        ((*STEPS, 2, "setting", "variable"), "CURRENCY", "must have either variable or file"),
    ],
)  # fmt: skip
def test_what_a_container_cannot_refer_to_is_refused(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=rf"^shop\.yaml, line \d+, field .*{sentence}"):
        read_app(changed(SHOP, *path, value=value), "shop.yaml")


def test_they_stand_in_the_pod_with_what_they_are_given() -> None:
    pod = objects_of(SHOP_WITH_INIT)["Deployment", "web"]["spec"]["template"]["spec"]
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
            ("services", "db", "init"), [{"name": "w", "wait_for": "web"}],
            "must not wait for each other: (db waits for )?web waits for db",
        ),
    ],
)  # fmt: skip
def test_what_could_never_start_is_refused(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=rf"^shop\.yaml, line \d+, field .*{sentence}"):
        read_app(changed(SHOP_WITH_INIT, *path, value=value), "shop.yaml")


@pytest.mark.parametrize(
    ("text", "right", "wrong", "place"),
    [
        (SHOP, "config: settings, key: currency", "config: settings, key: money", "17, field .*environment.CURRENCY"),
        (SHOP_WITH_INIT, "wait_for: db", "wait_for: dp", "22, field services.web.init.1.wait_for"),
    ],
)
def test_the_line_is_named(text: str, right: str, wrong: str, place: str) -> None:
    with pytest.raises(UsageError, match=f"line {place}"):
        read_app(text.replace(right, wrong), "shop.yaml")
