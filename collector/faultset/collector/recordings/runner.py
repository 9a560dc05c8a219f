"""Run one segment of a recording: start decoys and incidents when they are due, and write the chunks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from faultset.collector.episodes.actions import LARGEST_DELAY_MS, EpisodeActions
from faultset.collector.episodes.fault_steps import RECOVERY_TIMEOUT_S
from faultset.collector.episodes.harmless_changes import DecoySchedule
from faultset.collector.episodes.process import main
from faultset.collector.episodes.recording import describe_system
from faultset.collector.episodes.runner import EpisodeRunner
from faultset.collector.episodes.state_machine import Command, EpisodeMachine, Event, Phase
from faultset.collector.plans.timeline import LATE_S, draw_recording_decoys
from faultset.collector.platforms.journal import UndoFailed
from faultset.collector.recordings.chunks import ChunkRecorder, recorded_s
from faultset.collector.recordings.incidents import LiveIncident
from faultset.core.errors import FaultsetError, PlatformError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import RecordingContext

_HISTORY_S = 30.0
"""Seconds of telemetry before an incident's healthy time that are kept for its verdict."""
_CHECK_NS = 5 * SECOND_NS
"""Interval between checks of the host's delays."""

_log = logging.getLogger(__name__)


class RecordingActions(EpisodeActions):
    """Deploys and warms up an application like an episode, then records it with incidents."""

    machine: RecordingMachine

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        assert self.plan.recording is not None
        self._planned = self.plan.recording
        self.machine.recorded_s = recorded_s(self.root, self.plan.episode)
        self._chunks: ChunkRecorder | None = None
        self._incidents: list[LiveIncident] = []
        self._decoy_schedules: list[DecoySchedule] = []
        self._healthy_since_ns = 0
        self._last_ns = self._last_check_ns = self._next_check_ns = 0
        self._load_start_ns = 0
        self._recovery_deadline_ns: int | None = None

    def handlers(self) -> dict[Command, Callable[[], None]]:
        return {**super().handlers(), Command.RECORD: self.record_step}

    def start_load(self) -> None:
        self._load_start_ns = self._clock.time_ns()
        super().start_load()

    def record_step(self) -> None:
        """Start decoys and incidents that are due, and write a chunk if it is due."""
        if self._chunks is None:
            self._begin()
        assert self._chunks is not None
        now_ns = self._clock.time_ns()
        self._note_host(now_ns)
        self._apply_decoys(now_ns)
        for incident in self._incidents:
            self._advance(incident, now_ns)
        self._incidents = [incident for incident in self._incidents if incident.state != "over"]
        if self._chunks.write_due(now_ns, self._find_earliest_needed_ns(now_ns)):
            self._note_host(self._clock.time_ns())
        self._last_ns = now_ns

    def _begin(self) -> None:
        """Open the recording and plan the rest of it."""
        context = RecordingContext(
            recording=self.plan.episode, sampling=self._planned.sampling, **describe_system(self.record, self.platform)
        )
        self._chunks = ChunkRecorder(
            self.root,
            context,
            self.plan,
            self.platform,
            self.journal,
            load_seed=self.draws.load_seed,
            start_ns=self.machine.view_start_ns,
            load_start_ns=self._load_start_ns,
        )
        self._healthy_since_ns = self.machine.view_start_ns
        earliest_s = self.machine.recorded_s + (self.plan.phases.baseline_s if self.machine.recorded_s else 0.0)
        self._incidents = [
            LiveIncident(
                planned,
                self.plan,
                self.platform,
                self.journal,
                folder=self.journal.path.parent,
                clock=self._clock,
                store_servers=self.record.store_servers,
            )
            for planned in self._planned.incidents
            if planned.at_s >= earliest_s
        ]
        rng = np.random.default_rng([self.plan.seed, 5])
        decoys_with_faults = draw_recording_decoys(self._planned, self.plan.phases, self.plan.rollouts, rng)
        self._decoy_schedules = [
            # decoys that replace pods avoid the targets of incidents that are near in time
            DecoySchedule(self.platform, [decoy], onset_s=decoy.times_s[0], faults=faults)
            for decoy, faults in decoys_with_faults
            if decoy.times_s[0] >= self.machine.recorded_s
        ]
        _log.info("recording starts at %.0f s; incidents left: %d", self.machine.recorded_s, len(self._incidents))

    def _elapsed_s(self, now_ns: int) -> float:
        return self.machine.recorded_s + (now_ns - self.machine.view_start_ns) / SECOND_NS

    def _apply_decoys(self, now_ns: int) -> None:
        assert self._chunks is not None
        now_s = self._elapsed_s(now_ns)
        with self.journal.scope("decoys"):
            for schedule in self._decoy_schedules:
                for step in schedule.take_due(now_s):
                    self.journal.note("decoy", [str(value) for value in step.values()], **step)
                    at_ns = self._clock.time_ns()
                    self._chunks.add(
                        "decoys",
                        {
                            "decoy": step["decoy"],
                            "service": step["service"],
                            "start": now_ns,
                            "end": at_ns,
                            "parameters": {k: v for k, v in step.items() if k not in ("decoy", "service", "number")},
                        },
                    )
                    _log.info("harmless change: %s of %s", step["decoy"], step["service"])

    def _advance(self, incident: LiveIncident, now_ns: int) -> None:
        """Run the next step of an incident if it is due; after an error, only this incident is void."""
        try:
            match incident.state:
                case "waiting" if self._elapsed_s(now_ns) >= incident.planned.at_s and self._may_start(incident):
                    incident.inject(now_ns)
                    self._note(incident)
                case "active" if now_ns >= incident.undo_at_ns:
                    self._end(incident)
                case "active":
                    incident.check()
                case "recovering":
                    self._check_recovery(incident, now_ns)
                case _:
                    return
        except (NotRecovered, UndoFailed):
            raise
        except FaultsetError as error:
            _log.warning("incident %s: %s", incident.title, error)
            incident.give_up(str(error))
            if incident.state == "active":
                incident.undo()
            self._note(incident)

    def _may_start(self, incident: LiveIncident) -> bool:
        """Return whether no other incident is active or recovering, or this one may overlap others."""
        return incident.planned.overlaps or not any(
            other.state in ("active", "recovering") for other in self._incidents
        )

    def _end(self, incident: LiveIncident) -> None:
        incident.record.recover_start_ns = self._clock.time_ns()
        incident.undo()
        self._recovery_deadline_ns = None
        incident.judge(self._healthy_since_ns, is_busy=self._pressure.is_busy(window_s=incident.planned.length_s))
        self._note(incident)

    def _check_recovery(self, incident: LiveIncident, now_ns: int) -> None:
        """End an incident once the application is healthy; raise NotRecovered after a timeout."""
        has_other_active = any(other.state == "active" for other in self._incidents)
        if incident.check_recovery():
            self._note(incident)
            if not any(other.state in ("active", "recovering") for other in self._incidents):
                self._healthy_since_ns, self._recovery_deadline_ns = self._clock.time_ns(), None
            return
        if has_other_active:
            return
        timeout_ns = round(3 * self._pressure.scaled_s(RECOVERY_TIMEOUT_S) * SECOND_NS)
        self._recovery_deadline_ns = self._recovery_deadline_ns or now_ns + timeout_ns
        if now_ns > self._recovery_deadline_ns:
            incident.state = "over"
            raise NotRecovered(f"{self.plan.app} did not recover from {incident.title} within {timeout_ns / 1e9:.0f} s")

    def _note(self, incident: LiveIncident) -> None:
        """Pass the current state of an incident and its evidence to the next chunk."""
        assert self._chunks is not None
        if incident.record.inject_start_ns is None:
            incident.state = "over"
            return
        row = incident.row()
        self._chunks.set_incident(row)
        for evidence in incident.new_evidence():
            self._chunks.add("evidence", evidence)
        if incident.problem and incident.state in ("recovering", "over"):
            end_ns = row["healthy_again"] or row["recover_done"] or self._clock.time_ns()
            self._chunks.add_void(row["inject_start"], end_ns, "fault", incident.problem)

    def _note_host(self, now_ns: int) -> None:
        """Mark the time since the last check as void if the host was late."""
        assert self._chunks is not None
        if now_ns < self._next_check_ns:
            return
        late_ms, start_ns = self.platform.measure_host_load(reset=True).worst_ms or 0.0, self._last_check_ns
        if start_ns and late_ms > LARGEST_DELAY_MS:
            start_ns = max(start_ns - round(late_ms * 1e6), self.machine.view_start_ns)
            self._chunks.add_void(start_ns, now_ns, "host", f"the host was {late_ms:.0f} ms late")
        self._last_check_ns = now_ns
        self._next_check_ns = now_ns + _CHECK_NS

    def _find_earliest_needed_ns(self, now_ns: int) -> int:
        """Return the start of the telemetry that is still needed for verdicts."""
        history_ns = round((self.plan.phases.baseline_s + _HISTORY_S) * SECOND_NS)
        starts = [
            incident.record.inject_start_ns or now_ns
            for incident in self._incidents
            if incident.state in ("active", "recovering")
        ]
        return min([now_ns, *starts]) - history_ns

    def undo(self) -> None:
        for incident in self._incidents:
            if incident.state == "active" and not self.machine.failure:
                self._end(incident)
        self.platform.undo()

    def collect(self) -> None:
        """Write the remaining telemetry, up to the last step without a problem."""
        if self._chunks is None:
            return
        failed = bool(self.machine.failure)
        end_ns = self._last_ns if failed else self.machine.view_end_ns
        if not failed:
            self._clock.sleep(LATE_S)
        while self._chunks.start_ns + round(self._planned.chunk_s * SECOND_NS) < end_ns:
            self._chunks.write(self._chunks.start_ns + round(self._planned.chunk_s * SECOND_NS))
        if end_ns > self._chunks.start_ns:
            for incident in self._incidents:
                if incident.state == "active":
                    incident.give_up("the recording ended before its undo")
                    self._note(incident)
            self._chunks.write(end_ns)


class NotRecovered(PlatformError):
    """The application remains unhealthy after an incident; it must be deployed again."""

    void_cause = "application did not recover"


STEP_NS = SECOND_NS // 2
"""Time between two steps."""


@dataclass
class RecordingMachine(EpisodeMachine):
    """State of one segment of a recording."""

    recorded_s: float = 0.0
    """Seconds of telemetry in earlier segments."""

    @property
    def view_end_ns(self) -> int:
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


class RecordingRunner(EpisodeRunner):
    """Runs one segment of a planned recording and writes its chunks into a dataset."""

    machine_type = RecordingMachine
    actions_type = RecordingActions


def run() -> None:
    main(RecordingRunner)
