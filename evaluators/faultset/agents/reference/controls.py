"""Controls without a model: a fixed runbook, and a guess that looks at nothing; live, they restart what they blame."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from faultset.agents.running.contract import Attempt
from faultset.agents.runs.answers import FAULT_TYPES, SYSTEM_LEVELS

_NOT_READY, _WARNING, _FAILED_CALLS, _LOUD_LOGS = 1000.0, 100.0, 10.0, 1.0
_LEAST_ERROR_SHARE = 1.0
"""Per cent of failed calls from which on a called service is blamed."""
_CALL = re.compile(r"^(\S+)\s+(\S+)\s+[\d.,]+\s+([\d.]+) %", re.MULTILINE)


def submit(attempt: Attempt, services: list[str], level: str | None, fault_type: str | None) -> None:
    """Give an answer in the form that the problem wants."""
    answers: dict[str, dict[str, Any]] = {
        "detection": {"fault": bool(services)},
        "localization": {"services": services},
        "diagnosis": {"system_level": level, "fault_type": fault_type},
    }
    if attempt.problem.task == "mitigation":
        repair(attempt, services)
        return
    everything = {key: value for answer in answers.values() for key, value in answer.items()}
    attempt.call(attempt.problem.submission, answers.get(attempt.problem.task, everything))


def repair(attempt: Attempt, services: list[str]) -> None:
    """Scale the service that is blamed most up from zero, or restart it, and hand the system back."""
    for name in services[:1]:
        asked = f"kubectl get deployment {name} -o jsonpath='{{.spec.replicas}}'"
        replicas = attempt.call("kubectl", {"command": asked})
        stopped = replicas.status == "ok" and replicas.text.splitlines()[0].strip() == "0"
        words = f"scale deployment/{name} --replicas 1" if stopped else f"rollout restart deployment/{name}"
        attempt.call("kubectl", {"command": f"kubectl {words}"})
    attempt.call(attempt.problem.submission, {"summary": f"blamed {services[0]}" if services else "blamed nothing"})


class RandomAgent:
    """Asks nothing and names a candidate, level and type at random; every second time it says that all is well."""

    name = "random-agent"
    title = "a guess without a look"
    version = "1"
    kind = "control"
    needs_model = False
    stochastic = True

    def act(self, attempt: Attempt) -> None:
        """Answer at random."""
        chance = attempt.random
        services = list(attempt.problem.candidates)
        chance.shuffle(services)
        level, fault_type = chance.choice(SYSTEM_LEVELS), chance.choice(FAULT_TYPES)
        if attempt.problem.task == "detection" and chance.random() < 0.5:
            services = []
        submit(attempt, services, level, fault_type)


class Scripted:
    """Follows a fixed runbook and blames the loudest: pods, warnings, failed calls, error logs, in this order."""

    name = "scripted"
    title = "a runbook that blames the loudest"
    version = "1"
    kind = "control"
    needs_model = False
    stochastic = False

    def act(self, attempt: Attempt) -> None:
        """Look, count, and answer."""
        loud: defaultdict[str, float] = defaultdict(float)
        pods = attempt.call("list_objects", {"kind": "Pod"})
        for service, state in _states(pods.text):
            if not state.get("ready") or any(one.get("restartCount") for one in state.get("containers") or ()):
                loud[service] += _NOT_READY
        deployments = attempt.call("list_objects", {"kind": "Deployment"})
        for service, state in _states(deployments.text):
            if state.get("readyReplicas") != state.get("replicas") or state.get("replicas") == 0:
                loud[service] += _NOT_READY
        warnings = attempt.call("list_events", {"type": "Warning"})
        for service, count in _named(warnings.text, attempt.problem.candidates).items():
            loud[service] += _WARNING * min(count, 5)
        for service, share in _failing(attempt.call("service_graph").text).items():
            if service in attempt.problem.candidates:
                loud[service] += _FAILED_CALLS * share / 100
        logs = attempt.call("get_logs", {"level": "error", "limit": 200})
        for service, count in _named(logs.text, attempt.problem.candidates).items():
            loud[service] += _LOUD_LOGS * min(count / 200, 1.0)
        services = [name for name, _ in sorted(loud.items(), key=lambda item: (-item[1], item[0]))]
        submit(attempt, services, *_kind(logs.text, warnings.text, loud))


def _states(table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return service and state of each line of a list of objects."""
    found = []
    for line in table.splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3 and parts[2].startswith("{"):
            try:
                found.append((parts[1], json.loads(parts[2])))
            except ValueError:
                # an answer that was cut ends within a state
                continue
    return found


def _named(text: str, candidates: tuple[str, ...]) -> Counter[str]:
    """Count the lines in which a pod of each service is the first that is named."""
    pods = re.compile(
        rf"(?:^|[\s/])({'|'.join(map(re.escape, sorted(candidates, key=len, reverse=True)))})-[a-z0-9]+-[a-z0-9]+\b"
    )
    return Counter(match[1] for line in text.splitlines() if (match := pods.search(line)))


def _failing(graph: str) -> dict[str, float]:
    """Return the services that fail themselves: their callers see errors, and none that they call fails as well."""
    shares: dict[str, float] = {}
    callers: dict[str, set[str]] = {}
    for caller, callee, share in _CALL.findall(graph):
        callers.setdefault(callee, set()).add(caller)
        shares[callee] = max(shares.get(callee, 0.0), float(share))
    failing = {name for name, share in shares.items() if share >= _LEAST_ERROR_SHARE}
    passing_on = {caller for callee in failing for caller in callers[callee]}
    return {name: shares[name] for name in failing - passing_on}


def _kind(logs: str, warnings: str, loud: Mapping[str, float]) -> tuple[str | None, str | None]:
    """Guess level and type by words in logs and events."""
    if not loud:
        return None, None
    if re.search(r"not authorized|authentication|no permissions|password", logs, re.IGNORECASE):
        return "application", "authentication issue"
    if re.search(r"FailedScheduling|ProvisioningFailed|BackOff", warnings):
        return "virtualization", "operation error"
    return "virtualization", "misconfiguration"
