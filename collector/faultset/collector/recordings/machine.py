"""A recording as a pure state machine: deploy and warm up as in an episode, then record until the end or a failure."""

from __future__ import annotations

from dataclasses import dataclass

from faultset.collector.episodes.state_machine import Command, EpisodeMachine, Event, Phase
from faultset.core.times import SECOND_NS

STEP_NS = SECOND_NS // 2
"""Time between two steps."""


@dataclass
class RecordingMachine(EpisodeMachine):
    """State of one segment of a recording.

    Attributes
    ----------
    recorded_s
        Seconds of telemetry in earlier segments.
    """

    recorded_s: float = 0.0

    @property
    def view_end_ns(self) -> int:
        """Planned end of the segment."""
        planned = self.plan.recording
        assert planned is not None
        return self.view_start_ns + int((planned.duration_s - self.recorded_s) * SECOND_NS)

    def _begin_view(self, now_ns: int) -> None:
        self.phase = Phase.RECORD
        self.view_start_ns = self.deadline_ns = -(-now_ns // SECOND_NS) * SECOND_NS

    def _in_view(self, event: Event) -> list[Command]:
        if event.now_ns >= self.view_end_ns:
            return self._finish()
        self.deadline_ns = event.now_ns + STEP_NS
        return [] if event.command is Command.RECORD else [Command.RECORD]

    def _abandon(self, reason: str) -> list[Command]:
        if self.phase is not Phase.RECORD:
            return super()._abandon(reason)
        self.failure = self.failure or reason
        return self._finish()

    def _finish(self) -> list[Command]:
        """Undo the incidents that are still active, and write the remaining telemetry."""
        self.phase, self.deadline_ns = Phase.COLLECT, None
        return [Command.UNDO, Command.COLLECT]
