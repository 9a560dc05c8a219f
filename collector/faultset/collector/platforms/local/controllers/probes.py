"""Readiness and liveness probes: when the kubelet asks a container, and what the answers mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from faultset.collector.platforms.local.controllers.commands import Command, ProbeContainer, ProbeResult
from faultset.collector.platforms.local.controllers.context import Context
from faultset.collector.platforms.local.controllers.pods import ContainerState, PodState

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
