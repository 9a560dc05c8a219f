"""Deadlines and circuit breakers between real programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage import Stage, WarmParent

from faultset.collector.runtime.app_code import read_app

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
    breakers: {middle: {failures: 2}}
    operations:
      /:
        deadline_s: 0.5
        steps:
          - call: {service: middle, operation: /Middle/Get, save: found}
          - respond: {json: $found}
  middle:
    kind: logic
    container: middle
    program: [faultset-service, middle]
    port: 8081
    operations:
      /Middle/Get:
        steps:
          - call: {service: slow, operation: /Slow/Get, save: found, retries: 5}
          - respond: {json: $found}
  slow:
    kind: logic
    container: slow
    program: [faultset-service, slow]
    port: 8082
    operations: {/Slow/Get: {steps: [{wait: {seconds: 60}}]}}
requests: {look: {method: GET, path: /}}
mixes: {only: {title: one kind, shares: {look: 1.0}}}
default_mix: only
"""


@pytest.fixture
def shop(tmp_path: Path, warm_parent: WarmParent) -> Iterator[Stage]:
    made = Stage(tmp_path, read_app(SHOP, "shop.yaml"), warm_parent)
    yield made
    made.close()


def served(shop: Stage, name: str) -> list[str]:
    """Return the series of requests that a service has answered."""
    return [
        line
        for line in shop.metrics(name).splitlines()
        if line.startswith("http_server_request_duration_seconds_count")
    ]


def test_all_give_up_at_the_deadline_and_the_breaker_of_the_callee_opens(shop: Stage) -> None:
    running = shop.start_all()
    begun = time.monotonic()
    for _ in range(2):
        status, body = shop.ask("/")
        assert (status, "the deadline has passed" in body) == (500, True)
    assert 0.9 < time.monotonic() - begun < 5.0
    # those that were called have given up as well, long before the minute is over
    for name in ("middle", "slow"):
        shop.wait(lambda name=name: served(shop, name), f"{name} gives up")
    status, body = shop.ask("/")
    assert (status, "the circuit breaker of middle is open" in body) == (500, True)
    assert "the circuit breaker of middle is open" in running["web"].log
