"""Try a fault once on a real platform without recording: inject, confirm, undo, check again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from faultset.collector.episodes.health import requests_between, unready_workloads
from faultset.collector.faults.registry import FaultSpec
from faultset.collector.platforms.base import EpisodePlatform
from faultset.core.errors import PlatformError

WARM_S = 6.0
CONFIRM_S = 25.0
RECOVER_S = 40.0
_RATE_RPS = 10.0
_FAILED_OUTCOMES = ("http_error", "refused", "timeout")


@dataclass
class FaultTrial:
    """Result of trying a fault.

    Attributes
    ----------
    evidence
        Result of its check; None if the check did not detect the fault in time.
    confirmed_s
        Seconds from the injection until the check detected the fault.
    recovered_s
        Seconds from the undo until the application was ready.
    failed
        Number of failed requests and of all requests between injection and undo.
    """

    target: str
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    evidence: str | None = None
    confirmed_s: float | None = None
    recovered_s: float | None = None
    failed: tuple[int, int] = (0, 0)


def try_on_platform(
    spec: FaultSpec,
    target: str,
    platform: EpisodePlatform,
    *,
    seed: int,
    say: Callable[[str], None] = lambda sentence: None,
    warm_s: float = WARM_S,
    confirm_s: float = CONFIRM_S,
    poll_s: float = 0.5,
) -> FaultTrial:
    """Deploy the application, send load, inject the fault, wait for its check, undo it and wait for recovery.

    The caller must tear down the platform, even after an error.

    Raises
    ------
    PlatformError
        The application did not become ready before or after the fault, or the check still detects the fault.
    """
    trial = FaultTrial(target=target)
    platform.deploy()
    platform.wait(
        lambda: not unready_workloads(platform), timeout_s=platform.ready_timeout_s, what="the application to be ready"
    )
    platform.start_load(seed=seed, rate_rps=_RATE_RPS, mix=platform.app.default_mix)
    say(f"{platform.app.name} is ready; {spec.name} on {target} follows in {warm_s:g} s")
    time.sleep(warm_s)
    before = spec.state_before(platform, target)
    start_ns, start_s = time.time_ns(), time.monotonic()
    trial.parameters = dict(spec.inject(platform, target, np.random.default_rng(seed)))
    say(f"injected: {trial.parameters}")
    while trial.evidence is None and time.monotonic() < start_s + confirm_s:
        time.sleep(poll_s)
        trial.evidence = spec.check(platform, target, trial.parameters, before)
    if trial.evidence is not None:
        trial.confirmed_s = round(time.monotonic() - start_s, 1)
        say(f"in effect after {trial.confirmed_s:g} s: {trial.evidence}")
        time.sleep(min(warm_s, 5.0))
    outcomes = requests_between(platform, start_ns, time.time_ns())["outcome"].astype(str)
    trial.failed = (int(outcomes.isin(_FAILED_OUTCOMES).sum()), len(outcomes))
    undo_start_s = time.monotonic()
    platform.undo()
    platform.wait(
        lambda: not unready_workloads(platform), timeout_s=RECOVER_S, what="the application to be ready again"
    )
    trial.recovered_s = round(time.monotonic() - undo_start_s, 1)
    _wait_until_gone(spec, target, platform, trial.parameters, spec.state_from_now(platform, target, before))
    return trial


def _wait_until_gone(
    spec: FaultSpec, target: str, platform: EpisodePlatform, parameters: dict[str, Any], before: Any
) -> None:
    detection: str | None = None

    def is_gone() -> bool:
        nonlocal detection
        detection = spec.check(platform, target, parameters, before)
        return detection is None

    try:
        platform.wait(is_gone, timeout_s=RECOVER_S, what="the fault to be gone")
    except PlatformError:
        if detection is None:
            raise
        raise PlatformError(
            f"fault {spec.name} on {target} must be gone after the undo, but its check still detects it: {detection}"
        ) from None
