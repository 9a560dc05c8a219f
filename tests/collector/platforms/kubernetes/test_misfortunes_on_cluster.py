"""What goes wrong with clusters: each ends in one sentence, code 4, and nothing left behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_campaigns import COLLECT, SHORT, await_phase

from faultset.collector.ipc.launcher import tail
from faultset.collector.platforms.kubernetes.client import MERGE_PATCH, Api, build_path
from faultset.collector.platforms.kubernetes.manifests import describe_unready
from faultset.collector.platforms.kubernetes.objects import (
    RENEWED,
    Objects,
    create_namespace,
    list_namespaces,
    remove_namespaces,
)
from faultset.collector.platforms.kubernetes.preflight import ROLE_RULES
from faultset.core.errors import PlatformError

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[4]
FAULTSET = [sys.executable, "-c", "from faultset.core.start import faultset; faultset()"]
ONE = ["--faults", "target-port", "--apps", "hotel", "--normal", "0", *SHORT]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env)


def volumes(api: Api) -> set[str]:
    return {item["metadata"]["name"] for item in api.get(build_path("PersistentVolume", ""))["items"]}


@pytest.fixture
def nothing_left(api: Api) -> Iterator[None]:
    before = {item["metadata"]["name"] for item in list_namespaces(api)}, volumes(api)
    yield
    deadline, left = time.monotonic() + 60, (set(), set())
    while time.monotonic() < deadline:
        left = {item["metadata"]["name"] for item in list_namespaces(api)} - before[0], volumes(api) - before[1]
        if left == (set(), set()):
            return
        time.sleep(1)
    raise AssertionError(f"left behind: {left}")


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 4, (done.returncode, done.stderr[-2000:])
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_no_kubeconfig(tmp_path: Path) -> None:
    done = run(*COLLECT, *ONE, "--out", str(tmp_path / "d"), KUBECONFIG=str(tmp_path / "no"), HOME=str(tmp_path))
    assert "set KUBECONFIG or write ~/.kube/config" in sentence(done)
    assert not (tmp_path / "d").exists()


def test_a_server_that_cannot_be_reached(api: Api, tmp_path: Path) -> None:
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config))
    done = run(*COLLECT, *ONE, "--out", str(tmp_path / "d"), KUBECONFIG=str(file))
    assert "cannot reach the cluster's API server https://127.0.0.1:9" in sentence(done)


def test_missing_prometheus_and_jaeger(api: Api, tmp_path: Path, nothing_left: None) -> None:
    for option, name in (("--prometheus-url", "Prometheus"), ("--jaeger-url", "Jaeger")):
        done = run(*COLLECT, *ONE, option, "http://127.0.0.1:9", "--out", str(tmp_path / name))
        assert name in sentence(done)


def test_an_image_that_no_node_has(api: Api, tmp_path: Path, nothing_left: None) -> None:
    done = run(*COLLECT, *ONE, "--image", "registry.invalid/faultset/app", "--out", str(tmp_path / "d"))
    said = sentence(done)
    assert "registry.invalid/faultset/app:1.0.0" in said
    assert "build" in said


def _account(api: Api, folder: Path, role: str | None) -> Path:
    """Return a kubeconfig of a service account with a cluster role, or with none."""
    name = f"collector-{secrets.token_hex(3)}"
    kubectl = ["kubectl", "--namespace", "default"]
    subprocess.run([*kubectl, "create", "serviceaccount", name], check=True, capture_output=True)
    if role:
        bind = [*kubectl, "create", "clusterrolebinding", name, f"--clusterrole={role}"]
        subprocess.run([*bind, f"--serviceaccount=default:{name}"], check=True, capture_output=True)
    token = subprocess.run([*kubectl, "create", "token", name], check=True, capture_output=True, text=True).stdout
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    config["users"] = [{"name": "u", "user": {"token": token.strip()}}]
    config["contexts"][0]["context"]["user"] = "u"
    file = folder / name
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.fixture
def accounts(api: Api) -> Iterator[None]:
    yield
    for kind in ("serviceaccount", "clusterrolebinding"):
        listed = run("kubectl", "--namespace", "default", "get", kind, "--output", "name").stdout.split()
        mine = [name for name in listed if "/collector-" in name]
        if mine:
            run("kubectl", "--namespace", "default", "delete", *mine)
    run("kubectl", "delete", "clusterrole", "faultset-collector")


def test_a_forbidden_verb_is_named(api: Api, tmp_path: Path, accounts: None, nothing_left: None) -> None:
    done = run(*COLLECT, *ONE, "--out", str(tmp_path / "d"), KUBECONFIG=str(_account(api, tmp_path, None)))
    said = sentence(done)
    assert "namespaces" in said
    assert "grant the role in docs/how-to/kubernetes.md" in said


def test_the_documented_role_is_what_the_platform_asks_for() -> None:
    role = yaml.safe_load((ROOT / "docs" / "how-to" / "kubernetes-role.yaml").read_text())
    documented = {(g, r, v) for x in role["rules"] for g in x["apiGroups"] for r in x["resources"] for v in x["verbs"]}
    assert documented == {(rule.group, r, v) for rule in ROLE_RULES for r in rule.resources for v in rule.verbs}


@pytest.mark.slow
def test_the_documented_role_is_enough(api: Api, tmp_path: Path, accounts: None, nothing_left: None) -> None:
    subprocess.run(["kubectl", "apply", "-f", str(ROOT / "docs" / "how-to" / "kubernetes-role.yaml")], check=True)
    config = _account(api, tmp_path, "faultset-collector")
    faults = ["--faults", "target-port,network-loss,container-kill,revoke-auth,cpu-throttle", "--apps", "hotel"]
    done = run(
        *COLLECT, *faults, "--normal", "0", *SHORT, "-j", "1", "--out", str(tmp_path / "d"), KUBECONFIG=str(config)
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_namespace_that_does_not_end_says_what_it_waits_for(api: Api) -> None:
    name = f"stuck-{secrets.token_hex(3)}"
    create_namespace(api, name, {})
    objects = Objects(api, name)
    metadata = {"name": "held", "finalizers": ["example.com/never"]}
    objects.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    try:
        with pytest.raises(PlatformError, match=r"still terminating after 8 s .*(?s:finalizer).*faultset recover"):
            remove_namespaces(api, (name,), timeout_s=8)
    finally:
        objects.patch("ConfigMap", "held", {"metadata": {"finalizers": None}})
        remove_namespaces(api, (name,))


def test_too_little_room_shows_the_schedulers_reason(api: Api) -> None:
    name = f"room-{secrets.token_hex(3)}"
    create_namespace(api, name, {})
    objects = Objects(api, name)
    container = {"name": "c", "image": "faultset/app:1.0.0", "resources": {"requests": {"cpu": "900"}}}
    try:
        run("kubectl", "--namespace", name, "wait", "--for=create", "serviceaccount/default", "--timeout=20s")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
        objects.create(pod)
        for _ in range(100):
            if "Insufficient cpu" in describe_unready(objects.list("Pod")):
                return
            time.sleep(0.1)
        raise AssertionError(describe_unready(objects.list("Pod")))
    finally:
        remove_namespaces(api, (name,))


@pytest.mark.parametrize("moment", ["baseline", "fault"])
@pytest.mark.slow
def test_what_a_killed_campaign_leaves_is_found_and_removed(
    api: Api, tmp_path: Path, moment: str, nothing_left: None
) -> None:
    out = tmp_path / "data"
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen([*COLLECT, *ONE, "--out", str(out)], stderr=file, start_new_session=True)
    await_phase(out, moment, process, lambda: tail(log))
    children = [int(p) for p in run("pgrep", "--parent", str(process.pid)).stdout.split()]
    for pid in (process.pid, *children):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert list_namespaces(api)
    recovered = run(*FAULTSET, "recover", "--platform", "kubernetes", "--out", str(out))
    assert recovered.returncode == 0, recovered.stderr
    assert "removed the remains of 1 episode" in recovered.stdout
    assert list((out / "episodes").glob("*")) == [] if (out / "episodes").exists() else True
    again = run(*FAULTSET, "recover", "--platform", "kubernetes", "--out", str(out))
    assert "nothing to remove" in again.stdout


def test_namespaces_of_another_machines_dead_collector_are_removed_and_live_ones_stay(api: Api, tmp_path: Path) -> None:
    dead, live = (f"stray-{secrets.token_hex(3)}" for _ in range(2))
    for name in (dead, live):
        create_namespace(api, name, {"faultset.dev/episode": "x", "faultset.dev/pair": name})
    change: dict[str, Any] = {"metadata": {"annotations": {RENEWED: str(int(time.time()) - 600)}}}
    api.call("PATCH", build_path("Namespace", "", dead), body=change, content_type=MERGE_PATCH)
    try:
        done = run(*FAULTSET, "recover", "--platform", "kubernetes", "--out", str(tmp_path / "none"))
        assert done.returncode == 0, done.stderr
        assert f"namespace {dead}" in done.stdout
        assert {item["metadata"]["name"] for item in list_namespaces(api)} & {dead, live} == {live}
    finally:
        remove_namespaces(api, (live,))
