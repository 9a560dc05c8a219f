"""Faults in stores and brokers that keep running but work badly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from numpy.random import Generator

from faultset.collector.faults.deployments import get_container, get_pod_name, list_pods, patch_container
from faultset.collector.faults.registry import Parameters, fault
from faultset.collector.faults.stores import (
    act_as_administrator,
    administrator_argv,
    store_state,
    stores_with_capability,
)
from faultset.collector.faults.targets import (
    list_consumed_brokers,
    list_consuming_services,
    list_own_stores_of_requests,
    list_written_databases,
    list_written_stores,
)
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import is_ready

_WORK_DURATION_S = "1800"


def start_with_limit(platform: Platform, target: str, option: str, value: int) -> dict[str, Any]:
    """Add an option to the command of a store, which replaces its pod."""
    option_words = [option, str(value)]
    command = [*(get_container(platform, target).get("command") or []), *option_words]
    patch_container(platform, target, recreate=True, command=command)
    return {"arguments": option_words}


def runs_with_limit(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether a ready pod was started with the arguments."""
    arguments = list(parameters["arguments"])
    for pod in list_pods(platform, target):
        if is_ready(pod) and (pod["spec"]["containers"][0].get("command") or [])[-len(arguments) :] == arguments:
            return f"{pod['metadata']['name']} runs with {' '.join(arguments)}"
    return None


_LIMIT = {
    "system_level": "Application",
    "fault_type": "Misconfiguration",
    "check": runs_with_limit,
    "needs": ("runtime",),
}


@fault(
    "connection-limit",
    **_LIMIT,
    targets=stores_with_capability("connection-limit", list_own_stores_of_requests),
    intensity="one or two connections",
)
def connection_limit(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Limit a store to one or two connections at a time; it refuses all others."""
    return start_with_limit(platform, target, "--max-clients", int(rng.integers(1, 3)))


@fault(
    "store-memory-limit",
    **_LIMIT,
    targets=stores_with_capability("memory-limit", list_written_stores),
    intensity="256 to 700 KiB",
)
def store_memory_limit(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Start a store with less memory than its empty server needs, so that it accepts no data."""
    return start_with_limit(platform, target, "--max-memory-kib", int(rng.integers(256, 700)))


def begin_repeated_work(
    platform: Platform, target: str, rng: Generator, verb: Literal["lock", "report"]
) -> dict[str, Any]:
    """Draw the length of the work and of its pauses, and start it."""
    pod, on_ms, off_ms = get_pod_name(platform, target), int(rng.integers(250, 1300)), int(rng.integers(500, 3000))
    file = f"/tmp/{rng.bytes(4).hex()}"
    durations = ["--on-ms", str(on_ms), "--off-ms", str(off_ms), "--seconds", _WORK_DURATION_S]
    platform.exec(
        pod,
        administrator_argv(platform.app, target, verb, *durations, "--pid-file", file),
        undo=["faultset-work", "stop", "--pid-file", file],
    )
    return {"pod": pod, "on_ms": on_ms, "off_ms": off_ms, "pid_file": file}


def is_work_running(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    if not store_state(platform, target, "--pid-file", parameters["pid_file"]).get("working"):
        return None
    return (
        f"{parameters['pod']} is busy for {parameters['on_ms']} ms at a time, with pauses of {parameters['off_ms']} ms"
    )


_REPEATED_WORK = {
    "system_level": "Application",
    "fault_type": "Operation Error",
    "targets": stores_with_capability("locks", list_own_stores_of_requests),
    "check": is_work_running,
    "root_cause_kind": "Pod",
    "intensity": "250 to 1,300 ms at a time, pauses of 0.5 to 3 s",
    "gray": True,
    "needs": ("exec", "runtime"),
}


@fault("locked-store", **_REPEATED_WORK)
def locked_store(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Lock and unlock all data of a store repeatedly."""
    return begin_repeated_work(platform, target, rng, "lock")


@fault("heavy-query", **_REPEATED_WORK)
def heavy_query(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Repeat a query that compares all pairs of a store's rows, with pauses."""
    return begin_repeated_work(platform, target, rng, "report")


def find_file_size_limit(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    state = store_state(platform, target)
    if state.get("file_limit") is None:
        return None
    write_result = f", its last write ended with {state['file_write']}" if "file_write" in state else ""
    return f"files of {target} are limited to {state['file_limit']} bytes{write_result}"


@fault(
    "volume-full",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    targets=stores_with_capability("files", list_written_databases),
    check=find_file_size_limit,
    intensity="0 to 1,500 bytes left",
    needs=("exec", "runtime"),
)
def volume_full(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Limit the growth of the database's files to a few hundred bytes, so that writes soon fail."""
    free_bytes = int(rng.integers(0, 1500))
    act_as_administrator(platform, target, ["limit-files", "--leave", str(free_bytes)], ["free-files"])
    return {"bytes_left": free_bytes}


def has_unreadable_message(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    count = store_state(platform, target, "--stream", parameters["stream"]).get("unreadable")
    return f"{count} messages of {parameters['stream']} in {target} cannot be read" if count else None


@fault(
    "poison-message",
    system_level="Application",
    fault_type="Code Defect",
    targets=list_consumed_brokers,
    check=has_unreadable_message,
    also_accepted=list_consuming_services,
    needs=("exec", "runtime"),
)
def poison_message(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Publish a message with a truncated body; consumers stop at it and never reach later messages."""
    services = platform.app.services
    topics = {
        consumer.topic
        for service in services.values()
        for consumer in service.consumers.values()
        if consumer.store == target
    }
    topic = str(rng.choice(sorted(topics)))
    stream = f"{services[target].database or target}.{topic}"
    act_as_administrator(
        platform, target, ["publish-unreadable", "--stream", stream], ["remove-unreadable", "--stream", stream]
    )
    return {"topic": topic, "stream": stream}
