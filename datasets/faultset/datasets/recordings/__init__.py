"""Read recordings: hours of telemetry with many incidents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.datasets.format.recordings import Stretch
    from faultset.datasets.recordings.cuts import cut_view
    from faultset.datasets.recordings.recording import Recording
    from faultset.datasets.recordings.view import RecordingView, TimeSlice
    from faultset.datasets.recordings.window_view import WindowView, window_views

__all__ = [
    "Recording",
    "RecordingView",
    "Stretch",
    "TimeSlice",
    "WindowView",
    "cut_view",
    "window_views",
]

__getattr__, __dir__ = lazy_names(__name__)
