"""An application that plain kubectl has deployed, without our labels, under names of its own."""

from __future__ import annotations

import copy
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from faultset.collector.apps import load_app
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.platforms.kubernetes.telemetry.discovery import discover
from faultset.collector.spec.manifests import manifests
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.labels import read_label
from faultset.datasets.views import EpisodeView

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HOTEL = load_app("hotel")
PARTS = ("frontend", "search", "geo", "rate", "profile", "recommendation", "user", "reservation")


def _relabelled(telemetry_endpoint: str) -> Iterator[dict[str, Any]]:
    """Yield a shop of existing programs with other labels and names."""
    for found in manifests(HOTEL, telemetry_endpoint=telemetry_endpoint):
        if found["kind"].startswith("PersistentVolume"):
            continue
        made = copy.deepcopy(found)
        labels = {"team": "booking", "part": made["metadata"]["name"]}
        made["metadata"]["labels"] = labels
        if made["kind"] == "Service":
            made["spec"]["selector"] = labels
        if made["kind"] == "Deployment":
            made["metadata"]["name"] += "-deployment"
            made["spec"]["selector"]["matchLabels"] = labels
            made["spec"]["template"]["metadata"]["labels"] = labels
            for volume in made["spec"]["template"]["spec"]["volumes"]:
                if "persistentVolumeClaim" in volume:
                    volume.clear()
                    volume.update({"name": "data", "emptyDir": {}})
        yield made


@pytest.fixture
def shop(api: Api, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    namespace = f"shop-{secrets.token_hex(3)}"
    file = tmp_path / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(_relabelled(discover(api).otlp_http)), encoding="utf-8")
    _kubectl("create", "namespace", namespace)
    try:
        _kubectl("apply", "--namespace", namespace, "--filename", str(file))
        _kubectl("wait", "--namespace", namespace, "--for=condition=Available", "--timeout=120s", "deployment", "--all")
        app = {
            "name": "shop",
            "title": "A shop that runs already",
            "version": "1",
            "label_key": "part",
            "deployed": {"namespace": namespace},
            "entry": ["frontend", 5000],
            "workload_of": "hotel",
            "services": {
                name: {
                    "kind": service.kind,
                    "callees": list(service.calls),
                    "stores": list(service.stores),
                    "objects": {"Deployment": f"{name}-deployment"},
                }
                for name, service in HOTEL.services.items()
            },
        }
        path = tmp_path / "shop.yaml"
        path.write_text(yaml.safe_dump(app), encoding="utf-8")
        yield namespace, path
    finally:
        _kubectl("delete", "namespace", namespace, "--wait=false")


def _kubectl(*words: str) -> str:
    return subprocess.run(["kubectl", *words], check=True, capture_output=True, text=True).stdout


def _specs(api: Api, namespace: str) -> dict[tuple[str, str], Any]:
    objects = Objects(api, namespace)
    return {
        (kind, found["metadata"]["name"]): found["spec"]
        for kind in ("Deployment", "Service")
        for found in objects.list(kind)
    }


def test_its_episodes_are_collected_and_it_is_left_as_it_was(api: Api, shop: tuple[str, Path], tmp_path: Path) -> None:
    namespace, app = shop
    before, out = _specs(api, namespace), tmp_path / "data"
    options = ["--platform", "kubernetes", "--apps", str(app), "--faults", "wrong-selector,scale-to-zero", "--normal"]
    options += ["1", "--warmup", "8s", "--healthy", "25s", "--faulty", "25s", "--cooldown", "2s", "--out", str(out)]
    command = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    verdicts = {}
    for path in (out / "episodes").iterdir():
        label, view = read_label(path), EpisodeView(path)
        verdicts[label.fault] = label.verdict
        assert set(PARTS) <= set(view.metrics()["service"].dropna().astype(str))
        assert set(PARTS) <= set(view.spans()["service"].dropna().astype(str))
        assert set(PARTS) <= set(view.logs()["service"].dropna().astype(str))
        assert f"{PARTS[1]}-deployment" in set(view.objects()["name"].astype(str))
    assert verdicts == {"wrong-selector": "manifest", "scale-to-zero": "manifest", None: "none"}
    assert _specs(api, namespace) == before
    names = [n["metadata"]["name"] for n in api.get("/api/v1/namespaces")["items"]]
    assert not [name for name in names if name.startswith("shop-") and name.endswith("-control")]


def test_it_is_recorded_with_an_incident(api: Api, shop: tuple[str, Path], tmp_path: Path) -> None:
    namespace, app = shop
    before, out = _specs(api, namespace), tmp_path / "data"
    options = ["--platform", "kubernetes", "--apps", str(app), "--faults", "scale-to-zero", "--targets", "rate"]
    options += ["--recording", "3m", "--incidents", "1", "--rate", "8", "--warmup", "8s", "--healthy", "25s"]
    options += ["--faulty", "25s", "--cooldown", "2s", "--chunk", "60s", "--out", str(out)]
    command = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    (recording,) = open_dataset(out).recordings()
    (incident,) = recording.truth.incidents
    assert (incident.fault, incident.verdict) == ("scale-to-zero", "manifest")
    assert set(PARTS) <= set(recording.wide(*recording.view.window, step_s=5).columns.get_level_values(0))
    assert _specs(api, namespace) == before


def test_a_finished_job_in_its_namespace_does_not_hold_up_the_start(
    api: Api, shop: tuple[str, Path], tmp_path: Path
) -> None:
    namespace, app = shop
    deployment = Objects(api, namespace).get("Deployment", "rate-deployment")
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    _kubectl("create", "job", "migration", "--namespace", namespace, f"--image={image}", "--", "true")
    _kubectl("wait", "--namespace", namespace, "--for=condition=Complete", "--timeout=60s", "job/migration")
    options = ["--platform", "kubernetes", "--apps", str(app), "--faults", "noop", "--normal", "1", "--warmup", "8s"]
    options += ["--healthy", "25s", "--faulty", "25s", "--cooldown", "2s", "--out", str(tmp_path / "data")]
    command = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert len(open_dataset(tmp_path / "data")) == 1


def test_a_fault_that_needs_programs_of_ours_says_so(shop: tuple[str, Path], tmp_path: Path) -> None:
    options = [
        "--platform",
        "kubernetes",
        "--apps",
        str(shop[1]),
        "--faults",
        "revoke-auth",
        "--out",
        str(tmp_path / "d"),
    ]
    command = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "works only in services of faultset" in run.stderr
    assert "Traceback" not in run.stderr
