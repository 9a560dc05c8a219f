"""An API server with a Chaos Mesh that works, fails or hangs, and the schemas of its kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from faultset.collector.platforms.kubernetes.chaos_mesh import experiments
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import PLURALS

CONTROL, APP = "hotel-1-control", "hotel-1"
_SCHEMAS = json.loads((Path(__file__).parent / "experiment_schemas.json").read_text("utf-8"))["kinds"]
_CHAOS = re.compile(r"/apis/chaos-mesh\.org/v1alpha1/namespaces/([\w-]+)/(\w+)(?:/([\w-]+))?")
_POD = re.compile(r"/api/v1/namespaces/([\w-]+)/pods/([\w-]+)")


def checked(manifest: dict[str, Any]) -> dict[str, Any]:
    """Validate an experiment against its kind's schema and the rules of the webhooks, and return it."""
    jsonschema.validate(manifest["spec"], _SCHEMAS[manifest["kind"]])
    spec = manifest["spec"]
    times = [spec.get("duration"), *(spec.get("delay") or {}).values()] if spec.get("action") == "delay" else []
    for text in (one for one in times if one is not None and one != "0"):
        assert re.fullmatch(r"\d+(\.\d+)?(ms|s)", text), text
    for action in ("loss", "corrupt", "duplicate"):
        if action in spec:
            assert 0 < float(spec[action][action]) <= 100
    assert spec.get("action") not in ("pod-failure",) or "duration" in spec
    return manifest


@dataclass
class ChaosMesh:
    """Answers as an API server with Chaos Mesh does, without a pod behind it.

    Attributes
    ----------
    failing
        What its daemon says instead of injecting; empty when it injects.
    hanging
        Whether finalizers keep experiments.
    """

    refused: Any
    failing: str = ""
    hanging: bool = False
    kinds: tuple[str, ...] = tuple(PLURALS)
    unready: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    experiments: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        if path == "/apis/chaos-mesh.org/v1alpha1" and self.kinds:
            return {"resources": [{"name": PLURALS.get(kind, kind.lower()), "kind": kind} for kind in self.kinds]}
        if path == "/api/v1/pods":
            return {"items": [self._own_pod(name) for name in ("controller-manager", "chaos-daemon")]}
        if path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            return {"status": {"allowed": True}}
        if found := _POD.fullmatch(path):
            return self._pod(method, found[2])
        if (found := _CHAOS.fullmatch(path)) and self.kinds:
            return self._chaos(method, found[1], found[2], found[3], params, body)
        raise self._missing(path)

    def _missing(self, path: str) -> Exception:
        return self.refused(404, {"kind": "Status", "message": f"{path} not found", "code": 404})

    def _own_pod(self, component: str) -> dict[str, Any]:
        ready = str(component not in self.unready)
        labels = {"app.kubernetes.io/component": component}
        return {"metadata": {"labels": labels}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}

    def _pod(self, method: str, name: str) -> Any:
        if name not in self.pods:
            raise self._missing(name)
        if method == "DELETE":
            self.removed.append(f"pods/{name}")
            return self.pods.pop(name)
        return self.pods[name]

    def _chaos(
        self, method: str, namespace: str, plural: str, name: str | None, params: dict[str, list[str]], body: bytes
    ) -> Any:
        if plural in experiments.POD_RESOURCES:
            self.removed.append(f"{plural}/{namespace}/{name}")
            return {}
        if method == "POST":
            return self._create(json.loads(body), dry="dryRun" in params)
        if name is None:
            assert params["labelSelector"] == ["app.kubernetes.io/managed-by=faultset"]
            return {"items": [one for (kind, _), one in self.experiments.items() if kind == plural]}
        if (plural, name) not in self.experiments:
            raise self._missing(path=f"{plural}/{name}")
        if method == "PATCH":
            assert json.loads(body) == {"metadata": {"finalizers": None}}
            self.removed.append(f"finalizers of {plural}")
            return self.experiments.pop((plural, name))
        if method == "DELETE" and not self.hanging:
            self.removed.append(plural)
            return self.experiments.pop((plural, name))
        return self.experiments[plural, name]

    def _create(self, wanted: dict[str, Any], *, dry: bool) -> Any:
        checked(wanted)
        if wanted["metadata"]["name"] in self.rejected:
            raise self.refused(422, {"kind": "Status", "message": "spec.action: unsupported", "code": 422})
        if dry:
            return wanted
        self.made.append(wanted)
        [[namespace, [pod]]] = wanted["spec"]["selector"]["pods"].items()
        event = {"type": "Failed", "operation": "Apply", "message": self.failing, "timestamp": "2026-01-01T00:00:00Z"}
        record = {
            "id": f"{namespace}/{pod}",
            "phase": "Not Injected" if self.failing else "Injected",
            "events": [event] if self.failing else [],
        }
        selected = {"type": "Selected", "status": "True"}
        injected = {"type": "AllInjected", "status": str(not self.failing)}
        status = {"conditions": [selected, injected], "experiment": {"containerRecords": [record]}}
        self.experiments[PLURALS[wanted["kind"]], wanted["metadata"]["name"]] = {**wanted, "status": status}
        return wanted


@pytest.fixture
def chaos_mesh(refused: Any, monkeypatch: pytest.MonkeyPatch) -> ChaosMesh:
    """A working Chaos Mesh with one pod of the application, and short waits."""
    monkeypatch.setattr(experiments, "_POLL_S", 0.01)
    for name in ("inject", "remove", "remove_all"):
        brief(monkeypatch, name)
    made = ChaosMesh(refused=refused)
    made.pods["geo-1"] = pod()
    return made


def brief(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Shorten the timeout of a function to 0.1 s."""
    function: Callable[..., Any] = getattr(experiments, name)
    monkeypatch.setattr(function, "__kwdefaults__", {"timeout_s": 0.1})


def pod(uid: str = "u-1") -> dict[str, Any]:
    """Return a pod of the application."""
    container = {"name": "hotel-reserv-geo", "image": "faultset/app:1.0.0", "ports": [{"containerPort": 8083}]}
    metadata = {"name": "geo-1", "uid": uid, "labels": {"io.kompose.service": "geo"}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Running"}}


@pytest.fixture
def validated() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an experiment that is valid for its kind's schema."""
    return checked


@pytest.fixture
def geo() -> dict[str, Any]:
    """The pod of the application."""
    return pod()
