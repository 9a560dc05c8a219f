"""Reports of progress from dask workers to the client."""

from __future__ import annotations

import threading
import time

PROGRESS_TOPIC = "faultset-answers"
_REPORT_EVERY_S = 0.5


class _Unreported(threading.local):
    """Answers of this thread that are not reported to the client yet, and when it last got a report."""

    def __init__(self) -> None:
        self.answers = 0
        self.last = time.monotonic()


_unreported = _Unreported()


def report_progress(answers: int, *, now: bool = False) -> None:
    """Report progress to the client now and then, where this runs on a dask worker."""
    _unreported.answers += answers
    if not _unreported.answers or (not now and time.monotonic() - _unreported.last < _REPORT_EVERY_S):
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(PROGRESS_TOPIC, _unreported.answers)
    _unreported.answers, _unreported.last = 0, time.monotonic()
