"""The process of one segment of a recording; see `faultset.collector.episodes.process`."""

from __future__ import annotations

from faultset.collector.episodes.process import main
from faultset.collector.recordings.runner import RecordingRunner


def run() -> None:
    """Run the assigned segment."""
    main(RecordingRunner)
