"""Consistency checks."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.files import format_spec
from faultset.collector.spec.routes import services_reached
from faultset.core.errors import UsageError
from tests.collector.spec.edits import changed

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


def test_the_shop_is_consistent() -> None:
    assert read_app(SHOP, "shop.yaml").calls == (("web", "stock"),)


def test_the_line_of_the_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"shop\.yaml, line 11, field services\.web\.port"):
        read_app(SHOP.replace("port: 8080\n    operations", "port: -1\n    operations"), "shop.yaml")


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ("/Stock/Get: {steps:", "/Stock/Get: {stepz:", r"Get\.stepz: unknown key 'stepz', did you mean 'steps'\?"),
        ("respond: {json: {left", "respond: {jsn: {left", r"respond\.jsn: unknown key 'jsn'"),
        ("port: 8081", "colour: red", r"stock\.colour: unknown key 'colour'"),
    ],
)
def test_an_unknown_key_is_named_before_everything_else_that_is_wrong(right: str, wrong: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_app(SHOP.replace(right, wrong).replace("default_mix: only", ""), "shop.yaml")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("services", "stock", "operations", "/Stock/Get", "steps", 0), BACK, "calls must not form a cycle: "),
        (("entry",), ["web", 80], "must be 8080, on which web listens, got 80"),
        (("requests", "look", "path"), "/item/{id}", "web does not serve GET /item/{id}; it serves /product/{id}"),
        (("requests", "look", "path"), "/product/{number}", "the path uses 'number', which is not a sent parameter"),
        (("services", "stock", "port"), 9464, "port 9464 is reserved"),
        (("services", "stock", "program"), ["stockd"], "'stockd' is not in the image"),
        (("services", "stock", "program"), ["faultset-store", "mongdb"], 'did you mean "mongodb"'),
        (
            ("services", "stock", "program"),
            ["faultset-store", "mongodb"],
            "a mongodb must listen on port 27017, got 8081",
        ),
        (("name",), "Shop", "lower-case letters"),
        (("services", "web", "operations", "/product/{id}", "work_ms"), -1, "greater than or equal to 0"),
        (("mixes", "only", "shares"), {"look": -1.0}, "a share must be between 0 and 1, got -1 for look"),
        (("services", "web", "cpu_limit"), float("inf"), "finite number"),
        (("services", "stock", "runs"), "clock", "the application's code does not define the program 'clock'"),
    ],
)
def test_what_the_runtime_cannot_do_is_refused(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_app(changed(SHOP, *path, value=value), "shop.yaml")
    assert sentence in str(caught.value)


NESTED = """\
        steps:
          - parallel:
              branches:
                - - when:
                      value: $id
                      steps:
                        - for_each:
                            items: [1]
                            at_most: 3
                            steps:
                              - {step}
                - - call: {{service: stock, operation: /Stock/Get, save: found}}
"""


def nested(step: str) -> str:
    """The shop, whose first operation has this step deep inside others."""
    first = SHOP.index("        steps:")
    return SHOP[:first] + NESTED.format(step=step) + SHOP[SHOP.index("          - respond") :]


def test_calls_inside_nested_steps_belong_to_the_call_graph() -> None:
    app = read_app(nested("call: {service: stock, operation: /Stock/Get}"), "shop.yaml")
    assert app.calls == (("web", "stock"),)
    assert [call.operation for call in app.services["web"].operations_called()] == ["/Stock/Get"] * 2
    assert services_reached(app) == {"GET /product/{id}": {"web", "stock"}}
    assert read_app(format_spec(app), "written") == app


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("call: {service: stok, operation: /Stock/Get}", "line 24, field .*steps.0: unknown name 'stok'"),
        ("call: {service: stock, operation: /Stock/Put}", "line 24, .*unknown name '/Stock/Put'"),
        ("find_documents: {store: db, collection: c, key: 1, save: x}", "line 24, .*unknown name 'db'"),
        (
            "call: {service: stock, operation: /Stock/Get, timeout_s: 0}",
            "line 24, .*call.timeout_s: Input should be gre",
        ),
        ("cal: {}", "line 24, .*unknown step 'cal'"),
        ("call: {service: web, operation: '/product/{id}'}", "calls must not form a cycle"),
    ],
)
def test_what_is_wrong_inside_nested_steps_is_told_with_its_line(step: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_app(nested(step), "shop.yaml")
