"""The steps of a fault: observe, inject, confirm, repair, recover; in an episode, an incident or a short trial."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from faultset.collector.episodes.health import (
    EpisodeWatchdog,
    health_problem,
    requests_between,
    unhealthy_requests,
    unready_workloads,
)
from faultset.collector.episodes.recording import LiveRecording
from faultset.collector.episodes.records import EpisodeClock, EpisodeRecord, FaultRecord
from faultset.collector.episodes.state_machine import EpisodeMachine
from faultset.collector.faults.registry import FaultSpec
from faultset.collector.mitigation.judge import LiveFault
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.verdicts.client_requests import ComparisonWindows, sli_tests
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS

RECOVERY_TIMEOUT_S = 120.0
RECOVERY_WINDOW_S = 4.0

_log = logging.getLogger(__name__)


class FaultSteps:
    """Injects and confirms the faults of a record; records their times, parameters and evidence."""

    def __init__(self, record: EpisodeRecord, platform: EpisodePlatform, clock: EpisodeClock):
        self._record, self._platform, self._clock = record, platform, clock

    def observe(self) -> None:
        """Observe the state before the first injection, and record when the injection starts."""
        for fault in self._record.faults:
            if not fault.injections:
                fault.before = fault.spec.state_before(self._platform, fault.target)
        self._record.inject_start_ns = self._record.inject_start_ns or self._clock.time_ns()

    def inject(self, onset_ns: int) -> None:
        """Inject the faults that are due, for the first time or again."""
        self.observe()
        for fault in self._record.faults:
            if fault.is_due(self._clock.time_ns(), onset_ns):
                self._inject(fault)
        if self._record.inject_done_ns is None:
            self._record.inject_done_ns = self._clock.time_ns()
            _log.info("injected: %s", self._record.plan.title)
        self.confirm()

    def _inject(self, fault: FaultRecord) -> None:
        fault.inject_start_ns = fault.inject_start_ns or self._clock.time_ns()
        # repetitions draw the same values; the label describes the first injection
        parameters = fault.spec.inject_with(self._platform, fault.target, copy.deepcopy(fault.rng), fault.course)
        fault.parameters = fault.parameters or parameters
        fault.injections += 1
        fault.inject_done_ns = fault.inject_done_ns or self._clock.time_ns()

    def confirm(self) -> None:
        """Check whether faults that are not yet confirmed are in effect."""
        for fault in self._record.unconfirmed:
            if not fault.injections:
                continue
            evidence = fault.spec.check(self._platform, fault.target, fault.parameters, fault.before)
            if evidence:
                fault.effective_ns = self._clock.time_ns()
                self._record.add_evidence("injection", fault.target, True, evidence)
                _log.info("%s on %s is in effect: %s", fault.spec.name, fault.target, evidence)


def find_recovery_problem(platform: EpisodePlatform, undo_done_ns: int, now_ns: int, min_rate_rps: float) -> str | None:
    """Return why the application has not recovered since the undo; None if it has."""
    window_ns = int(RECOVERY_WINDOW_S * SECOND_NS)
    problem = unready_workloads(platform)
    if problem or now_ns - undo_done_ns < window_ns:
        return problem or "too few requests"
    return health_problem(platform, max(now_ns - window_ns, undo_done_ns), now_ns, min_rate_rps, now_ns=now_ns) or None


_LONGEST_PAUSE_S = 0.25


def build_live_fault(
    record: EpisodeRecord,
    machine: EpisodeMachine,
    platform: EpisodePlatform,
    waits: RepairWaits,
    recording: LiveRecording,
) -> LiveFault:
    """Return the injected fault at the end of an episode's view."""
    (fault,) = record.faults
    assert record.inject_start_ns is not None
    clock = record.clock
    end_ns = min(clock.time_ns(), machine.view_end_ns)
    windows = ComparisonWindows(
        start_ns=machine.view_start_ns,
        reference_end_ns=machine.reference_end_ns,
        onset_ns=record.inject_start_ns,
        end_ns=end_ns,
    )
    tests = sli_tests(requests_between(platform, machine.view_start_ns, end_ns), windows)

    def undo() -> None:
        waits.stop_repetition()
        platform.undo()

    return LiveFault(
        fault=fault.spec,
        target=fault.target,
        parameters=fault.parameters,
        before=fault.before,
        onset_ns=record.inject_start_ns,
        manifest=any(test.fires for test in tests),
        unhealthy_requests=lambda start_ns, end_ns: unhealthy_requests(
            platform, start_ns, end_ns, record.plan.min_rate_rps, now_ns=clock.time_ns()
        ),
        undo=undo,
        sleep=waits.sleep,
        clock=clock.time_ns,
        recorded=lambda: recording.up_to(clock.time_ns()),
    )


class RepairWaits:
    """Waits during a repair and repeats the injection when due; fails on an interrupt or a disturbed host."""

    def __init__(
        self,
        clock: EpisodeClock,
        repeat_s: float | None,
        *,
        inject: Callable[[], None],
        interrupted: Callable[[], bool],
        watchdog: EpisodeWatchdog,
    ):
        self._clock, self._pause_ns = clock, round((repeat_s or 0.0) * SECOND_NS)
        self._next_ns = clock.monotonic_ns() + self._pause_ns if repeat_s else None
        self._inject, self._interrupted, self._watchdog = inject, interrupted, watchdog

    def sleep(self, seconds: float) -> None:
        """Wait; raise PlatformError if the episode must end."""
        end_ns = self._clock.monotonic_ns() + round(seconds * SECOND_NS)
        while True:
            if self._interrupted():
                raise PlatformError("interrupted during the repair")
            self._watchdog.check()
            if self._next_ns is not None and self._clock.monotonic_ns() >= self._next_ns:
                self._next_ns = self._clock.monotonic_ns() + self._pause_ns
                self._inject()
            left_ns = end_ns - self._clock.monotonic_ns()
            if left_ns <= 0:
                return
            self._clock.sleep(min(_LONGEST_PAUSE_S, left_ns / SECOND_NS))

    def stop_repetition(self) -> None:
        self._next_ns = None


WARM_S = 6.0
CONFIRM_S = 25.0
RECOVER_S = 40.0
_RATE_RPS = 10.0
_FAILED_OUTCOMES = ("http_error", "refused", "timeout")


@dataclass
class FaultTrial:
    """Result of trying a fault."""

    target: str
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    evidence: str | None = None
    """Result of its check; None if the check did not detect the fault in time."""
    confirmed_s: float | None = None
    """Seconds from the injection until the check detected the fault."""
    recovered_s: float | None = None
    """Seconds from the undo until the application was ready."""
    failed: tuple[int, int] = (0, 0)
    """Number of failed requests and of all requests between injection and undo."""


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

    The caller must tear down the platform, even after an error. Raises PlatformError if the application did not become
    ready before or after the fault, or the check still detects the fault.
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
