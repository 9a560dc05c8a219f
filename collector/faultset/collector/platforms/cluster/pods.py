"""Pods on the node: images, mounts, environments, probes and status."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from faultset.collector.platforms.cluster.context import (
    Command,
    Context,
    Mount,
    ProbeContainer,
    ProbeResult,
    RefreshMounts,
)
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.runtime.builds import TAGS
from faultset.collector.spec.containers import APP_REPOSITORY, PAUSE_REPOSITORY
from faultset.core.times import rfc3339
from faultset.datasets.telemetry_formats.kubernetes_objects import Object, quantity


class MissingReference(Exception):
    """A ConfigMap, Secret or key that a pod refers to does not exist."""


def image_repository(image: str) -> tuple[str, str]:
    """Split an image name into its repository, without `docker.io/`, and its tag, which defaults to `latest`."""
    name, _, tag = image.rpartition(":") if ":" in image.rsplit("/", 1)[-1] else (image, "", "latest")
    return name.removeprefix("docker.io/"), tag


def is_known_image(image: str) -> bool:
    """Return whether the node has an image: the pause image or any build of the application."""
    repository, tag = image_repository(image)
    return repository == PAUSE_REPOSITORY or (repository == APP_REPOSITORY and tag in TAGS)


def definition(container: dict[str, Any]) -> str:
    """Return a digest of the fields whose change restarts a container; resources change in place."""
    fields = {key: value for key, value in container.items() if key != "resources"}
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def limits(container: dict[str, Any]) -> tuple[float | None, int | None]:
    resources = (container.get("resources") or {}).get("limits") or {}
    cpu = quantity(resources["cpu"]) if "cpu" in resources else None
    memory = int(quantity(resources["memory"])) if "memory" in resources else None
    return cpu, memory


def mounts(store: ObjectStore, pod: Object, container: dict[str, Any]) -> tuple[Mount, ...]:
    """Return the mounts of a container.

    Raises
    ------
    MissingReference
        A ConfigMap, Secret or key does not exist and is not optional.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    return tuple(
        _mount(store, pod, volumes[mount["name"]], mount["mountPath"]) for mount in container.get("volumeMounts", [])
    )


def _mount(store: ObjectStore, pod: Object, volume: dict[str, Any], path: str) -> Mount:
    if "configMap" in volume:
        return Mount(path=path, files=_volume_files(store, "ConfigMap", volume["configMap"]["name"], volume))
    if "secret" in volume:
        return Mount(path=path, files=_volume_files(store, "Secret", volume["secret"]["secretName"], volume))
    if "persistentVolumeClaim" in volume:
        claim = store.get("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        return Mount(path=path, volume=claim["spec"]["volumeName"])
    return Mount(path=path, volume=f"pod/{pod['metadata']['uid']}/{volume['name']}")


def _volume_files(store: ObjectStore, kind: str, name: str, volume: dict[str, Any]) -> dict[str, str]:
    source = volume["configMap" if kind == "ConfigMap" else "secret"]
    prefix = f'volume "{volume["name"]}" : '
    try:
        data = _read_texts(store, kind, name, is_optional=bool(source.get("optional")))
    except MissingReference as error:
        raise MissingReference(f"{prefix}{error}") from None
    if not source.get("items"):
        return data
    missing_keys = [item["key"] for item in source["items"] if item["key"] not in data]
    if missing_keys and not source.get("optional"):
        problem = (
            "configmap references non-existent config" if kind == "ConfigMap" else "references non-existent secret"
        )
        raise MissingReference(f"{prefix}{problem} key: {missing_keys[0]}")
    return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}


def _read_texts(store: ObjectStore, kind: str, name: str, *, is_optional: bool) -> dict[str, str]:
    resource = store.find(kind, name)
    if resource is not None:
        return contents(resource)
    if is_optional:
        return {}
    raise MissingReference(f'{kind.lower()} "{name}" not found')


def contents(resource: Object) -> dict[str, str]:
    """Return the strings of a ConfigMap or Secret by key."""
    if resource["kind"] == "ConfigMap":
        return dict(resource.get("data") or {})
    return {key: base64.b64decode(value).decode() for key, value in (resource.get("data") or {}).items()}


def environment(store: ObjectStore, pod: Object, container: dict[str, Any], address: str) -> dict[str, str]:
    """Return a container's environment with all references resolved.

    Raises
    ------
    MissingReference
        A ConfigMap, Secret or key does not exist and is not optional.
    """
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        kind, field_name = ("ConfigMap", "configMapRef") if "configMapRef" in source else ("Secret", "secretRef")
        reference, prefix = source[field_name], source.get("prefix") or ""
        texts = _read_texts(store, kind, reference["name"], is_optional=bool(reference.get("optional")))
        variables |= {f"{prefix}{key}": text for key, text in texts.items()}
    for variable in container.get("env") or []:
        origin = variable.get("valueFrom")
        value = variable.get("value", "") if origin is None else _resolve(store, pod, origin, address)
        if value is not None:
            variables[variable["name"]] = str(value)
    return variables


def _resolve(store: ObjectStore, pod: Object, origin: dict[str, Any], address: str) -> str | None:
    if "fieldRef" in origin:
        return _read_field(pod, origin["fieldRef"]["fieldPath"], address)
    kind, reference = (
        ("ConfigMap", origin["configMapKeyRef"]) if "configMapKeyRef" in origin else ("Secret", origin["secretKeyRef"])
    )
    data = _read_texts(store, kind, reference["name"], is_optional=bool(reference.get("optional")))
    if reference["key"] in data or reference.get("optional"):
        return data.get(reference["key"])
    name = f"{pod['metadata']['namespace']}/{reference['name']}"
    raise MissingReference(f"couldn't find key {reference['key']} in {kind} {name}")


def _read_field(pod: Object, path: str, address: str) -> str:
    if path in ("status.podIP", "status.hostIP"):
        return address
    value: Any = pod
    for key in path.replace("['", ".").replace("']", "").split("."):
        value = value.get(key, {}) if isinstance(value, dict) else {}
    return value if isinstance(value, str) else ""


@dataclass
class ContainerState:
    """The state of one container of a pod across restarts."""

    name: str
    image: str = ""
    attempt: int = -1
    starting: bool = False
    running: bool = False
    definition: str = ""
    limits: tuple[float | None, int | None] = (None, None)
    started_ns: int = 0
    finished_ns: int | None = None
    terminated: dict[str, Any] | None = None
    waiting: dict[str, Any] = field(default_factory=lambda: {"reason": "ContainerCreating"})
    terminated_shown: bool = False
    kill_at_ns: int | None = None
    reported_ns: int = 0
    has_readiness_probe: bool = False
    is_responding: bool = False
    completed: bool = False
    restart_reason: str = ""
    spec: dict[str, Any] | None = None
    """The spec that `definition` was last compared with."""

    @property
    def ready(self) -> bool:
        """Whether the container is running and passes any readiness probe; an init container must have succeeded."""
        return self.completed or (self.running and (self.is_responding or not self.has_readiness_probe))

    @property
    def ended(self) -> bool:
        """Whether the container has no running process."""
        return not (self.starting or self.running)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "name": self.name,
            "image": full_name(self.image),
            "ready": self.ready,
            "started": self.running,
            "restartCount": max(0, self.attempt),
        }
        if self.running:
            status["state"] = {"running": {"startedAt": rfc3339(self.started_ns)}}
        elif self.terminated_shown and self.terminated:
            status["state"] = {"terminated": self.terminated}
            return status
        else:
            status["state"] = {"waiting": dict(self.waiting)}
        if self.terminated:
            status["lastState"] = {"terminated": self.terminated}
        return status


def init_specs(pod: Object) -> list[dict[str, Any]]:
    return pod["spec"].get("initContainers") or []


def full_name(image: str) -> str:
    """Return an image name with its registry, as container runtimes report it.

    >>> full_name("faultset/app:1.0.0")
    'docker.io/faultset/app:1.0.0'
    """
    registry, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in registry or ":" in registry or registry == "localhost" else f"docker.io/{image}"


@dataclass
class PodState:
    """The state of a pod on the node until its last process has ended."""

    uid: str
    pod: Object
    address: str
    started_ns: int
    containers: dict[str, ContainerState] = field(default_factory=dict)
    mounts: dict[str, tuple[Mount, ...]] = field(default_factory=dict)
    refresh_at_ns: int = 0
    mount_retry_ns: int = 0
    mount_wait_s: float = 0.25
    stopping: bool = False

    @property
    def name(self) -> str:
        return self.pod["metadata"]["name"]

    @property
    def ended(self) -> bool:
        """Whether all containers of the pod have ended."""
        return all(container.ended for container in self.containers.values())

    def status(self, now_ns: int) -> dict[str, Any]:
        """Return the pod's status in the API's format."""
        before = self.pod.get("status", {})
        initial = [self.containers[spec["name"]] for spec in init_specs(self.pod)]
        regular = [self.containers[spec["name"]] for spec in self.pod["spec"]["containers"]]
        incomplete = [container.name for container in initial if not container.completed]
        created = all(container.attempt >= 0 and not container.starting for container in regular)
        ready = created and all(container.ready for container in regular)
        conditions = [condition for condition in before.get("conditions", []) if condition["type"] == "PodScheduled"]
        old = {condition["type"]: condition for condition in before.get("conditions", [])}
        for kind, holds in (("Initialized", not incomplete), ("ContainersReady", ready), ("Ready", ready)):
            value = "True" if holds else "False"
            if old.get(kind, {}).get("status") == value:
                conditions.append(old[kind])
                continue
            condition = {"type": kind, "status": value, "lastTransitionTime": rfc3339(now_ns)}
            if not holds and kind == "Initialized":
                condition["reason"] = "ContainersNotInitialized"
                condition["message"] = f"containers with incomplete status: [{' '.join(incomplete)}]"
            elif not holds:
                condition["reason"] = "ContainersNotReady"
            conditions.append(condition)
        return {
            # a pod that has run stays Running while a container restarts
            "phase": "Running" if created or before.get("phase") == "Running" else "Pending",
            "conditions": conditions,
            "podIP": self.address,
            "startTime": rfc3339(self.started_ns),
            **({"initContainerStatuses": [container.status() for container in initial]} if initial else {}),
            "containerStatuses": [container.status() for container in regular],
        }


REFRESH_S = 60.0
LONGEST_MOUNT_RETRY_S = 122.0


class PodMounts:
    """Resolves and refreshes the mounts of pods."""

    def __init__(self, context: Context):
        self._context = context

    def mount(self, state: PodState, spec: dict[str, Any]) -> bool:
        """Resolve the mounts of a container; if a reference is missing, keep earlier mounts or return False."""
        context, name = self._context, spec["name"]
        if name not in state.mounts and context.now_ns < state.mount_retry_ns:
            context.requeue(state.mount_retry_ns)
            return False
        try:
            if not state.mounts:  # a pod's volumes are all set up before its first container starts
                for other in (*init_specs(state.pod), *state.pod["spec"]["containers"]):
                    mounts(context.store, state.pod, other)
            state.mounts[name] = mounts(context.store, state.pod, spec)
        except MissingReference as error:
            if name in state.mounts:
                return True
            state.mount_wait_s = min(LONGEST_MOUNT_RETRY_S, 2 * state.mount_wait_s)
            state.mount_retry_ns = context.now_ns + context.scaled_ns(state.mount_wait_s)
            context.requeue(state.mount_retry_ns)
            message = f"MountVolume.SetUp failed for {error}"
            context.events.warning(state.pod, "FailedMount", message)
            return False
        return True

    def refresh(self, state: PodState) -> list[Command]:
        """Return commands that update mounted ConfigMaps and Secrets that changed; checks about once a minute."""
        context, commands = self._context, list[Command]()
        if context.now_ns >= state.refresh_at_ns:
            state.refresh_at_ns = context.now_ns + context.scaled_ns(REFRESH_S)
            for spec in state.pod["spec"]["containers"]:
                before = state.mounts.get(spec["name"])
                if before is None:
                    continue
                try:
                    current = mounts(context.store, state.pod, spec)
                except MissingReference:
                    continue
                if current != before:
                    state.mounts[spec["name"]] = current
                    commands.append(RefreshMounts(uid=state.uid, container=spec["name"], mounts=current))
        context.requeue(state.refresh_at_ns)
        return commands


Purpose = Literal["readiness", "liveness"]
PURPOSES: tuple[Purpose, ...] = ("readiness", "liveness")
_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "timeoutSeconds": 1}
_THRESHOLDS = {"failureThreshold": 3, "successThreshold": 1}


@dataclass
class _ProbeHistory:
    """Results of a container's readiness or liveness probe since its start."""

    attempt: int
    due_ns: int
    pending: bool = False
    successes: int = 0
    failures: int = 0
    passes: bool = False
    has_passed: bool = False


class Probes:
    """The probes of all containers of a node."""

    def __init__(self, context: Context):
        self._context = context
        self._histories: dict[tuple[str, str, Purpose], _ProbeHistory] = {}

    def due(self, state: PodState, container: ContainerState, spec: Mapping[str, Any]) -> list[Command]:
        """Return the probes of a running container that are due now."""
        commands: list[Command] = []
        for purpose in PURPOSES:
            probe = read_probe(spec, purpose)
            if probe is None:
                continue
            history = self._history(state, container, probe, purpose)
            if history.pending:
                continue
            if self._context.now_ns < history.due_ns:
                self._context.requeue(history.due_ns)
                continue
            history.pending = True
            commands.append(_build_probe(state, container, spec, probe, purpose))
        return commands

    def record(self, state: PodState, container: ContainerState, spec: Mapping[str, Any], result: ProbeResult) -> None:
        """Record a result, which may change the container's readiness or request its restart."""
        purpose = result.purpose
        probe = read_probe(spec, purpose)
        if probe is None:
            return
        history = self._history(state, container, probe, purpose)
        history.pending = False
        history.due_ns = result.time_ns + int(self._pause_s(probe, history, result) * 1e9)
        if result.failure:
            history.successes, history.failures = 0, history.failures + 1
            message = f"{purpose.capitalize()} probe failed: {result.failure}"
            self._context.events.warning(state.pod, "Unhealthy", message)
        else:
            history.successes, history.failures = history.successes + 1, 0
        if purpose == "readiness":
            if history.failures >= probe["failureThreshold"]:
                history.passes = False
            elif history.successes >= probe["successThreshold"]:
                history.passes = history.has_passed = True
            container.is_responding = history.passes
        elif history.failures >= probe["failureThreshold"]:
            container.restart_reason = f"Container {container.name} failed liveness probe, will be restarted"

    def _pause_s(self, probe: Mapping[str, Any], history: _ProbeHistory, result: ProbeResult) -> float:
        retry_s = self._context.start_times.probe_retry_s
        is_starting = result.purpose == "readiness" and bool(result.failure) and not history.has_passed
        return min(retry_s, probe["periodSeconds"]) if is_starting and retry_s is not None else probe["periodSeconds"]

    def forget(self, uid: str) -> None:
        self._histories = {key: history for key, history in self._histories.items() if key[0] != uid}

    def _history(
        self, state: PodState, container: ContainerState, probe: Mapping[str, Any], purpose: Purpose
    ) -> _ProbeHistory:
        key = (state.uid, container.name, purpose)
        history = self._histories.get(key)
        if history is None or history.attempt != container.attempt:
            due_ns = container.started_ns + int(probe["initialDelaySeconds"] * 1e9)
            history = self._histories[key] = _ProbeHistory(attempt=container.attempt, due_ns=due_ns)
        return history


def read_probe(spec: Mapping[str, Any], purpose: Purpose) -> dict[str, Any] | None:
    """Return a container's probe with defaults; None if it has none or its type is not supported.

    >>> read_probe({"readinessProbe": {"tcpSocket": {"port": 80}}}, "readiness")["periodSeconds"]
    10
    """
    probe = spec.get(f"{purpose}Probe")
    if not probe or not ("tcpSocket" in probe or "httpGet" in probe):
        return None
    return {**_DEFAULTS, **_THRESHOLDS, **probe}


def _build_probe(
    state: PodState, container: ContainerState, spec: Mapping[str, Any], probe: Mapping[str, Any], purpose: Purpose
) -> ProbeContainer:
    action = probe.get("tcpSocket") or probe["httpGet"]
    return ProbeContainer(
        uid=state.uid,
        container=container.name,
        attempt=container.attempt,
        purpose=purpose,
        address=state.address,
        port=_port_number(action["port"], spec),
        path=probe["httpGet"].get("path", "/") if "httpGet" in probe else None,
        timeout_s=float(probe["timeoutSeconds"]),
    )


def _port_number(port: int | str, spec: Mapping[str, Any]) -> int:
    if isinstance(port, int):
        return port
    return next((entry["containerPort"] for entry in spec.get("ports", []) if entry.get("name") == port), 0)
