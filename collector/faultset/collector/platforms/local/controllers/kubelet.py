"""The kubelet: starts, restarts and stops the containers of the pods on its node, and reports their status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.local.controllers.back_off import BackOff
from faultset.collector.platforms.local.controllers.commands import (
    Command,
    ContainerExited,
    ForgetPod,
    LimitContainer,
    ProbeResult,
    Report,
    SignalContainer,
    StartContainer,
    Started,
    StartFailed,
)
from faultset.collector.platforms.local.controllers.context import Context
from faultset.collector.platforms.local.controllers.images import RESYNC_S, Images
from faultset.collector.platforms.local.controllers.pod_mounts import REFRESH_S, PodMounts
from faultset.collector.platforms.local.controllers.pod_specs import (
    MissingReference,
    definition,
    environment,
    limits,
)
from faultset.collector.platforms.local.controllers.pod_states import ContainerState, PodState, init_specs
from faultset.collector.platforms.local.controllers.probes import Probes, probe_of
from faultset.collector.platforms.local.controllers.scheduler import NODE
from faultset.collector.platforms.observation.timestamps import rfc3339
from faultset.collector.runtime.cluster_api import SOCKET_VARIABLE

_RUNTIME = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed"


class Kubelet:
    """Decides for one node; `reconcile` returns commands, `handle` takes in what became of them.

    Parameters
    ----------
    context
        Store, events and clock.
    service_of
        Returns the workload that owns an object, or None.
    """

    def __init__(self, context: Context, service_of: Callable[[Mapping[str, Any]], str | None]):
        self.pods: dict[str, PodState] = {}
        self._context = context
        self._service_of = service_of
        self._restarts = BackOff(context.factor)
        self._images = Images(context)
        self._mounts = PodMounts(context)
        self._probes = Probes(context)

    def reconcile(self) -> list[Command]:
        """Bring every pod on the node one step towards its spec."""
        commands: list[Command] = []
        wanted = {pod["metadata"]["uid"]: pod for pod in self._context.store.each("Pod") if pod["spec"].get("nodeName")}
        for uid in [uid for uid in self.pods if uid not in wanted]:
            self._clear(self.pods[uid], commands)
        for uid, pod in wanted.items():
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
            self._report(state)
        return commands

    def handle(self, report: Report) -> None:
        """Take in what the node reports; news of a container that is no longer known are dropped."""
        state = self.pods.get(report.uid)
        container = state.containers.get(report.container) if state else None
        if state is None or container is None or container.attempt != report.attempt:
            return
        if isinstance(report, ProbeResult):
            self._take_answer(state, container, report)
            return
        container.starting = False
        if isinstance(report, Started):
            container.running, container.started_ns, container.kill_at_ns = True, report.time_ns, None
            container.answers, container.restart_why = False, ""
            self._context.events.normal(state.pod, "Started", f"Started container {container.name}")
        elif isinstance(report, StartFailed):
            message = f"{_RUNTIME}: unable to start container process: {report.message}: unknown"
            container.finished_ns = container.started_ns = report.time_ns
            container.terminated = _terminated(128, "StartError", report.time_ns, report.time_ns, message)
            container.waiting = {"reason": "RunContainerError", "message": message}
            self._context.events.warning(state.pod, "Failed", f"Error: {message}")
        else:
            self._exited(state, container, report)
        if self._context.store.find("Pod", state.name) is not None:
            self._report(state)

    def _exited(self, state: PodState, container: ContainerState, report: ContainerExited) -> None:
        container.running, container.kill_at_ns, container.finished_ns = False, None, report.time_ns
        reason = "OOMKilled" if report.out_of_memory else "Completed" if report.exit_code == 0 else "Error"
        container.terminated = _terminated(report.exit_code, reason, container.started_ns, report.time_ns)
        container.terminated_shown = True
        if report.exit_code == 0 and container.name in {spec["name"] for spec in init_specs(state.pod)}:
            container.completed = True
        node = self._context.store.find("Node", NODE)
        if report.out_of_memory and node is not None:
            self._context.events.warning(node, "OOMKilling", report.detail)

    def _take_answer(self, state: PodState, container: ContainerState, answer: ProbeResult) -> None:
        spec = next((one for one in state.pod["spec"]["containers"] if one["name"] == container.name), None)
        if spec is not None and container.running and not state.pod["metadata"].get("deletionTimestamp"):
            self._probes.take(state, container, spec, answer)
            self._report(state)

    def _admit(self, uid: str, pod: Object) -> PodState:
        context = self._context
        state = PodState(uid=uid, pod=pod, address=context.pod_address(), started_ns=context.now_ns)
        state.refresh_at_ns = context.now_ns + context.scaled_ns(REFRESH_S)
        first = init_specs(pod)
        for spec in (*first, *pod["spec"]["containers"]):
            container = state.containers[spec["name"]] = ContainerState(spec["name"], image=spec["image"])
            if first:
                container.waiting = {"reason": "PodInitializing"}
        self.pods[uid] = state
        return state

    def _report(self, state: PodState) -> None:
        current = self._context.store.find("Pod", state.name)
        if current is None or current["metadata"]["uid"] != state.uid:
            return
        state.pod = current
        self._context.store.set_status("Pod", state.name, state.status(self._context.now_ns))
        state.pod = self._context.store.find("Pod", state.name) or state.pod

    def _clear(self, state: PodState, commands: list[Command]) -> None:
        """Kill what is left of a pod that was deleted without grace, then forget it."""
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
        self, state: PodState, container: ContainerState, grace_s: float, why: str, commands: list[Command]
    ) -> None:
        now_ns = self._context.now_ns
        if container.kill_at_ns is None:
            container.kill_at_ns = now_ns + int(grace_s * 1e9)
            self._context.events.normal(state.pod, "Killing", why)
            commands.append(SignalContainer(uid=state.uid, container=container.name, signal="TERM"))
        if now_ns >= container.kill_at_ns:
            container.kill_at_ns = now_ns + int(1e9)
            commands.append(SignalContainer(uid=state.uid, container=container.name, signal="KILL"))
        self._context.requeue(container.kill_at_ns)

    def _sync(self, state: PodState, commands: list[Command]) -> None:
        commands += self._mounts.refresh(state)
        for spec in self._wanted(state):
            container = state.containers.setdefault(spec["name"], ContainerState(spec["name"], image=spec["image"]))
            container.is_asked = probe_of(spec, "readiness") is not None
            if container.running:
                self._keep(state, container, spec, commands)
                commands += self._probes.due(state, container, spec)
            elif (
                not container.starting
                and self._has_looked(state, container)
                and self._may_start(state, container, spec)
            ):
                self._start(state, container, spec, commands)

    def _wanted(self, state: PodState) -> list[dict[str, Any]]:
        """Return the containers that are to run now: the init containers one after the other, then the others."""
        for spec in init_specs(state.pod):
            if not state.containers[spec["name"]].completed:
                return [spec]
        return state.pod["spec"]["containers"]

    def _keep(self, state: PodState, container: ContainerState, spec: dict[str, Any], commands: list[Command]) -> None:
        if container.definition != definition(spec):
            container.restart_why = f"Container {container.name} definition changed, will be restarted"
        if container.restart_why:
            why = container.restart_why
            self._stop(state, container, state.pod["spec"]["terminationGracePeriodSeconds"], why, commands)
        elif container.limits != limits(spec):
            container.limits = limits(spec)
            cpu, memory = container.limits
            commands.append(LimitContainer(uid=state.uid, container=container.name, cpu_limit=cpu, memory_limit=memory))

    def _has_looked(self, state: PodState, container: ContainerState) -> bool:
        """Say whether the kubelet would know by now that a container has to be started."""
        context, times = self._context, self._context.start_times
        before = [one.finished_ns for one in state.containers.values() if one.completed and one.finished_ns]
        if container.finished_ns is not None:
            at_ns = container.finished_ns + context.scaled_ns(times.noticed_s)
        elif before:
            at_ns = max(before) + context.scaled_ns(times.noticed_s)
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
        except MissingReference as missing:
            container.waiting = {"reason": "CreateContainerConfigError", "message": str(missing)}
            container.terminated_shown = False
            if context.now_ns >= container.reported_ns + context.scaled_ns(RESYNC_S):
                container.reported_ns = context.now_ns
                context.events.warning(pod, "Failed", f"Error: {missing}")
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


def _terminated(code: int, reason: str, started_ns: int, finished_ns: int, message: str = "") -> dict[str, Any]:
    made = {
        "exitCode": code,
        "reason": reason,
        "startedAt": rfc3339(started_ns),
        "finishedAt": rfc3339(finished_ns),
    }
    return {**made, "message": message} if message else made
