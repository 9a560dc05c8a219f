"""The platforms that run an application on a shared Kubernetes cluster."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from faultset.collector.agent.program import VOLUME_ROOT
from faultset.collector.ipc.channel import decode, encode
from faultset.collector.load.episode_load import BeginLoad, ChangeLoad, LoadStatistics
from faultset.collector.load.http_driver import LOAD_PORT
from faultset.collector.load.request_source import RequestSource
from faultset.collector.load.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.base import CannotStart, HostLoad
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.journal import Journal, JournaledPlatform
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import ChaosMeshImpairer
from faultset.collector.platforms.kubernetes.client import Api, import_client
from faultset.collector.platforms.kubernetes.impairer import (
    EphemeralImpairer,
    Impairer,
    NodeAgents,
    build_agent_manifest,
)
from faultset.collector.platforms.kubernetes.manifests import (
    AS_ORDINARY_USER,
    adapt_manifests,
    component_volumes,
    describe_pod,
    describe_unready,
    find_missing_images,
    lacks_storage_class,
    replace_images,
    resolve_image,
)
from faultset.collector.platforms.kubernetes.objects import (
    APP_NAMESPACE,
    EPISODE,
    INJECTOR,
    PRIVILEGED,
    EpisodeNamespaces,
    Heartbeat,
    Objects,
    SharedDefinition,
    await_removal,
    create_namespace,
    delete_namespaces,
    remove_volumes,
)
from faultset.collector.platforms.kubernetes.preflight import await_agents
from faultset.collector.platforms.kubernetes.recovery import INJECTOR_NOTE, AppObjects, check_deployed
from faultset.collector.platforms.kubernetes.settings import CHAOS_MESH, ClusterSettings, explain_missing_images
from faultset.collector.platforms.kubernetes.telemetry.discovery import TelemetryServers, discover
from faultset.collector.platforms.kubernetes.telemetry.jaeger import JaegerSource
from faultset.collector.platforms.kubernetes.telemetry.prometheus import PrometheusSource
from faultset.collector.platforms.kubernetes.watches import LogStreams, Observer
from faultset.collector.platforms.telemetry_sources import EventSource, LogSource, ObjectSource
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPEC_PATH
from faultset.collector.spec.files import format_spec
from faultset.collector.spec.manifests import manifests
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

LOAD_POD = "load"
_START_TIMEOUT_S = 90.0
_RESULTS_FILE = "/tmp/requests.bin"


class LoadPod:
    """Creates the pod of the load generator; starts, changes and stops the load, and fetches its results."""

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
                "metadata": {"name": LOAD_POD},
                "data": {SPEC_PATH.rpartition("/")[2]: format_spec(self._app)},
            }
        )
        options = {"app": SPEC_PATH, "target": target, "results": _RESULTS_FILE, "http": LOAD_PORT}
        argv = ["python3", "-m", "faultset.collector.load"]
        argv += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._control.create(_build_load_pod(self._image, argv))

    def start(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic) -> None:
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
        offset = self.results.stat().st_size if self.results.exists() else 0
        new = self._api.call("GET", self._path("/results"), query={"offset": offset})
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
        pod = self._control.find("Pod", LOAD_POD)
        phase = (pod or {}).get("status", {}).get("phase")
        if pod is None or phase != "Running" or pod["metadata"].get("deletionTimestamp"):
            reason = (pod or {}).get("status", {}).get("reason") or phase or "it was deleted"
            raise PlatformError(f"the load generator's pod has stopped ({reason}); repeat the episode")

    def _path(self, verb: str) -> str:
        return f"/api/v1/namespaces/{self._control.namespace}/pods/{LOAD_POD}:{LOAD_PORT}/proxy{verb}"

    def _begin(self, request: BeginLoad) -> None:
        deadline, last_error = time.monotonic() + _START_TIMEOUT_S, ""
        while True:
            pod = self._control.get("Pod", LOAD_POD)
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
        self._load.fetch()
        return super().snapshot(start_ns, end_ns)


def _build_load_pod(image: str, argv: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": LOAD_POD, "labels": {"app": LOAD_POD}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": dict(AS_ORDINARY_USER),
            "containers": [
                {
                    "name": LOAD_POD,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": argv,
                    "ports": [{"containerPort": LOAD_PORT}],
                    "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
                    "volumeMounts": [{"name": "app", "mountPath": SPEC_PATH.rpartition("/")[0], "readOnly": True}],
                }
            ],
            "volumes": [{"name": "app", "configMap": {"name": LOAD_POD}}],
        },
    }


_AGENT_TIMEOUT_S = 60.0


class KubernetesPlatform(AppObjects, JournaledPlatform):
    """Runs the application of one episode in a namespace of a cluster.

    Parameters
    ----------
    episode
        Id of the episode, used as a label to find its namespaces after a crash.
    """

    name = "kubernetes"
    ready_timeout_s = 180.0
    poll_s = 0.4

    def __init__(self, app: AppSpec, folder: Path, *, journal: Journal, episode: str, settings: ClusterSettings):
        self.namespaces = EpisodeNamespaces.draw(app.name, app.deployed.namespace if app.deployed else None)
        super().__init__(app, journal, Api(settings.kubeconfig, context=settings.context), self.namespaces.app)
        self.folder = Path(folder).absolute()
        self._episode, self._settings = episode, settings
        self._control = Objects(self.api, self.namespaces.control)
        self._definition = SharedDefinition(self.api, app, self.namespaces.app)
        self._is_deployed = self._own_volumes = False
        self._telemetry: TelemetryServers | None = None
        self._sources: dict[str, Source] = {}
        self._heartbeat = Heartbeat(self.api, self.namespaces)
        self._load_active = False
        services = frozenset(app.services)
        self._logs_folder = self.folder / "logs"
        self._logs = LogStreams(self.api, self.namespaces.app, self._logs_folder)
        self._observer = Observer(
            self._objects, label_key=app.label_key, services=services, pod_changed=self._logs.pod_changed
        )
        image = resolve_image(app.image, settings.image)
        self._image = image
        self._agents = NodeAgents(self.api, self.namespaces.control) if settings.privileged else None
        ephemeral = EphemeralImpairer(self.api, self.namespaces.app, image)
        self._ephemeral = None if settings.privileged else ephemeral
        self._impairer: Impairer = self._agents or ephemeral
        self.control_labels: dict[str, str] = {}
        self._load = LoadPod(self._control, app, image=image, folder=self.folder / "load")

    def deploy(self) -> None:
        """Create the namespaces, apply the manifests and start recording; return without waiting for readiness."""
        self._telemetry = discover(
            self.api, prometheus_url=self._settings.prometheus_url, jaeger_url=self._settings.jaeger_url
        )
        is_ours = self.app.deployed is None
        if not is_ours:
            check_deployed(self._objects, self.app)
        names = {"app": self.namespaces.app, "control": self.namespaces.control}
        self._definition.check()
        self._own_volumes = lacks_storage_class(self.api, self.app)
        definition = self._definition.name
        self.journal.note("namespaces", [self.namespaces.app], **names, created=is_ours, definition=definition)
        self._is_deployed = True
        try:
            labels = {EPISODE: self._episode, APP_NAMESPACE: self.namespaces.app}
            control_labels = {**labels, **(PRIVILEGED if self._agents else {}), **self.control_labels}
            create_namespace(self.api, self.namespaces.control, control_labels)
            if is_ours:
                labels |= self._definition.labels
                create_namespace(self.api, self.namespaces.app, {**labels, **({} if self._agents else PRIVILEGED)})
                self._definition.acquire()
            self._heartbeat.start()
            self._load.create(self._entry_url())
            if self._agents is not None:
                agents = build_agent_manifest(
                    namespace=self.namespaces.control, image=self._image, app_namespace=self.namespaces.app
                )
                self._control.apply(agents)
            self._observer.start()
            if is_ours:
                self.apply(component_volumes(self.app) if self._own_volumes else ())
                self.apply(manifests(self.app, telemetry_endpoint=self._telemetry.otlp_http))
            if self._agents is not None:
                await_agents(self._agents, self._control, timeout_s=_AGENT_TIMEOUT_S)
        except BaseException:
            with contextlib.suppress(PlatformError):
                self.teardown()
            raise

    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        if self._ephemeral is not None:
            self._ephemeral.prepare(pod for pod in self._objects.list("Pod") if self._belongs_to_app(pod))
        self._impairer.start()
        self.measure_host_load(reset=True)
        self._load.start(seed=seed, rate_rps=rate_rps, mix=mix, traffic=traffic)
        self._load_active = True
        # import while the application warms up
        threading.Thread(target=import_client, name="import-client", daemon=True).start()

    def _entry_url(self) -> str:
        if self.app.deployed is not None and self.app.deployed.url:
            return self.app.deployed.url
        name = self.app.services[self.app.entry.service].objects.get("Service", self.app.entry.service)
        return f"http://{name}.{self.namespaces.app}:{self.app.entry.port}"

    def step_load(self, factor: float) -> None:
        self._load.step(factor)

    def stop_load(self) -> None:
        self._load_active = False
        self._load.stop()

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        adapted = adapt_manifests(
            objects, self.app, self.namespaces.app, repository=self._settings.image, own_volumes=self._own_volumes
        )
        for manifest in adapted:
            self._objects.apply(manifest)

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self._objects.patch(kind, name, replace_images(change, self._settings.image))

    def _kill(self, pod: Object, container: str) -> None:
        self._impairer.kill(pod, container)

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        self._impairer.impair(pod, impairment)

    def _lift(self, pod: str) -> None:
        self._impairer.lift(pod)

    def impaired_packets(self, pod: str) -> int:
        return self._impairer.impaired_packets(self.get("Pod", pod))

    def _check_waiting(self) -> None:
        self._observer.check()
        if self._load_active:
            self._load.check()
        elif missing := find_missing_images(self._objects.list("Pod")):
            raise CannotStart(explain_missing_images(missing))

    def _describe_unready(self) -> str:
        return describe_unready(self._objects.list("Pod"))

    @property
    def sources(self) -> Mapping[str, Source]:
        if self._telemetry is None:
            raise PlatformError("nothing is deployed; call deploy first")
        if not self._sources:
            observer, namespace = self._observer, self.namespaces.app
            sources: list[Source] = [
                LogSource(self._logs_folder, observer.service_of_pod),
                EventSource(observer),
                ObjectSource(observer.changes),
                LoadRequests(self._load),
                PrometheusSource(
                    self._telemetry.prometheus,
                    namespace,
                    service_of_pod=observer.service_of_pod,
                    service_of_object=observer.service_of,
                    pods_seen=observer.pods_seen,
                ),
                JaegerSource(
                    self._telemetry.jaeger,
                    namespace,
                    tuple(self.app.services),
                    service_of_pod=observer.service_of_pod,
                    service_of_reported=self._service_of_reported,
                ),
            ]
            self._sources = {source.table: source for source in sources}
        return self._sources

    def _service_of_reported(self, reported: str) -> str | None:
        name = self.app.deployed.reported.get(reported, reported) if self.app.deployed else reported
        return name if name in self.app.services else None

    def measure_host_load(self, *, reset: bool = False) -> HostLoad:
        """Return the load of the nodes and the collector; delays since `start_load` or the last call with `reset`."""
        delay_s = self._heartbeat.worst_delay_s
        if reset:
            self._heartbeat.worst_delay_s = 0.0
        return replace(
            self._agents.measure_host_load(reset=reset) if self._agents else HostLoad(),
            api_requests=sum(self.api.requests.values()),
            collector_memory_mib=round(psutil.Process().memory_info().rss / 2**20),
            collector_delay_ms=round(1e3 * delay_s, 3),
        )

    def clock_offsets_s(self) -> dict[str, float]:
        """Return how many seconds the clock of each table's source is ahead of the collector's clock."""
        offsets: dict[str, float] = {}
        metrics = self.sources["metrics"]
        if isinstance(metrics, PrometheusSource):
            offsets["metrics"] = metrics.clock_offset_s()
        offsets["requests"] = self._load.clock_offset_s()
        if self._agents is not None:
            offsets["logs"] = self._agents.clock_offset_s()
        return offsets

    def teardown(self) -> None:
        """Delete the namespaces with their objects and volumes; may be called twice.

        If the application deploys no operator, the cluster removes them asynchronously; `KubernetesHost.await_removal`
        waits for that.
        """
        self._heartbeat.stop()
        self._logs.stop()
        self._observer.stop()
        for source in self._sources.values():
            source.close()
        self._sources = {}
        if not self._is_deployed:
            return
        is_ours = self.app.deployed is None
        if is_ours and self._agents is not None:
            with contextlib.suppress(PlatformError):
                self._agents.remove_volumes([f"{VOLUME_ROOT}/{self.namespaces.app}"])
        self._impairer.close()
        names = (self.namespaces.app, self.namespaces.control) if is_ours else (self.namespaces.control,)
        delete_namespaces(self.api, names)
        if is_ours:
            remove_volumes(self.api, self.namespaces.app)
        if self._definition.name:
            # the definition can be removed only after its last object
            await_removal(self.api, names)
            self._definition.release()
        self._is_deployed = False


class ChaosMeshPlatform(KubernetesPlatform):
    """A `KubernetesPlatform` on which Chaos Mesh impairs, fails and kills pods.

    Node agents, if the cluster allows them, still measure the load of the nodes. Experiments are created in the control
    namespace, which is not recorded.
    """

    selects_requests = False

    def __init__(self, app: AppSpec, folder: Path, *, journal: Journal, episode: str, settings: ClusterSettings):
        super().__init__(app, folder, journal=journal, episode=episode, settings=settings)
        self._chaos_mesh = ChaosMeshImpairer(self.api, self.namespaces.control, self.namespaces.app)
        self._impairer, self._ephemeral = self._chaos_mesh, None
        self.control_labels = {INJECTOR: CHAOS_MESH}

    def deploy(self) -> None:
        self.journal.note(INJECTOR_NOTE, name=CHAOS_MESH)
        super().deploy()

    def fail(self, pod: str) -> str:
        """Replace the pod's images with the pause image until the undo; return the name of that image."""
        target = self.get("Pod", pod)
        with self.journal.operation("fail", {"pod": pod}, [{"verb": "lift", "pod": pod}], [pod]):
            self._chaos_mesh.fail(target)
        image = self.get("Pod", pod)["spec"]["containers"][0]["image"]
        self.journal.note("failed", [image], image=image)
        return image

    def disturbance_evidence(self, pod: str) -> str | None:
        """Return a sentence about the experiment that acts on the pod now; None if there is none."""
        target = self.find("Pod", pod)
        return None if target is None else self._chaos_mesh.evidence(target)

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        if kind == "Pod" and grace_period_s == 0:
            self._chaos_mesh.kill_pod(self.get("Pod", name))
        else:
            super()._delete(kind, name, grace_period_s)

    def teardown(self) -> None:
        """Remove the experiments, then the namespaces with their content; may be called twice."""
        try:
            if self._is_deployed:
                self._chaos_mesh.close()
        finally:
            super().teardown()
