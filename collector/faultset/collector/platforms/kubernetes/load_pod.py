"""Run an episode's load generator in a pod of the control namespace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.collector.ipc.channel import decode, encode
from faultset.collector.load.episode_load import BeginLoad, ChangeLoad, LoadStatistics
from faultset.collector.load.http_driver import LOAD_PORT
from faultset.collector.load.request_source import RequestSource
from faultset.collector.load.traffic import Traffic
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.manifests import AS_ORDINARY_USER, describe_pod
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPEC_PATH
from faultset.collector.spec.files import format_spec
from faultset.core.errors import PlatformError

NAME = "load"
_START_TIMEOUT_S = 90.0
_RESULTS_FILE = "/tmp/requests.bin"


class LoadPod:
    """Creates the pod of the load generator; starts, changes and stops the load, and fetches its results.

    Parameters
    ----------
    control
        The objects of the control namespace.
    image
        Image with our programs.
    folder
        Folder for the fetched results.
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
        """Create the pod, which waits for `start` before it sends requests to the base URL `target`."""
        self._control.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME},
                "data": {SPEC_PATH.rpartition("/")[2]: format_spec(self._app)},
            }
        )
        options = {"app": SPEC_PATH, "target": target, "results": _RESULTS_FILE, "http": LOAD_PORT}
        argv = ["python3", "-m", "faultset.collector.load"]
        argv += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._control.create(_build_pod(self._image, argv))

    def start(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic) -> None:
        """Start the load; raise PlatformError if it does not start."""
        self._begin(BeginLoad(mix=mix, rate_rps=rate_rps, seed=seed, traffic=traffic.to_json()))
        self._running = True

    def step(self, factor: float) -> None:
        """Multiply the planned rate by `factor`, if the load is running."""
        if self._running:
            self._api.call("POST", self._path("/step"), body=encode(ChangeLoad(factor=factor)))

    def stop(self) -> None:
        """Stop the load and fetch the last results; may be called twice."""
        if self._running:
            self._running = False
            self._api.call("POST", self._path("/stop"))
            self.fetch()

    def fetch(self) -> None:
        """Fetch new results into the local copy."""
        offset = self.results.stat().st_size if self.results.exists() else 0
        new = self._api.get_text(self._path("/results"), {"offset": offset})
        with self.results.open("ab") as file:
            file.write(new)

    def clock_offset_s(self) -> float:
        """Return how many seconds the clock of the load generator's node is ahead, to within half a round trip."""
        before_ns = time.time_ns()
        node_ns = decode(LoadStatistics, self._api.call("GET", self._path("/stats"))).time_ns
        return (node_ns - (before_ns + time.time_ns()) / 2) / 1e9

    def check(self) -> None:
        """Raise PlatformError if the pod has ended, for example because it was evicted."""
        if not self._running:
            return
        pod = self._control.find("Pod", NAME)
        phase = (pod or {}).get("status", {}).get("phase")
        if pod is None or phase != "Running" or pod["metadata"].get("deletionTimestamp"):
            reason = (pod or {}).get("status", {}).get("reason") or phase or "it was deleted"
            raise PlatformError(f"the load generator's pod has stopped ({reason}); repeat the episode")

    def _path(self, verb: str) -> str:
        return f"/api/v1/namespaces/{self._control.namespace}/pods/{NAME}:{LOAD_PORT}/proxy{verb}"

    def _begin(self, request: BeginLoad) -> None:
        deadline, last_error = time.monotonic() + _START_TIMEOUT_S, ""
        while True:
            pod = self._control.get("Pod", NAME)
            if pod.get("status", {}).get("phase") == "Running":
                try:
                    self._api.call("POST", self._path("/begin"), body=encode(request), retry_timeout_s=0)
                except PlatformError as error:
                    last_error = f"; last error: {error}"
                else:
                    return
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"the load did not start within {_START_TIMEOUT_S:g} s: {describe_pod(pod)}{last_error}"
                )
            time.sleep(0.2)


class LoadRequests(RequestSource):
    """The source of requests, which fetches new results before it reads."""

    def __init__(self, load: LoadPod):
        super().__init__(load.results)
        self._load = load

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the requests scheduled in `[start_ns, end_ns)`."""
        self._load.fetch()
        return super().snapshot(start_ns, end_ns)


def _build_pod(image: str, argv: list[str]) -> dict[str, Any]:
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
