"""Applications by name, by folder or by file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faultset.collector.apps import app_names, load_app
from faultset.collector.faults.registry import faults
from faultset.collector.load.schedule import Schedule
from faultset.collector.plans.fault_choice import unavailable_reason
from faultset.core.errors import UsageError


def test_an_unknown_app_is_told_the_nearest_name() -> None:
    with pytest.raises(UsageError, match='unknown app "hotle"; did you mean "hotel"'):
        load_app("hotle")
    with pytest.raises(UsageError, match='unknown mix of hotel "defualt"; did you mean "default"'):
        load_app("hotel").mix("defualt")


@pytest.mark.parametrize("name", [name for name in app_names() if load_app(name).deployed])
def test_apps_that_somebody_else_deploys_have_faults_that_need_nothing_of_ours(name: str) -> None:
    app = load_app(name)
    usable = {fault for fault, spec in faults().items() if not unavailable_reason(spec, app)}
    of_deployments = {"target-port", "wrong-selector", "network-loss", "container-kill", "pod-kill", "missing-image"}
    of_components = {"overload-replicas", "invalid-toleration", "nonexistent-storage-class", "network-loss"}
    assert (of_components if app.components else of_deployments) <= usable
    assert not {"revoke-auth", "buggy-image", "memory-leak", "wrong-binary", "cpu-hog"} & usable
    assert "services of faultset" in unavailable_reason(faults()["revoke-auth"], app)
    schedule = Schedule(app, app.default_mix, 1)
    drawn = [schedule.next() for _ in range(200)]
    assert all("{" not in request.path for request in drawn)
    assert {request.kind for request in drawn} == set(range(len(schedule.endpoints)))


def test_an_app_file_is_read_and_a_wrong_one_is_told_its_first_error(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    text = """
name: shop
title: A shop
version: "1"
label_key: app
deployed: {namespace: shop}
entry: [web, 80]
services:
  web: {kind: frontend, callees: [cart], objects: {Deployment: web-deployment}}
  cart: {kind: logic}
requests: {home: {method: GET, path: /}}
mixes: {home: {title: the front page, shares: {home: 1.0}}}
default_mix: home
"""
    path.write_text(text, encoding="utf-8")
    app = load_app(str(path))
    assert (app.calls, app.deployed and app.deployed.namespace) == ((("web", "cart"),), "shop")
    path.write_text(text.replace("deployed: {namespace: shop}", ""), encoding="utf-8")
    with pytest.raises(
        UsageError,
        match=r"line 9, field services\.web: a service that is not yet deployed must have container and program",
    ):
        load_app(str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        load_app(str(tmp_path / "none.yaml"))


def test_an_app_file_that_is_no_text_of_a_sensible_size_gets_one_sentence(tmp_path: Path) -> None:
    pipe, endless, circle, large = (tmp_path / f"{name}.yaml" for name in ("pipe", "endless", "circle", "large"))
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    circle.symlink_to(circle)
    large.write_bytes(b"#" * (2 << 20))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff")
    for path in (pipe, endless, circle, large, binary, tmp_path / ("x" * 300 + ".yaml"), tmp_path / "a\x1b[2J.yaml"):
        with pytest.raises(UsageError) as caught:
            load_app(str(path))
        assert "\n" not in str(caught.value)
        assert "\x1b" not in str(caught.value)
