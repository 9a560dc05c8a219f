"""What a spec may not say although every field of it is right by itself."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from faultset.collector.runtime.app_code import read_app
from faultset.core.errors import UsageError

SHOP = """
name: shop
title: A shop
version: "1"
entry: [web, 8080]
services:
  web:
    kind: frontend
    container: web
    program: [faultset-service, web]
    port: 8080
    operations:
      /product/{id}:
        steps:
          - call: {service: stock, operation: /Stock/Get, send: {id: $id}, save: found}
          - respond: {json: $found}
  stock:
    kind: logic
    container: stock
    program: [faultset-service, stock]
    port: 8081
    operations:
      /Stock/Get: {steps: [{respond: {json: {left: 3}}}]}
requests:
  look: {method: GET, path: "/product/{id}", parameters: {id: {kind: integer, low: 1, high: 9}}}
mixes: {only: {title: one kind, shares: {look: 1.0}}}
default_mix: only
"""

BACK = {"call": {"service": "web", "operation": "/product/{id}", "send": {}, "save": "x"}}


def changed(*path: Any, value: Any) -> str:
    whole = yaml.safe_load(SHOP)
    place = whole
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return yaml.safe_dump(whole, sort_keys=False)


def test_the_shop_is_consistent() -> None:
    assert read_app(SHOP, "shop.yaml").calls == (("web", "stock"),)


def test_the_line_of_the_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"shop\.yaml, line 11, is wrong at services\.web\.port"):
        read_app(SHOP.replace("port: 8080\n    operations", "port: -1\n    operations"), "shop.yaml")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("services", "stock", "operations", "/Stock/Get", "steps", 0), BACK, "calls go round in a circle: "),
        (("entry",), ["web", 80], "web listens on port 8080, not on 80"),
        (("requests", "look", "path"), "/item/{id}", "web does not serve /item/{id}; it serves /product/{id}"),
        (("requests", "look", "path"), "/product/{number}", "the path names 'number', which is no parameter"),
        (("services", "stock", "port"), 9464, "port 9464 is used twice"),
        (("services", "stock", "program"), ["stockd"], "'stockd' is not in the image"),
        (("services", "stock", "program"), ["faultset-store", "mongdb"], 'did you mean "mongodb"'),
        (
            ("services", "stock", "program"),
            ["faultset-store", "mongodb"],
            "a mongodb listens on port 27017; found 8081",
        ),
        (("name",), "Shop", "lower-case letters"),
        (("services", "web", "operations", "/product/{id}", "work_ms"), -1, "greater than or equal to 0"),
        (("mixes", "only", "shares"), {"look": -1.0}, "a share is between 0 and 1; found -1 for look"),
        (("services", "web", "cpu_limit"), float("inf"), "finite number"),
        (("services", "stock", "runs"), "clock", "the application's code has no program 'clock'"),
    ],
)
def test_what_the_runtime_cannot_do_is_refused(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_app(changed(*path, value=value), "shop.yaml")
    assert sentence in str(caught.value)
