"""Feature flags and background work in specs."""

from __future__ import annotations

import pytest
import yaml
from pydantic import ValidationError

from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.features import Flag, FlagSettings, format_flags, set_variant, values_in
from faultset.core.errors import UsageError
from tests.collector.spec.edits import objects_of

SETTINGS = FlagSettings(
    flags={
        "slow": Flag(variants={"10sec": 10000, "off": 0}, default="off", service="web"),
        "broken": Flag(variants={"on": True, "off": False}, default="off", service="web"),
    }
)


def test_a_file_holds_the_defaults_until_a_variant_is_set() -> None:
    text = format_flags(SETTINGS)
    assert values_in(text) == SETTINGS.defaults() == {"slow": 0, "broken": False}
    changed = set_variant(text, "slow", "10sec")
    assert values_in(changed) == {"slow": 10000, "broken": False}
    assert set_variant(changed, "slow", "off") == text


@pytest.mark.parametrize(
    ("name", "variant", "sentence"),
    [
        ("fast", "on", "unknown flag 'fast', expected one of slow, broken"),
        ("slow", "on", "unknown variant 'on' of flag slow, expected one of 10sec, off"),
    ],
)
def test_a_flag_or_variant_that_does_not_exist_is_told(name: str, variant: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        set_variant(format_flags(SETTINGS), name, variant)


@pytest.mark.parametrize("text", ["", "[]", '{"flags": []}', "{"])
def test_a_text_that_is_no_file_of_flags_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        values_in(text)


def test_a_disabled_or_incomplete_flag_has_no_value() -> None:
    text = '{"flags": {"a": {"state": "DISABLED", "variants": {"on": 1}, "defaultVariant": "on"}, "b": 3}}'
    assert values_in(text) == {}


def test_a_default_that_is_no_variant_and_a_provider_without_operation_are_refused() -> None:
    with pytest.raises(ValidationError, match="default must be one of on, got 'no'"):
        Flag(variants={"on": 1}, default="no", service="web")
    with pytest.raises(ValidationError, match="provider and operation must be given together"):
        FlagSettings(flags=SETTINGS.flags, provider="flagd")


TEXT = """\
name: shop
title: A shop
version: 1.0.0
entry: [web, 8080]
flags:
  provider: flagd
  operation: /flags
  flags:
    slow: {variants: {"on": 1, "off": 0}, default: "off", service: worker}
services:
  web:
    kind: frontend
    container: web
    program: [faultset-service, web]
    port: 8080
    stores: [queue]
    operations:
      POST /orders:
        steps:
          - publish: {store: queue, topic: orders, message: {id: $id}}
      GET /orders:
        steps: [{respond: {json: none}}]
  worker:
    kind: logic
    container: worker
    program: [faultset-service, worker]
    stores: [queue]
    consumers:
      orders:
        store: queue
        topic: orders
        steps:
          - flag: {name: slow, save: seconds}
          - wait: {seconds: $seconds}
    tasks:
      tidy: {every_s: 60, steps: [{log: {text: tidied}}]}
  queue: {kind: broker, container: queue, program: [faultset-store, kafka], port: 9092}
  cache: {kind: cache, container: cache, program: [faultset-store, valkey], port: 6379}
  flagd:
    kind: infrastructure
    container: flagd
    program: [faultset-service, flagd]
    port: 8013
    operations: {/flags: {observed: false, steps: [{all_flags: {save: f}}, {respond: {json: $f}}]}}
requests: {order: {method: POST, path: /orders, body: json, parameters: {id: {kind: integer, low: 1, high: 9}}}}
mixes: {all: {title: all, shares: {order: 1}}}
default_mix: all
"""


def test_a_service_without_a_port_has_no_service_object_and_no_container_port() -> None:
    made = objects_of(TEXT)
    assert ("Service", "worker") not in made
    template = made["Deployment", "worker"]["spec"]["template"]
    assert template["spec"]["containers"][0]["ports"] == []
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_only_the_provider_mounts_the_flags_or_every_service_without_one() -> None:
    def mounting(text: str) -> set[str]:
        return {
            name
            for (kind, name), one in objects_of(text).items()
            if kind == "Deployment"
            and {"name": "flags", "configMap": {"name": "flags"}} in one["spec"]["template"]["spec"]["volumes"]
        }

    assert mounting(TEXT) == {"flagd"}
    assert mounting(TEXT.replace("  provider: flagd\n  operation: /flags\n", "")) == {"flagd", "web", "worker"}
    assert "flags.json" in objects_of(TEXT)["ConfigMap", "flags"]["data"]


def test_a_spec_with_all_of_it_is_read_back_from_what_is_written() -> None:
    text = objects_of(TEXT)["ConfigMap", "shop-config"]["data"]["app.yaml"]
    assert read_app(text, "written") == read_app(TEXT, "shop.yaml")
    assert yaml.safe_load(text)["services"]["worker"]["consumers"]["orders"]["topic"] == "orders"


def line_of(part: str) -> int:
    return TEXT[: TEXT.index(part)].count("\n") + 1


@pytest.mark.parametrize(
    ("before", "after", "line", "sentence"),
    [
        ("flag: {name: slow", "flag: {name: fast", "- flag:", "unknown name 'fast', expected one of slow"),
        ("        store: queue\n", "        store: cache\n", "        store:", "unknown name 'cache'"),
        ("publish: {store: queue", "publish: {store: cache", "- publish:", "expected one of queue"),
        ("every_s: 60", "every_s: 0", "      tidy:", "greater than 0"),
        ("operation: /flags", "operation: /other", "  operation:", "unknown name '/other', expected one of /flags"),
        ("service: worker}", "service: nobody}", "    slow:", "unknown name 'nobody'"),
        ("    tasks:", "    operations: {/a: {steps: []}}\n    tasks:", "  worker:", "must have a port"),
        ("store, kafka], port: 9092", "store, valkey], port: 6379", "- publish:", "a message broker"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_its_line(before: str, after: str, line: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        read_app(TEXT.replace(before, after), "shop.yaml")
    assert f"line {line_of(line)}," in str(refused.value)


def test_a_request_with_a_method_that_no_operation_has_is_refused() -> None:
    with pytest.raises(UsageError, match="web does not serve PUT /orders; it serves POST /orders, GET /orders"):
        read_app(TEXT.replace("method: POST", "method: PUT"), "shop.yaml")
