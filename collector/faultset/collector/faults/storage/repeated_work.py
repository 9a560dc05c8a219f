"""What an administrator runs inside a store again and again, and which keeps everybody else waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.stores import administrator_argv, store_state
from faultset.collector.platforms.api.capabilities import CommandExecutor, require
from faultset.collector.platforms.api.platform import Platform

_SECONDS = "1800"


def begin_repeated_work(
    platform: Platform, target: str, rng: np.random.Generator, verb: Literal["lock", "report"]
) -> dict[str, Any]:
    """Draw how long it lasts and pauses, and begin it."""
    pod, on_ms, off_ms = pod_of(platform, target), int(rng.integers(250, 1300)), int(rng.integers(500, 3000))
    file = f"/tmp/{rng.bytes(4).hex()}"
    times = ["--on-ms", str(on_ms), "--off-ms", str(off_ms), "--seconds", _SECONDS]
    require(platform, CommandExecutor).exec(
        pod,
        administrator_argv(platform.app, target, verb, *times, "--pid-file", file),
        undo=["faultset-work", "stop", "--pid-file", file],
    )
    return {"pod": pod, "on_ms": on_ms, "off_ms": off_ms, "pid_file": file}


def is_work_running(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether it still runs, for the `check` of a fault."""
    if not store_state(platform, target, "--pid-file", parameters["pid_file"]).get("working"):
        return None
    return f"{parameters['pod']} is kept for {parameters['on_ms']} ms, every {parameters['off_ms']} ms"
