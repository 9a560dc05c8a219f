"""The load of one episode as a pod of the control namespace; its results are fetched when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.collector.ipc.channel import decode, encode
from faultset.collector.load.http_driver import LOAD_PORT
from faultset.collector.load.messages import BeginLoad, ChangeLoad, LoadStatistics
from faultset.collector.load.source import RequestSource
from faultset.collector.load.workloads.traffic import Traffic
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.manifests import AS_ORDINARY_USER
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPEC_PATH
from faultset.collector.spec.files import write
from faultset.core.errors import PlatformError

NAME = "load"
_START_TIMEOUT_S = 90.0
_RESULTS = "/tmp/requests.bin"


class LoadPod:
    """Creates the load's pod, and begins, changes, reads and stops the load.

    Parameters
    ----------
    control
        The control namespace's objects.
    image
        Image with our programs.
    folder
        For the results fetched so far.
    """

    def __init__(self, control: Objects, app: AppSpec, *, image: str, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.results = folder / "requests.bin"
        self._control, self._app, self._image = control, app, image
        self._running = False

    @property
    def _api(self) -> Api:
        return self._control.api

    def create(self, target: str) -> None:
        """Create the pod, which waits for the order to send to a base URL."""
        self._control.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME},
                "data": {SPEC_PATH.rpartition("/")[2]: write(self._app)},
            }
        )
        options = {"app": SPEC_PATH, "target": target, "results": _RESULTS, "http": LOAD_PORT}
        argv = ["python3", "-m", "faultset.collector.load"]
        argv += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._control.create(_pod(self._image, argv))

    def start(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic) -> None:
        """Begin to send; raise PlatformError when the load does not come up."""
        self._begin(BeginLoad(mix=mix, rate_rps=rate_rps, seed=seed, traffic=traffic.to_json()))
        self._running = True

    def step(self, factor: float) -> None:
        """Change the load; without a load there is nothing to change."""
        if self._running:
            self._api.call("POST", self._path("/step"), body=encode(ChangeLoad(factor=factor)))

    def stop(self) -> None:
        """End the load and fetch the last results; may be called twice."""
        if self._running:
            self._running = False
            self._api.call("POST", self._path("/stop"))
            self.fetch()

    def fetch(self) -> None:
        """Bring the local copy of the results up to date."""
        offset = self.results.stat().st_size if self.results.exists() else 0
        new = self._api.get_text(self._path("/results"), {"offset": offset})
        with self.results.open("ab") as file:
            file.write(new)

    def clock_offset_s(self) -> float:
        """Return how far the clock of the load's node is ahead of ours, in seconds, to about half a round trip."""
        before_ns = time.time_ns()
        theirs_ns = decode(LoadStatistics, self._api.call("GET", self._path("/stats"))).time_ns
        return (theirs_ns - (before_ns + time.time_ns()) / 2) / 1e9

    def check(self) -> None:
        """Raise PlatformError when the pod has ended: its node may have evicted it."""
        if not self._running:
            return
        pod = self._control.find("Pod", NAME)
        phase = (pod or {}).get("status", {}).get("phase")
        if pod is None or phase != "Running" or pod["metadata"].get("deletionTimestamp"):
            reason = (pod or {}).get("status", {}).get("reason") or phase or "it was deleted"
            raise PlatformError(f"the load's pod does not run any more ({reason})")

    def _path(self, verb: str) -> str:
        return f"/api/v1/namespaces/{self._control.namespace}/pods/{NAME}:{LOAD_PORT}/proxy{verb}"

    def _begin(self, order: BeginLoad) -> None:
        deadline, said = time.monotonic() + _START_TIMEOUT_S, ""
        while True:
            pod = self._control.get("Pod", NAME)
            if pod.get("status", {}).get("phase") == "Running":
                try:
                    self._api.call("POST", self._path("/begin"), body=encode(order), retry_timeout_s=0)
                except PlatformError as error:
                    said = f"; it said last: {error}"
                else:
                    return
            if time.monotonic() > deadline:
                raise PlatformError(f"the load did not begin within {_START_TIMEOUT_S:g} s: {_state(pod)}{said}")
            time.sleep(0.2)


class LoadRequests(RequestSource):
    """The table of requests, brought up to date before it is read."""

    def __init__(self, load: LoadPod):
        super().__init__(load.results)
        self._load = load

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the requests that were scheduled in `[start_ns, end_ns)`."""
        self._load.fetch()
        return super().snapshot(start_ns, end_ns)


def _state(pod: dict[str, Any]) -> str:
    status = pod.get("status", {})
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason"):
            return f"{waiting['reason']} {waiting.get('message', '')}".strip()
    messages = [c.get("message", "") for c in status.get("conditions", []) if c.get("status") == "False"]
    return next((m for m in messages if m), str(status.get("phase", "unknown")))


def _pod(image: str, argv: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "labels": {"app": NAME}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": dict(AS_ORDINARY_USER),
            "containers": [
                {
                    "name": NAME,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": argv,
                    "ports": [{"containerPort": LOAD_PORT}],
                    "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
                    "volumeMounts": [{"name": "app", "mountPath": SPEC_PATH.rpartition("/")[0], "readOnly": True}],
                }
            ],
            "volumes": [{"name": "app", "configMap": {"name": NAME}}],
        },
    }
