"""ConfigMaps, Secrets and init containers of a spec, with the real programs on the embedded platform."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.platform import LocalPlatform
from faultset.collector.runtime.app_code import read_app
from faultset.datasets.kubectl.object_tables import pod_status

SHOP = """
name: shop
title: A shop
version: "1"
entry: [web, 8080]
configs: {settings: {size: small, offers.json: {tea: 3}}}
secrets: {mail: {user: shop, password: null}}
services:
  web:
    kind: frontend
    container: web
    program: [faultset-service, web]
    port: 8080
    environment:
      SIZE: {config: settings, key: size}
      MAIL_USER: {secret: mail, key: user}
    files: {/etc/shop: {config: settings, items: {offers.json: today.json}}}
    init:
      - name: prepare
        program: [/bin/sh, -c, 'echo "prepared for $SIZE"']
        environment: {SIZE: {config: settings, key: size}}
      - {name: wait-for-stock, wait_for: stock}
    operations:
      /:
        steps:
          - setting: {variable: SIZE, save: size}
          - setting: {variable: MAIL_USER, save: user}
          - setting: {file: /etc/shop/today.json, json: true, save: offers}
          - respond: {json: {size: $size, user: $user, tea: $offers.tea}}
  stock:
    kind: logic
    container: stock
    program: [faultset-service, stock]
    port: 8081
    operations: {/Stock/Get: {steps: [{respond: {json: 1}}]}}
requests: {look: {method: GET, path: /}}
mixes: {only: {title: one kind, shares: {look: 1.0}}}
default_mix: only
"""
TIMEOUT_S = 30.0


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[LocalPlatform]:
    journal = Journal(tmp_path / "journal.jsonl")
    made = LocalPlatform(
        read_app(SHOP, "test"), tmp_path / "scratch", journal=journal, seed=5, back_off_factor=0.02, telemetry=False
    )
    yield made
    made.teardown()
    journal.close()


def ask(platform: LocalPlatform) -> dict[str, object] | None:
    """Send a request to the entry; None if it is refused."""
    address = platform.get("Service", "web")["spec"]["clusterIP"]
    try:
        with urllib.request.urlopen(f"http://{address}:8080/", timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError):
        return None


def test_services_see_their_settings_and_start_after_what_prepares_them(platform: LocalPlatform) -> None:
    platform.deploy()

    def until(answer: dict[str, object] | None) -> None:
        platform.wait(lambda: ask(platform) == answer, timeout_s=TIMEOUT_S, what=f"the answer {answer}")

    until({"size": "small", "user": "shop", "tea": 3})
    (pod,) = platform.list("Pod", {"app": "web"})
    ended = [one["state"]["terminated"]["exitCode"] for one in pod["status"]["initContainerStatuses"]]
    assert ended == [0, 0]
    logs = platform.folder / "logs" / pod["metadata"]["name"] / "prepare"
    assert "prepared for small" in (logs / "0.log").read_text()

    # a mounted file follows its ConfigMap, a variable does not
    text = '{"tea": 4}'
    platform.patch("ConfigMap", "settings", {"data": {"size": "large", "offers.json": text}})
    until({"size": "small", "user": "shop", "tea": 4})
    platform.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
    until({"size": "large", "user": "shop", "tea": 4})

    # without its stock the next pod waits
    platform.patch("Deployment", "stock", {"spec": {"replicas": 0}})
    (pod,) = platform.list("Pod", {"app": "web"})
    platform.wait(lambda: not platform.list("Pod", {"app": "stock"}), timeout_s=TIMEOUT_S, what="the end of stock")
    platform.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
    platform.wait(
        lambda: [pod_status(one) for one in platform.list("Pod", {"app": "web"})] == ["Init:1/2"],
        timeout_s=TIMEOUT_S,
        what="a pod that waits",
    )
    assert ask(platform) is None
    platform.undo()
    until({"size": "small", "user": "shop", "tea": 3})
