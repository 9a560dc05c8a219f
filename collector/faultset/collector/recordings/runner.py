"""Run one segment of a recording with the loop of episodes."""

from __future__ import annotations

from typing import Any

from faultset.collector.episodes.runner import EpisodeRunner
from faultset.collector.episodes.state_machine import Command
from faultset.collector.recordings.actions import RecordingActions
from faultset.collector.recordings.machine import RecordingMachine


class RecordingRunner(EpisodeRunner):
    """Runs one segment of a planned recording and writes its chunks into a dataset."""

    machine_type = RecordingMachine
    actions_type = RecordingActions

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        assert isinstance(self._actions, RecordingActions)
        self._handlers[Command.RECORD] = self._actions.record_step
