"""The live fault of a running episode, for attempts to repair it."""

from __future__ import annotations

from collections.abc import Callable

from faultset.collector.episodes.health import EpisodeWatchdog, requests_between, unhealthy_requests
from faultset.collector.episodes.recording import LiveRecording
from faultset.collector.episodes.records import EpisodeClock, EpisodeRecord
from faultset.collector.episodes.state_machine import EpisodeMachine
from faultset.collector.mitigation.judge import LiveFault
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.verdicts.client_requests import ComparisonWindows, sli_tests
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS

_LONGEST_PAUSE_S = 0.25


def build_live_fault(
    record: EpisodeRecord,
    machine: EpisodeMachine,
    platform: EpisodePlatform,
    waits: RepairWaits,
    recording: LiveRecording,
) -> LiveFault:
    """Return the injected fault at the end of an episode's view.

    Parameters
    ----------
    waits
        Waits during the repair.
    recording
        Recording of the episode so far.
    """
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
    """Waits during a repair; a wait fails on an interrupt or a disturbed host, and repeats the injection when due.

    Parameters
    ----------
    repeat_s
        Seconds between injections; None for a fault that is injected once.
    inject
        Injects a repeating fault again.
    interrupted
        Returns whether the episode must end.
    """

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
        """Stop repeating the injection."""
        self._next_ns = None
