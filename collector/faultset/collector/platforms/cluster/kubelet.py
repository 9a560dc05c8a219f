"""The kubelet model: starts, restarts and stops the containers of pods and updates their status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.cluster.context import (
    NODE,
    Command,
    ContainerExited,
    Context,
    ForgetPod,
    LimitContainer,
    ProbeResult,
    Report,
    SignalContainer,
    StartContainer,
    Started,
    StartFailed,
)
from faultset.collector.platforms.cluster.pods import (
    REFRESH_S,
    ContainerState,
    MissingReference,
    PodMounts,
    PodState,
    Probes,
    definition,
    environment,
    init_specs,
    is_known_image,
    limits,
    read_probe,
)
from faultset.collector.runtime.cluster_api import SOCKET_VARIABLE
from faultset.core.times import rfc3339
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

FIRST_S = 10.0
LONGEST_S = 300.0
FORGET_AFTER_S = 2 * LONGEST_S


@dataclass
class _Entry:
    wait_ns: int
    updated_ns: int


class BackOff:
    """Exponentially growing delays by key.

    Parameters
    ----------
    factor
        Multiplies all delays. 1 gives the delays of a real kubelet: none for the first retry, then 10, 20, 40 … 300 s.
        The sequence starts again after ten minutes without an event.
    """

    def __init__(self, factor: float = 1.0):
        self._first_ns = int(FIRST_S * factor * 1e9)
        self._longest_ns = int(LONGEST_S * factor * 1e9)
        self._forget_ns = int(FORGET_AFTER_S * factor * 1e9)
        self._entries: dict[str, _Entry] = {}

    def until_ns(self, key: str, event_ns: int) -> int:
        """Return when the delay after an event ends; `event_ns` itself if the key has no delay yet."""
        entry = self._entries.get(key)
        if entry is None or event_ns - entry.updated_ns > self._forget_ns:
            return event_ns
        return event_ns + entry.wait_ns

    def next(self, key: str, event_ns: int, now_ns: int) -> None:
        """Record a retry after an event; the next delay is the first delay or twice the last one."""
        entry = self._entries.get(key)
        if entry is None or event_ns - entry.updated_ns > self._forget_ns:
            self._entries[key] = _Entry(self._first_ns, now_ns)
        else:
            self._entries[key] = _Entry(min(self._longest_ns, 2 * entry.wait_ns), now_ns)

    def forget(self, prefix: str) -> None:
        for key in [key for key in self._entries if key.startswith(prefix)]:
            del self._entries[key]


RESYNC_S = 10.0
"""Interval at which the kubelet reports a waiting pod again."""


class Images:
    """Simulates image pulls; failures appear in the container's status and in events."""

    def __init__(self, context: Context):
        self._context = context
        self._pulls = BackOff(context.factor)
        self._failed_ns: dict[str, int] = {}

    def has(self, state: PodState, container: ContainerState, image: str) -> bool:
        """Return whether the node has the image; if not, schedule the next pull."""
        container.image = image
        if is_known_image(image):
            message = f'Container image "{image}" already present on machine'
            self._context.events.normal(state.pod, "Pulled", message)
            return True
        container.terminated_shown = False
        key, now_ns = f"{state.uid}/{image}", self._context.now_ns
        failed_ns = self._failed_ns.get(key)
        if failed_ns is None or now_ns >= self._pulls.until_ns(key, failed_ns):
            self._pulls.next(key, now_ns if failed_ns is None else failed_ns, now_ns)
            self._failed_ns[key] = now_ns
            self._fail(state, container, image)
        elif now_ns >= container.reported_ns + self._context.scaled_ns(1):
            self._back_off(state, container, image)
        report_ns = container.reported_ns + self._context.scaled_ns(1)
        if now_ns >= report_ns:
            report_ns = container.reported_ns + self._context.scaled_ns(RESYNC_S)
        self._context.requeue(min(self._pulls.until_ns(key, self._failed_ns[key]), report_ns))
        return False

    def _fail(self, state: PodState, container: ContainerState, image: str) -> None:
        events, pod = self._context.events, state.pod
        reason = f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": not found'
        events.normal(pod, "Pulling", f'Pulling image "{image}"')
        events.warning(pod, "Failed", f'Failed to pull image "{image}": {reason}')
        events.warning(pod, "Failed", "Error: ErrImagePull")
        container.waiting = {"reason": "ErrImagePull", "message": reason}
        container.reported_ns = self._context.now_ns

    def _back_off(self, state: PodState, container: ContainerState, image: str) -> None:
        message = f'Back-off pulling image "{image}"'
        container.waiting = {"reason": "ImagePullBackOff", "message": message}
        if self._context.now_ns >= container.reported_ns + self._context.scaled_ns(RESYNC_S):
            container.reported_ns = self._context.now_ns - self._context.scaled_ns(1)
            self._context.events.normal(state.pod, "BackOff", message)
            self._context.events.warning(state.pod, "Failed", "Error: ImagePullBackOff")


_RUNTIME_ERROR = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed"
)


class Kubelet:
    """The kubelet of the only node: `reconcile` returns commands, `handle` processes reports from the node."""

    def __init__(self, context: Context, service_of: Callable[[Mapping[str, Any]], str | None]):
        self.pods: dict[str, PodState] = {}
        self._context = context
        self._service_of = service_of
        self._restarts = BackOff(context.factor)
        self._images = Images(context)
        self._mounts = PodMounts(context)
        self._probes = Probes(context)

    def reconcile(self) -> list[Command]:
        """Move every pod on the node one step towards its spec."""
        commands: list[Command] = []
        pods = {pod["metadata"]["uid"]: pod for pod in self._context.store.each("Pod") if pod["spec"].get("nodeName")}
        for uid in [uid for uid in self.pods if uid not in pods]:
            self._clear(self.pods[uid], commands)
        for uid, pod in pods.items():
            state = self.pods.get(uid)
            if state is None:
                if pod["metadata"].get("deletionTimestamp"):
                    self._context.store.remove("Pod", pod["metadata"]["name"])
                    continue
                state = self._admit(uid, pod)
            state.pod = pod
            if pod["metadata"].get("deletionTimestamp"):
                self._terminate(state, commands)
            else:
                self._sync(state, commands)
            self._update_status(state)
        return commands

    def handle(self, report: Report) -> None:
        """Process a report from the node; reports about replaced containers are ignored."""
        state = self.pods.get(report.uid)
        container = state.containers.get(report.container) if state else None
        if state is None or container is None or container.attempt != report.attempt:
            return
        if isinstance(report, ProbeResult):
            self._handle_probe(state, container, report)
            return
        container.starting = False
        if isinstance(report, Started):
            container.running, container.started_ns, container.kill_at_ns = True, report.time_ns, None
            container.is_responding, container.restart_reason = False, ""
            self._context.events.normal(state.pod, "Started", f"Started container {container.name}")
        elif isinstance(report, StartFailed):
            message = f"{_RUNTIME_ERROR}: unable to start container process: {report.message}: unknown"
            container.finished_ns = container.started_ns = report.time_ns
            container.terminated = _terminated_state(128, "StartError", report.time_ns, report.time_ns, message)
            container.waiting = {"reason": "RunContainerError", "message": message}
            self._context.events.warning(state.pod, "Failed", f"Error: {message}")
        else:
            self._handle_exit(state, container, report)
        if self._context.store.find("Pod", state.name) is not None:
            self._update_status(state)

    def _handle_exit(self, state: PodState, container: ContainerState, report: ContainerExited) -> None:
        container.running, container.kill_at_ns, container.finished_ns = False, None, report.time_ns
        reason = "OOMKilled" if report.out_of_memory else "Completed" if report.exit_code == 0 else "Error"
        container.terminated = _terminated_state(report.exit_code, reason, container.started_ns, report.time_ns)
        container.terminated_shown = True
        if report.exit_code == 0 and container.name in {spec["name"] for spec in init_specs(state.pod)}:
            container.completed = True
        node = self._context.store.find("Node", NODE)
        if report.out_of_memory and node is not None:
            self._context.events.warning(node, "OOMKilling", report.detail)

    def _handle_probe(self, state: PodState, container: ContainerState, result: ProbeResult) -> None:
        specs = {spec["name"]: spec for spec in state.pod["spec"]["containers"]}
        spec = specs.get(container.name)
        if spec is not None and container.running and not state.pod["metadata"].get("deletionTimestamp"):
            self._probes.record(state, container, spec, result)
            self._update_status(state)

    def _admit(self, uid: str, pod: Object) -> PodState:
        context = self._context
        state = PodState(uid=uid, pod=pod, address=context.pod_address(), started_ns=context.now_ns)
        state.refresh_at_ns = context.now_ns + context.scaled_ns(REFRESH_S)
        initial = init_specs(pod)
        for spec in (*initial, *pod["spec"]["containers"]):
            container = state.containers[spec["name"]] = ContainerState(spec["name"], image=spec["image"])
            if initial:
                container.waiting = {"reason": "PodInitializing"}
        self.pods[uid] = state
        return state

    def _update_status(self, state: PodState) -> None:
        current = self._context.store.find("Pod", state.name)
        if current is None or current["metadata"]["uid"] != state.uid:
            return
        state.pod = current
        self._context.store.set_status("Pod", state.name, state.status(self._context.now_ns))
        state.pod = self._context.store.find("Pod", state.name) or state.pod

    def _clear(self, state: PodState, commands: list[Command]) -> None:
        """Kill the containers of a pod that no longer exists in the store; remove its state once they have ended."""
        if not state.stopping:
            running = [container.name for container in state.containers.values() if container.running]
            for name in running:
                self._context.events.normal(state.pod, "Killing", f"Stopping container {name}")
            commands += [SignalContainer(uid=state.uid, container=name, signal="KILL") for name in running]
        state.stopping = True
        if state.ended:
            del self.pods[state.uid]
            self._restarts.forget(state.uid)
            self._probes.forget(state.uid)
            commands.append(ForgetPod(uid=state.uid))

    def _terminate(self, state: PodState, commands: list[Command]) -> None:
        grace_s = state.pod["metadata"].get("deletionGracePeriodSeconds", 30)
        for container in state.containers.values():
            if container.running:
                self._stop(state, container, grace_s, f"Stopping container {container.name}", commands)
        if state.ended:
            self._context.store.remove("Pod", state.name)

    def _stop(
        self, state: PodState, container: ContainerState, grace_s: float, reason: str, commands: list[Command]
    ) -> None:
        now_ns = self._context.now_ns
        if container.kill_at_ns is None:
            container.kill_at_ns = now_ns + int(grace_s * 1e9)
            self._context.events.normal(state.pod, "Killing", reason)
            commands.append(SignalContainer(uid=state.uid, container=container.name, signal="TERM"))
        if now_ns >= container.kill_at_ns:
            container.kill_at_ns = now_ns + int(1e9)
            commands.append(SignalContainer(uid=state.uid, container=container.name, signal="KILL"))
        self._context.requeue(container.kill_at_ns)

    def _sync(self, state: PodState, commands: list[Command]) -> None:
        commands += self._mounts.refresh(state)
        for spec in self._current_specs(state):
            container = state.containers.setdefault(spec["name"], ContainerState(spec["name"], image=spec["image"]))
            container.has_readiness_probe = read_probe(spec, "readiness") is not None
            if container.running:
                self._keep(state, container, spec, commands)
                commands += self._probes.due(state, container, spec)
            elif (
                not container.starting
                and self._has_noticed(state, container)
                and self._may_start(state, container, spec)
            ):
                self._start(state, container, spec, commands)

    def _current_specs(self, state: PodState) -> list[dict[str, Any]]:
        """Return the containers that should run now: the next init container, or all regular ones."""
        for spec in init_specs(state.pod):
            if not state.containers[spec["name"]].completed:
                return [spec]
        return state.pod["spec"]["containers"]

    def _keep(self, state: PodState, container: ContainerState, spec: dict[str, Any], commands: list[Command]) -> None:
        is_new = container.spec is not spec
        container.spec = spec
        if is_new and container.definition != definition(spec):
            container.restart_reason = f"Container {container.name} definition changed, will be restarted"
        if container.restart_reason:
            grace_s = state.pod["spec"]["terminationGracePeriodSeconds"]
            self._stop(state, container, grace_s, container.restart_reason, commands)
        elif is_new and container.limits != limits(spec):
            container.limits = limits(spec)
            cpu, memory = container.limits
            commands.append(LimitContainer(uid=state.uid, container=container.name, cpu_limit=cpu, memory_limit=memory))

    def _has_noticed(self, state: PodState, container: ContainerState) -> bool:
        """Return whether a real kubelet would already have noticed that it must start a container."""
        context, times = self._context, self._context.start_times
        completed = [other.finished_ns for other in state.containers.values() if other.completed and other.finished_ns]
        if container.finished_ns is not None:
            at_ns = container.finished_ns + context.scaled_ns(times.relist_s)
        elif completed:
            at_ns = max(completed) + context.scaled_ns(times.relist_s)
        else:
            at_ns = state.started_ns + context.scaled_ns(times.sandbox_s)
        if context.now_ns >= at_ns:
            return True
        context.requeue(at_ns)
        return False

    def _may_start(self, state: PodState, container: ContainerState, spec: dict[str, Any]) -> bool:
        key = f"{state.uid}/{container.name}/{definition(spec)}"
        if not self._restart_is_due(state, container, key) or not self._images.has(state, container, spec["image"]):
            return False
        if container.finished_ns is not None:
            self._restarts.next(key, container.finished_ns, self._context.now_ns)
        return True

    def _restart_is_due(self, state: PodState, container: ContainerState, key: str) -> bool:
        if container.finished_ns is None:
            return True
        context, now_ns = self._context, self._context.now_ns
        until_ns = self._restarts.until_ns(key, container.finished_ns)
        if now_ns >= until_ns:
            return True
        pod = f"{state.name}_{state.pod['metadata']['namespace']}({state.uid})"
        if container.waiting.get("reason") != "CrashLoopBackOff" or container.terminated_shown:
            wait_s = (until_ns - container.finished_ns) / 1e9
            message = f"back-off {wait_s:g}s restarting failed container={container.name} pod={pod}"
            container.waiting = {"reason": "CrashLoopBackOff", "message": message}
            container.terminated_shown = False
            container.reported_ns = 0
        if now_ns >= container.reported_ns + context.scaled_ns(RESYNC_S):
            container.reported_ns = now_ns
            message = f"Back-off restarting failed container {container.name} in pod {pod}"
            context.events.warning(state.pod, "BackOff", message)
        context.requeue(min(until_ns, container.reported_ns + context.scaled_ns(RESYNC_S)))
        return False

    def _start(self, state: PodState, container: ContainerState, spec: dict[str, Any], commands: list[Command]) -> None:
        context, pod = self._context, state.pod
        if not self._mounts.mount(state, spec):
            return
        try:
            env = environment(context.store, pod, spec, state.address)
        except MissingReference as error:
            container.waiting = {"reason": "CreateContainerConfigError", "message": str(error)}
            container.terminated_shown = False
            if context.now_ns >= container.reported_ns + context.scaled_ns(RESYNC_S):
                container.reported_ns = context.now_ns
                context.events.warning(pod, "Failed", f"Error: {error}")
            context.requeue(container.reported_ns + context.scaled_ns(RESYNC_S))
            return
        if pod["spec"].get("serviceAccountName") and context.api_socket is not None:
            env[SOCKET_VARIABLE] = context.api_socket
        container.attempt += 1
        container.starting, container.terminated_shown = True, False
        container.definition, container.limits = definition(spec), limits(spec)
        context.events.normal(pod, "Created", f"Created container: {container.name}")
        commands.append(
            StartContainer(
                pod=state.name,
                uid=state.uid,
                container=container.name,
                attempt=container.attempt,
                service=self._service_of(pod),
                image=spec["image"],
                command=(*(spec.get("command") or ()), *(spec.get("args") or ())),
                env=env,
                mounts=state.mounts[container.name],
                address=state.address,
                cpu_limit=container.limits[0],
                memory_limit=container.limits[1],
                program_s=context.scaled_ns(context.start_times.program_s) / 1e9,
            )
        )


def _terminated_state(code: int, reason: str, started_ns: int, finished_ns: int, message: str = "") -> dict[str, Any]:
    state = {"exitCode": code, "reason": reason, "startedAt": rfc3339(started_ns), "finishedAt": rfc3339(finished_ns)}
    return {**state, "message": message} if message else state
