"""The platform that runs an application on a shared Kubernetes cluster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from faultset.collector.agent.protocol import VOLUME_ROOT
from faultset.collector.load.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.base import CannotStart, HostLoad
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.journaled import JournaledPlatform
from faultset.collector.platforms.kubernetes.client import Api, import_client
from faultset.collector.platforms.kubernetes.ephemeral_containers import EphemeralImpairer
from faultset.collector.platforms.kubernetes.images import explain_missing_images
from faultset.collector.platforms.kubernetes.impairer import Impairer
from faultset.collector.platforms.kubernetes.load_pod import LoadPod
from faultset.collector.platforms.kubernetes.manifests import (
    adapt_manifests,
    component_volumes,
    describe_unready,
    find_missing_images,
    lacks_storage_class,
    replace_images,
    resolve_image,
)
from faultset.collector.platforms.kubernetes.namespaces import (
    APP_NAMESPACE,
    EPISODE,
    PRIVILEGED,
    EpisodeNamespaces,
    Heartbeat,
    await_removal,
    create_namespace,
    delete_namespaces,
    remove_volumes,
)
from faultset.collector.platforms.kubernetes.node_agents import NodeAgents, agent_manifests
from faultset.collector.platforms.kubernetes.objects import Objects, SharedDefinition
from faultset.collector.platforms.kubernetes.preflight import await_agents
from faultset.collector.platforms.kubernetes.recovery import AppObjects, check_deployed
from faultset.collector.platforms.kubernetes.settings import ClusterSettings
from faultset.collector.platforms.kubernetes.telemetry.discovery import TelemetryServers, discover
from faultset.collector.platforms.kubernetes.telemetry.prometheus_source import PrometheusSource
from faultset.collector.platforms.kubernetes.telemetry.tables import cluster_sources
from faultset.collector.platforms.kubernetes.watches import LogStreams, Observer
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.manifests import manifests
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

_AGENT_TIMEOUT_S = 60.0


class KubernetesPlatform(AppObjects, JournaledPlatform):
    """Runs the application of one episode in a namespace of a cluster.

    Parameters
    ----------
    app
        The application.
    folder
        Folder for working files: received logs and request results.
    journal
        Records every change and its undo operations before the change is made.
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
                self._apply_agents()
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
        """Start the load on the application's entry service."""
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
        """Change a running load to `factor` times its planned rate."""
        self._load.step(factor)

    def stop_load(self) -> None:
        """Stop the load; unanswered requests count as unfinished."""
        self._load_active = False
        self._load.stop()

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace objects; not journaled."""
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
        """Return how many packets of the pod the current impairment has affected so far."""
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
        """The sources of telemetry by table name."""
        if self._telemetry is None:
            raise PlatformError("nothing is deployed; call deploy first")
        if not self._sources:
            self._sources = cluster_sources(
                self.app, self._telemetry, self.namespaces.app, self._observer, self._load, logs=self._logs_folder
            )
        return self._sources

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

    def _apply_agents(self) -> None:
        manifests = agent_manifests(
            namespace=self.namespaces.control, image=self._image, app_namespace=self.namespaces.app
        )
        for manifest in manifests:
            self._control.apply(manifest)
