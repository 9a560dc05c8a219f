"""Run one segment of a recording with the loop of episodes."""

from __future__ import annotations

from faultset.collector.episodes.runner import EpisodeRunner
from faultset.collector.recordings.actions import RecordingActions
from faultset.collector.recordings.machine import RecordingMachine


class RecordingRunner(EpisodeRunner):
    """Runs one segment of a planned recording and writes its chunks into a dataset."""

    machine_type = RecordingMachine
    actions_type = RecordingActions
