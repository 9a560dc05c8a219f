"""Pods in the control plane: containers from their specs, mounts and status."""

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
from faultset.collector.platforms.objects import Object, quantity
from faultset.collector.platforms.observation.objects import rfc3339
from faultset.collector.runtime.builds import TAGS
from faultset.collector.spec.containers import APP_REPOSITORY, PAUSE_REPOSITORY


class MissingReference(Exception):
    """A ConfigMap, Secret or key that a pod refers to does not exist."""


def image_repository(image: str) -> tuple[str, str]:
    """Split an image into repository and tag; a registry in front and a missing tag are understood."""
    name, _, tag = image.rpartition(":") if ":" in image.rsplit("/", 1)[-1] else (image, "", "latest")
    return name.removeprefix("docker.io/"), tag


def is_known_image(image: str) -> bool:
    """Say whether the node has an image; of the application it has all builds that exist."""
    repository, tag = image_repository(image)
    return repository == PAUSE_REPOSITORY or (repository == APP_REPOSITORY and tag in TAGS)


def definition(container: dict[str, Any]) -> str:
    """Return a digest of the part of a container whose change restarts it; limits change in place."""
    parts = {key: value for key, value in container.items() if key != "resources"}
    return f"{zlib.crc32(json.dumps(parts, sort_keys=True).encode()):08x}"


def limits(container: dict[str, Any]) -> tuple[float | None, int | None]:
    """Return a container's limits in cores and bytes."""
    found = (container.get("resources") or {}).get("limits") or {}
    cpu = quantity(found["cpu"]) if "cpu" in found else None
    memory = int(quantity(found["memory"])) if "memory" in found else None
    return cpu, memory


def mounts(store: ObjectStore, pod: Object, container: dict[str, Any]) -> tuple[Mount, ...]:
    """Return what a container mounts.

    Raises
    ------
    MissingReference
        A ConfigMap or Secret does not exist and is not optional.
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
    where = f'volume "{volume["name"]}" : '
    try:
        data = _texts(store, kind, name, is_optional=bool(source.get("optional")))
    except MissingReference as missing:
        raise MissingReference(f"{where}{missing}") from None
    if not source.get("items"):
        return data
    absent = [item["key"] for item in source["items"] if item["key"] not in data]
    if absent and not source.get("optional"):
        what = "configmap references non-existent config" if kind == "ConfigMap" else "references non-existent secret"
        raise MissingReference(f"{where}{what} key: {absent[0]}")
    return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}


def _texts(store: ObjectStore, kind: str, name: str, *, is_optional: bool) -> dict[str, str]:
    found = store.find(kind, name)
    if found is not None:
        return contents(found)
    if is_optional:
        return {}
    raise MissingReference(f'{kind.lower()} "{name}" not found')


def contents(found: Object) -> dict[str, str]:
    """Return the texts of a ConfigMap or Secret by key."""
    if found["kind"] == "ConfigMap":
        return dict(found.get("data") or {})
    return {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}


def environment(store: ObjectStore, pod: Object, container: dict[str, Any], address: str) -> dict[str, str]:
    """Return a container's environment with all references resolved.

    Raises
    ------
    MissingReference
        A ConfigMap, Secret or key does not exist and is not optional.
    """
    made: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        kind, reference = ("ConfigMap", "configMapRef") if "configMapRef" in source else ("Secret", "secretRef")
        wanted, prefix = source[reference], source.get("prefix") or ""
        texts = _texts(store, kind, wanted["name"], is_optional=bool(wanted.get("optional")))
        made |= {f"{prefix}{key}": text for key, text in texts.items()}
    for variable in container.get("env") or []:
        origin = variable.get("valueFrom")
        value = variable.get("value", "") if origin is None else _resolve(store, pod, origin, address)
        if value is not None:
            made[variable["name"]] = str(value)
    return made


def _resolve(store: ObjectStore, pod: Object, origin: dict[str, Any], address: str) -> str | None:
    if "fieldRef" in origin:
        return _field(pod, origin["fieldRef"]["fieldPath"], address)
    kind, reference = (
        ("ConfigMap", origin["configMapKeyRef"]) if "configMapKeyRef" in origin else ("Secret", origin["secretKeyRef"])
    )
    data = _texts(store, kind, reference["name"], is_optional=bool(reference.get("optional")))
    if reference["key"] in data or reference.get("optional"):
        return data.get(reference["key"])
    place = f"{pod['metadata']['namespace']}/{reference['name']}"
    raise MissingReference(f"couldn't find key {reference['key']} in {kind} {place}")


def _field(pod: Object, path: str, address: str) -> str:
    if path in ("status.podIP", "status.hostIP"):
        return address
    found: Any = pod
    for part in path.replace("['", ".").replace("']", "").split("."):
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, str) else ""


@dataclass
class ContainerState:
    """One container of a pod over all its restarts."""

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
    is_asked: bool = False
    answers: bool = False
    completed: bool = False
    restart_why: str = ""

    @property
    def ready(self) -> bool:
        """Whether it runs and, where it has a readiness probe, answers; of an init container, whether it ended well."""
        return self.completed or (self.running and (self.answers or not self.is_asked))

    @property
    def ended(self) -> bool:
        """Whether no process of it runs."""
        return not (self.starting or self.running)

    def status(self) -> dict[str, Any]:
        """Return the containerStatus as the API shows it."""
        made: dict[str, Any] = {
            "name": self.name,
            "image": full_name(self.image),
            "ready": self.ready,
            "started": self.running,
            "restartCount": max(0, self.attempt),
        }
        if self.running:
            made["state"] = {"running": {"startedAt": rfc3339(self.started_ns)}}
        elif self.terminated_shown and self.terminated:
            made["state"] = {"terminated": self.terminated}
            return made
        else:
            made["state"] = {"waiting": dict(self.waiting)}
        if self.terminated:
            made["lastState"] = {"terminated": self.terminated}
        return made


def init_specs(pod: Object) -> list[dict[str, Any]]:
    """Return the init containers of a pod's spec."""
    return pod["spec"].get("initContainers") or []


def full_name(image: str) -> str:
    """Return an image as container runtimes report it: with the registry that a short name stands for.

    >>> full_name("faultset/app:1.0.0")
    'docker.io/faultset/app:1.0.0'
    """
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"


@dataclass
class PodState:
    """One pod on the node, kept until its last process has ended."""

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
        """The pod's name."""
        return self.pod["metadata"]["name"]

    @property
    def ended(self) -> bool:
        """Whether no container of it runs."""
        return all(container.ended for container in self.containers.values())

    def status(self, now_ns: int) -> dict[str, Any]:
        """Return the pod's status as the API shows it."""
        before = self.pod.get("status", {})
        first = [self.containers[spec["name"]] for spec in init_specs(self.pod)]
        known = [self.containers[spec["name"]] for spec in self.pod["spec"]["containers"]]
        incomplete = [container.name for container in first if not container.completed]
        created = all(container.attempt >= 0 and not container.starting for container in known)
        ready = created and all(container.ready for container in known)
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
            # a pod that has once run does not become Pending while a container starts again
            "phase": "Running" if created or before.get("phase") == "Running" else "Pending",
            "conditions": conditions,
            "podIP": self.address,
            "startTime": rfc3339(self.started_ns),
            **({"initContainerStatuses": [container.status() for container in first]} if first else {}),
            "containerStatuses": [container.status() for container in known],
        }


REFRESH_S = 60.0
LONGEST_MOUNT_RETRY_S = 122.0


class PodMounts:
    """The mounts of all pods of a node.

    Parameters
    ----------
    context
        Store, events and clock.
    """

    def __init__(self, context: Context):
        self._context = context

    def mount(self, state: PodState, spec: dict[str, Any]) -> bool:
        """Find what a container mounts; say whether it may start, and try again later if not."""
        context, name = self._context, spec["name"]
        if name not in state.mounts and context.now_ns < state.mount_retry_ns:
            context.requeue(state.mount_retry_ns)
            return False
        try:
            if not state.mounts:  # all volumes of a pod are set up before the first of its containers
                for other in (*init_specs(state.pod), *state.pod["spec"]["containers"]):
                    mounts(context.store, state.pod, other)
            state.mounts[name] = mounts(context.store, state.pod, spec)
        except MissingReference as missing:
            if name in state.mounts:
                return True
            state.mount_wait_s = min(LONGEST_MOUNT_RETRY_S, 2 * state.mount_wait_s)
            state.mount_retry_ns = context.now_ns + context.scaled_ns(state.mount_wait_s)
            context.requeue(state.mount_retry_ns)
            message = f"MountVolume.SetUp failed for {missing}"
            context.events.warning(state.pod, "FailedMount", message)
            return False
        return True

    def refresh(self, state: PodState) -> list[Command]:
        """Bring changed ConfigMaps and Secrets into a running pod, as the kubelet does about once a minute."""
        context, commands = self._context, list[Command]()
        if context.now_ns >= state.refresh_at_ns:
            state.refresh_at_ns = context.now_ns + context.scaled_ns(REFRESH_S)
            for spec in state.pod["spec"]["containers"]:
                before = state.mounts.get(spec["name"])
                if before is None:
                    continue
                try:
                    now = mounts(context.store, state.pod, spec)
                except MissingReference:
                    continue
                if now != before:
                    state.mounts[spec["name"]] = now
                    commands.append(RefreshMounts(uid=state.uid, container=spec["name"], mounts=now))
        context.requeue(state.refresh_at_ns)
        return commands


Purpose = Literal["readiness", "liveness"]
PURPOSES: tuple[Purpose, ...] = ("readiness", "liveness")
_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "timeoutSeconds": 1}
_THRESHOLDS = {"failureThreshold": 3, "successThreshold": 1}


@dataclass
class _Course:
    """What the probes of one purpose have said since a container's start."""

    attempt: int
    due_ns: int
    asked: bool = False
    successes: int = 0
    failures: int = 0
    holds: bool = False
    held: bool = False


class Probes:
    """The probes of all containers of a node."""

    def __init__(self, context: Context):
        self._context = context
        self._courses: dict[tuple[str, str, Purpose], _Course] = {}

    def due(self, state: PodState, container: ContainerState, spec: Mapping[str, Any]) -> list[Command]:
        """Return the questions that a running container is to be asked now."""
        commands: list[Command] = []
        for purpose in PURPOSES:
            probe = probe_of(spec, purpose)
            if probe is None:
                continue
            course = self._course(state, container, probe, purpose)
            if course.asked:
                continue
            if self._context.now_ns < course.due_ns:
                self._context.requeue(course.due_ns)
                continue
            course.asked = True
            commands.append(_question(state, container, spec, probe, purpose))
        return commands

    def take(self, state: PodState, container: ContainerState, spec: Mapping[str, Any], answer: ProbeResult) -> None:
        """Take in an answer: a container becomes ready or not, or is to be restarted."""
        purpose = answer.purpose
        probe = probe_of(spec, purpose)
        if probe is None:
            return
        course = self._course(state, container, probe, purpose)
        course.asked = False
        course.due_ns = answer.time_ns + int(self._pause_s(probe, course, answer) * 1e9)
        if answer.failure:
            course.successes, course.failures = 0, course.failures + 1
            message = f"{purpose.capitalize()} probe failed: {answer.failure}"
            self._context.events.warning(state.pod, "Unhealthy", message)
        else:
            course.successes, course.failures = course.successes + 1, 0
        if purpose == "readiness":
            if course.failures >= probe["failureThreshold"]:
                course.holds = False
            elif course.successes >= probe["successThreshold"]:
                course.holds = course.held = True
            container.answers = course.holds
        elif course.failures >= probe["failureThreshold"]:
            container.restart_why = f"Container {container.name} failed liveness probe, will be restarted"

    def _pause_s(self, probe: Mapping[str, Any], course: _Course, answer: ProbeResult) -> float:
        again_s = self._context.start_times.probe_again_s
        starts = answer.purpose == "readiness" and bool(answer.failure) and not course.held
        return min(again_s, probe["periodSeconds"]) if starts and again_s is not None else probe["periodSeconds"]

    def forget(self, uid: str) -> None:
        """Drop what is known of a pod that is gone."""
        self._courses = {key: course for key, course in self._courses.items() if key[0] != uid}

    def _course(
        self, state: PodState, container: ContainerState, probe: Mapping[str, Any], purpose: Purpose
    ) -> _Course:
        key = (state.uid, container.name, purpose)
        course = self._courses.get(key)
        if course is None or course.attempt != container.attempt:
            due_ns = container.started_ns + int(probe["initialDelaySeconds"] * 1e9)
            course = self._courses[key] = _Course(attempt=container.attempt, due_ns=due_ns)
        return course


def probe_of(spec: Mapping[str, Any], purpose: Purpose) -> dict[str, Any] | None:
    """Return a container's probe with what an API server fills in; None without one that we know how to make.

    >>> probe_of({"readinessProbe": {"tcpSocket": {"port": 80}}}, "readiness")["periodSeconds"]
    10
    """
    probe = spec.get(f"{purpose}Probe")
    if not probe or not ("tcpSocket" in probe or "httpGet" in probe):
        return None
    return {**_DEFAULTS, **_THRESHOLDS, **probe}


def _question(
    state: PodState, container: ContainerState, spec: Mapping[str, Any], probe: Mapping[str, Any], purpose: Purpose
) -> ProbeContainer:
    action = probe.get("tcpSocket") or probe["httpGet"]
    return ProbeContainer(
        uid=state.uid,
        container=container.name,
        attempt=container.attempt,
        purpose=purpose,
        address=state.address,
        port=_port(action["port"], spec),
        path=probe["httpGet"].get("path", "/") if "httpGet" in probe else None,
        timeout_s=float(probe["timeoutSeconds"]),
    )


def _port(port: int | str, spec: Mapping[str, Any]) -> int:
    if isinstance(port, int):
        return port
    return next((one["containerPort"] for one in spec.get("ports", []) if one.get("name") == port), 0)
