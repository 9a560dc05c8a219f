"""The operator: a control loop that reconciles the StatefulSets and Services of a TidbCluster step by step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faultset.collector.runtime.app_code import read_app
from faultset.collector.runtime.cluster_api import ApiRefusal, ClusterApi, ResourceType, cluster_api
from faultset.collector.runtime.environment import environment
from faultset.collector.runtime.http.server import HttpRequest, HttpServer, Response
from faultset.collector.runtime.signals import write_all
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.manifests import service_manifests, workload
from faultset.core.errors import PlatformError

Manifest = dict[str, Any]

APPLIED = "pingcap.com/last-applied-configuration"
STORAGE_CLASS = "pingcap.com/storage-class"
_POD_FIELDS = {
    "tolerations": "tolerations",
    "affinity": "affinity",
    "topologySpreadConstraints": "topologySpreadConstraints",
    "podSecurityContext": "securityContext",
}
"""Fields of a component that are copied into its pods."""
_REPORTED_FIELDS = (
    "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "currentRevision", "updateRevision",
)  # fmt: skip
STATUS_ATTEMPTS = 4
_COMPONENT_TITLES = {"pd": "PD", "tikv": "TiKV", "tidb": "TiDB"}
READY = "TiDB cluster is fully up and running"
EVERY_S = 0.5
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 32.0
_DRAIN_S = 3.0


def stateful_set(app: AppSpec, cluster: Mapping[str, Any], name: str, telemetry: str) -> Manifest:
    component: Mapping[str, Any] = cluster["spec"].get(name) or {}
    manifest = workload(app, app.services[name], telemetry)
    spec, pod = manifest["spec"], manifest["spec"]["template"]["spec"]
    spec["replicas"] = component.get("replicas", spec["replicas"])
    # the operator replaces any other strategy, even an unknown one, with its default
    spec["updateStrategy"] = (
        {"type": "OnDelete"} if _get_strategy(cluster, component) == "OnDelete" else {"type": "RollingUpdate"}
    )
    spec["template"]["metadata"]["annotations"] |= component.get("annotations") or {}
    for source, field in _POD_FIELDS.items():
        if component.get(source):
            pod[field] = component[source]
    pod["automountServiceAccountToken"] = False  # only the operator calls the API server
    (container,) = pod["containers"]
    container["image"] = component.get("image", container["image"])
    container["env"] += component.get("env") or ()
    for kind in ("requests", "limits"):
        sizes = {key: value for key, value in (component.get(kind) or {}).items() if key != "storage"}
        container["resources"][kind] = {**container["resources"][kind], **sizes}
    for claim in spec.get("volumeClaimTemplates", []):
        storage_class = component.get("storageClassName")
        claim["metadata"]["annotations"] = {STORAGE_CLASS: storage_class or ""}
        claim["spec"].pop("storageClassName", None)
        if storage_class:
            claim["spec"]["storageClassName"] = storage_class
        size = (component.get("requests") or {}).get("storage")
        if size:
            claim["spec"]["resources"] = {"requests": {"storage": size}}
    applied = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    manifest["metadata"] = {**manifest["metadata"], **build_owner_metadata(cluster), "annotations": {APPLIED: applied}}
    return manifest


def _get_strategy(cluster: Mapping[str, Any], component: Mapping[str, Any]) -> str | None:
    return component.get("statefulSetUpdateStrategy") or cluster["spec"].get("statefulSetUpdateStrategy")


def get_storage_class(manifest: Mapping[str, Any]) -> str | None:
    """Return the class of a StatefulSet's volumes, empty for the cluster's default class; None without volumes."""
    for claim in manifest["spec"].get("volumeClaimTemplates") or ():
        return (claim["metadata"].get("annotations") or {}).get(STORAGE_CLASS, "")
    return None


def build_owner_metadata(cluster: Mapping[str, Any]) -> Manifest:
    metadata = cluster["metadata"]
    owner = {"apiVersion": cluster["apiVersion"], "kind": cluster["kind"], "name": metadata["name"]}
    owner |= {"uid": metadata.get("uid", ""), "controller": True, "blockOwnerDeletion": True}
    return {"ownerReferences": [owner]}


def component_status(current: Mapping[str, Any] | None, component: Mapping[str, Any]) -> Manifest:
    if current is None:
        return {"phase": "Creating"}
    state = current.get("status") or {}
    size = current["spec"]["replicas"]
    is_seen = state.get("observedGeneration", 0) >= current["metadata"].get("generation", 0)
    if size != component.get("replicas", size) or state.get("replicas", 0) != size:
        phase = "Scale"
    elif not is_seen or state.get("updatedReplicas", 0) < size:
        phase = "Upgrade"
    else:
        phase = "Normal" if state.get("readyReplicas", 0) >= size else "Unhealthy"
    return {
        "phase": phase,
        "image": current["spec"]["template"]["spec"]["containers"][0]["image"],
        "statefulSet": {key: state[key] for key in _REPORTED_FIELDS if key in state},
    }


SETS, SERVICES = ResourceType("apps/v1", "statefulsets"), ResourceType("v1", "services")
CLAIMS, EVENTS = ResourceType("v1", "persistentvolumeclaims"), ResourceType("v1", "events")


class NotReady(Exception):
    """A step must wait for something."""


class SyncFailure(Exception):
    """The API server refused an object of a component; `reason` is the reason of the event about it."""

    def __init__(self, reason: str, component: str, message: str):
        super().__init__(message)
        self.reason, self.component = reason, component


class Reconciler:
    """Brings StatefulSets and Services in line with the TidbCluster of an application.

    Its components send spans to the base URL `telemetry`.
    """

    def __init__(self, app: AppSpec, api: ClusterApi, *, telemetry: str):
        assert app.operator is not None, "a reconciler needs an application with an operator"
        self._app, self._api, self._telemetry, self._operator = app, api, telemetry, app.operator
        resource = app.operator.resource
        self._clusters = ResourceType(resource.api_version, resource.plural)

    def cluster(self) -> Manifest | None:
        return self._api.get(self._clusters, self._operator.resource.name)

    def step(self, cluster: Manifest) -> None:
        """Take the next step of every component in turn; raise SyncFailure or NotReady at the first problem."""
        before: list[str] = []
        for name in self._operator.components:
            self._sync(cluster, name, before)
            before.append(name)

    def report(self, cluster: Manifest, failure: SyncFailure | None) -> list[str]:
        """Write the status of the TidbCluster, with the failure of the last step; return the lagging components."""
        status: Manifest = {"observedGeneration": cluster["metadata"].get("generation", 0)}
        lagging = []
        for name in self._operator.components:
            current = self._api.get(SETS, name)
            status[name] = component_status(current, cluster["spec"].get(name) or {})
            if status[name]["phase"] != "Normal":
                lagging.append(name)
        lag = f"not in phase Normal: {', '.join(lagging)}" if lagging else READY
        status["conditions"] = [
            _build_condition("Ready", not lagging, "NotReady", lag),
            _build_condition("Synced", failure is None, getattr(failure, "reason", ""), str(failure or "")),
        ]
        if cluster.get("status") != status:
            self._write_status(cluster, status)
        return lagging

    def _write_status(self, cluster: Manifest, status: Manifest) -> None:
        """Write the status; if the TidbCluster has changed since, retry with its newest version."""
        current: Manifest | None = cluster
        for attempts_left in reversed(range(STATUS_ATTEMPTS)):
            if current is None:
                return
            try:
                self._api.set_status(self._clusters, current, status)
                return
            except ApiRefusal as refusal:
                if refusal.status != 409 or not attempts_left:
                    raise
                current = self.cluster()

    def replicas(self, cluster: Manifest) -> dict[str, int]:
        spec = cluster["spec"]
        return {name: (spec.get(name) or {}).get("replicas", 0) for name in self._operator.components}

    def record_event(self, cluster: Manifest, kind: str, reason: str, message: str) -> None:
        metadata = cluster["metadata"]
        reference = {"apiVersion": self._clusters.api_version, "kind": cluster["kind"], "name": metadata["name"]}
        reference |= {key: metadata[key] for key in ("namespace", "uid") if key in metadata}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": f"{metadata['name']}."}}
        self._api.create(
            EVENTS, {**event, "involvedObject": reference, "type": kind, "reason": reason, "message": message}
        )

    def _sync(self, cluster: Manifest, name: str, before: list[str]) -> None:
        service = self._app.services[name]
        for manifest in service_manifests(self._app, service):
            if self._api.get(SERVICES, manifest["metadata"]["name"]) is None:
                self._api.create(
                    SERVICES, {**manifest, "metadata": {**manifest["metadata"], **build_owner_metadata(cluster)}}
                )
        target = stateful_set(self._app, cluster, name, self._telemetry)
        current = self._api.get(SETS, name)
        if current is not None and get_storage_class(current) != get_storage_class(target):
            self._api.delete(SETS, name)
            self.record_event(
                cluster, "Normal", "ReplaceVolumes", f"volumes of {name} are being replaced: StatefulSet {name} deleted"
            )
            raise NotReady(f"the volumes of {name} are being replaced")
        if current is None:
            self._create(cluster, name, target, before)
        elif current["metadata"].get("annotations", {}).get(APPLIED) != target["metadata"]["annotations"][APPLIED]:
            self._update(name, current, target)

    def _create(self, cluster: Manifest, name: str, target: Manifest, before: list[str]) -> None:
        labels = target["spec"]["selector"]["matchLabels"]
        stale = [
            claim
            for claim in self._api.list(CLAIMS, labels)
            if claim["metadata"].get("annotations", {}).get(STORAGE_CLASS) != get_storage_class(target)
        ]
        for claim in stale:
            if not claim["metadata"].get("deletionTimestamp"):
                self._api.delete(CLAIMS, claim["metadata"]["name"])
        if stale:
            raise NotReady(f"waiting for the deletion of {len(stale)} claims of {name}")
        for other in before:
            predecessor = self._api.get(SETS, other)
            replicas = predecessor["spec"]["replicas"] if predecessor else 1
            if predecessor is None or 2 * (predecessor.get("status") or {}).get("readyReplicas", 0) <= replicas:
                raise NotReady(f"{name} waits for {other}")
        self._attempt("Create", name, lambda: self._api.create(SETS, target))
        self.record_event(cluster, "Normal", "SuccessfulCreate", f"create StatefulSet {name} successful")

    def _update(self, name: str, current: Manifest, target: Manifest) -> None:
        """Update a StatefulSet: first its size, then its template."""
        size = target["spec"]["replicas"]
        if current["spec"]["replicas"] != size:
            self._attempt("Update", name, lambda: self._api.patch(SETS, name, {"spec": {"replicas": size}}))
        self._attempt("Update", name, lambda: self._api.replace(SETS, target))

    def _attempt(self, verb: str, name: str, call: Any) -> None:
        try:
            call()
        except ApiRefusal as error:
            if error.status != 422:
                raise
            message = f"{verb.lower()} StatefulSet {name} failed error: {error}"
            raise SyncFailure(f"Failed{verb}{_COMPONENT_TITLES.get(name, name)}STS", name, message) from None


def _build_condition(kind: str, holds: bool, other_reason: str, message: str) -> Manifest:
    status, reason = ("True", kind) if holds else ("False", other_reason)
    return {"type": kind, "status": status, "reason": reason, "message": message}


Log = Callable[[str, str, str], None]
"""Writes a line: severity as one letter, location in the modelled source, text."""


class ControlLoop:
    """Runs the steps of a reconciler; waits longer after each failure until the TidbCluster changes."""

    def __init__(self, reconciler: Reconciler, log: Log, clock: Callable[[], float] = time.monotonic):
        self._reconciler, self._log, self._clock = reconciler, log, clock
        self._failure: SyncFailure | None = None
        self._generation, self._due_s, self._wait_s = -1, 0.0, FIRST_WAIT_S
        self._last_line = ""
        self._name, self._replicas, self._errors = "", dict[str, int](), Counter[str]()

    def exposition(self) -> str:
        """Return the operator's metrics in the format of Prometheus."""
        lines = []
        for metric, kind, values in (
            ("tidb_operator_cluster_spec_replicas", "gauge", self._replicas),
            ("tidb_operator_cluster_update_errors", "counter", {name: self._errors[name] for name in self._replicas}),
        ):
            lines.append(f"# TYPE {metric} {kind}")
            for component, value in values.items():
                lines.append(f'{metric}{{name="{self._name}",component="{component}"}} {value}')
        return "".join(f"{line}\n" for line in lines)

    def turn(self) -> None:
        """Observe the TidbCluster once and take the next step."""
        try:
            self._observe()
        except PlatformError as error:
            self._log_once("E", "tidb_cluster_controller.go:128", f"TidbCluster: sync failed, err: {error}, requeuing")

    def _observe(self) -> None:
        cluster = self._reconciler.cluster()
        if cluster is None:
            self._log_once("I", "tidb_cluster_controller.go:141", "TidbCluster has been deleted")
            return
        self._name, self._replicas = cluster["metadata"]["name"], self._reconciler.replicas(cluster)
        generation = cluster["metadata"].get("generation", 0)
        if generation != self._generation:
            self._generation, self._due_s, self._wait_s, self._failure = generation, 0.0, FIRST_WAIT_S, None
            self._log_once(
                "I", "tidb_cluster_control.go:85", f"TidbCluster {cluster['metadata']['name']} is at {generation}"
            )
        if self._clock() >= self._due_s:
            self._step(cluster)
        lagging = self._reconciler.report(cluster, self._failure)
        if not lagging and self._failure is None:
            self._log_once("I", "tidb_cluster_status_manager.go:93", "all components are in phase Normal")

    def _step(self, cluster: dict[str, object]) -> None:
        try:
            self._reconciler.step(cluster)
            self._failure = None
        except NotReady as reason:
            self._failure = None
            self._log_once("I", "tidb_cluster_controller.go:126", f"TidbCluster: {reason}, requeuing")
        except SyncFailure as failure:
            self._failure = failure
            self._errors[failure.component] += 1
            self._due_s = self._clock() + self._wait_s
            self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
            self._reconciler.record_event(cluster, "Warning", failure.reason, str(failure))
            self._log("E", "tidb_cluster_controller.go:128", f"TidbCluster: sync failed, err: {failure}, requeuing")

    def _log_once(self, severity: str, location: str, text: str) -> None:
        """Write a line, unless it repeats the previous one."""
        if text != self._last_line:
            self._last_line = text
            self._log(severity, location, text)


def klog(severity: str, location: str, text: str) -> None:
    now_s = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(now_s))
    write_all(1, f"{severity}{stamp}.{int(now_s * 1e6) % 1_000_000:06d}       1 {location}] {text}\n".encode())


async def serve(*, host: str, port: int, stop: asyncio.Event) -> None:
    """Run the operator until it is stopped, with a port for liveness and metrics."""
    settings = environment()
    app = read_app(Path(settings.spec).read_text(encoding="utf-8"), settings.spec)
    reconciler = Reconciler(app, cluster_api(), telemetry=settings.telemetry or "")
    loop = ControlLoop(reconciler, klog)

    async def handle(request: HttpRequest) -> Response:
        pages = {"/healthz": lambda: "ok", "/metrics": loop.exposition}
        page = pages.get(request.path)
        return Response(200 if page else 404, (page() if page else "404 page not found").encode())

    server = HttpServer(handle)
    await server.listen(host, port)
    klog("I", "controller_manager.go:116", "Welcome to TiDB Operator.")
    while not stop.is_set():
        await asyncio.to_thread(loop.turn)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await stop.wait()
    await server.close(_DRAIN_S)
