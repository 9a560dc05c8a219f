"""Controls without a model: a fixed runbook and a random guess; on a live system they restart the blamed service."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolDef

from faultset.agents.interface.inspect_tools import call_tool
from faultset.agents.runs.answers import FAULT_TYPES, SYSTEM_LEVELS
from faultset.agents.runs.record import AGENT, CANDIDATES

_NOT_READY, _WARNING, _FAILED_CALLS, _LOUD_LOGS = 1000.0, 100.0, 10.0, 1.0
_MIN_ERROR_SHARE = 1.0
"""Smallest percentage of failed calls for which the called service is blamed."""
_CALL = re.compile(r"^(\S+)\s+(\S+)\s+[\d.,]+\s+([\d.]+) %", re.MULTILINE)


@solver(name="random-agent")
def random_agent(seed: int = 0) -> Solver:
    """Answer with a random candidate, level and type; for detection, report a fault half of the time."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set(AGENT, {"name": "random-agent", "version": "2", "kind": "control"})
        chance = random.Random(f"{seed}/{state.sample_id}/{state.epoch}")
        services = list(_get_candidates(state))
        chance.shuffle(services)
        level, fault_type = chance.choice(SYSTEM_LEVELS), chance.choice(FAULT_TYPES)
        if _find_submission(state) == "submit_detection" and chance.random() < 0.5:
            services = []
        return await _submit(state, services, level, fault_type)

    return solve


@solver
def scripted() -> Solver:
    """Follow a fixed runbook and blame the service with the worst symptoms.

    In this order: pods that are not ready, warning events, failed calls, error logs.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set(AGENT, {"name": "scripted", "version": "2", "kind": "control"})
        candidates = _get_candidates(state)
        suspicion: defaultdict[str, float] = defaultdict(float)
        for service, status in _parse_states(await call_tool(state, "list_objects", {"kind": "Pod"})):
            if not status.get("ready") or any(
                container.get("restartCount") for container in status.get("containers") or ()
            ):
                suspicion[service] += _NOT_READY
        for service, status in _parse_states(await call_tool(state, "list_objects", {"kind": "Deployment"})):
            if status.get("readyReplicas") != status.get("replicas") or status.get("replicas") == 0:
                suspicion[service] += _NOT_READY
        warnings = await call_tool(state, "list_events", {"type": "Warning"})
        for service, count in _count_named_services(warnings, candidates).items():
            suspicion[service] += _WARNING * min(count, 5)
        for service, share in _find_failing_services(await call_tool(state, "service_graph")).items():
            if service in candidates:
                suspicion[service] += _FAILED_CALLS * share / 100
        logs = await call_tool(state, "get_logs", {"level": "error", "limit": 200})
        for service, count in _count_named_services(logs, candidates).items():
            suspicion[service] += _LOUD_LOGS * min(count / 200, 1.0)
        services = [name for name, _ in sorted(suspicion.items(), key=lambda item: (-item[1], item[0]))]
        return await _submit(state, services, *_guess_kind(logs, warnings, suspicion))

    return solve


def _get_candidates(state: TaskState) -> tuple[str, ...]:
    return tuple(state.metadata[CANDIDATES])


def _find_submission(state: TaskState) -> str:
    return next(name for tool in state.tools if (name := ToolDef(tool).name).startswith("submit_"))


async def _submit(state: TaskState, services: list[str], level: str | None, fault_type: str | None) -> TaskState:
    """Submit the answer in the format of the task."""
    answers: dict[str, dict[str, Any]] = {
        "submit_detection": {"fault": bool(services)},
        "submit_localization": {"services": services},
        "submit_rca": {"system_level": level, "fault_type": fault_type},
    }
    submission = _find_submission(state)
    if submission == "submit_mitigation":
        await _repair(state, services)
        answers[submission] = {"summary": f"blamed {services[0]}" if services else "blamed nothing"}
    await call_tool(state, submission, answers[submission])
    return state


async def _repair(state: TaskState, services: list[str]) -> None:
    """Restart the first service, or scale it up if it was scaled to zero."""
    for name in services[:1]:
        question = f"kubectl get deployment {name} -o jsonpath='{{.spec.replicas}}'"
        lines = (await call_tool(state, "kubectl", {"command": question})).splitlines()
        stopped = bool(lines) and lines[0].strip() == "0"
        words = f"scale deployment/{name} --replicas 1" if stopped else f"rollout restart deployment/{name}"
        await call_tool(state, "kubectl", {"command": f"kubectl {words}"})


def _parse_states(table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (service, state) for each line of an object list."""
    states = []
    for line in table.splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3 and parts[2].startswith("{"):
            try:
                states.append((parts[1], json.loads(parts[2])))
            except ValueError:
                # a truncated answer ends within a state
                continue
    return states


def _count_named_services(text: str, candidates: tuple[str, ...]) -> Counter[str]:
    """Count, for each service, the lines whose first pod belongs to it."""
    pods = re.compile(
        rf"(?:^|[\s/])({'|'.join(map(re.escape, sorted(candidates, key=len, reverse=True)))})-[a-z0-9]+-[a-z0-9]+\b"
    )
    return Counter(match[1] for line in text.splitlines() if (match := pods.search(line)))


def _find_failing_services(graph: str) -> dict[str, float]:
    """Return the failing services that call no other failing service, with their share of failed calls."""
    shares: dict[str, float] = {}
    callers: dict[str, set[str]] = {}
    for caller, callee, share in _CALL.findall(graph):
        callers.setdefault(callee, set()).add(caller)
        shares[callee] = max(shares.get(callee, 0.0), float(share))
    failing = {name for name, share in shares.items() if share >= _MIN_ERROR_SHARE}
    passing_on = {caller for callee in failing for caller in callers[callee]}
    return {name: shares[name] for name in failing - passing_on}


def _guess_kind(logs: str, warnings: str, suspicion: Mapping[str, float]) -> tuple[str | None, str | None]:
    """Guess level and type from words in logs and events."""
    if not suspicion:
        return None, None
    if re.search(r"not authorized|authentication|no permissions|password", logs, re.IGNORECASE):
        return "application", "authentication issue"
    if re.search(r"FailedScheduling|ProvisioningFailed|BackOff", warnings):
        return "virtualization", "operation error"
    return "virtualization", "misconfiguration"
