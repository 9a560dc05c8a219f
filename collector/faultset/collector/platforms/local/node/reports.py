"""Ends of containers and jobs, kept until somebody polls."""

from __future__ import annotations

import math
import time

from faultset.collector.ipc.server import DeferredAnswer
from faultset.collector.platforms.local.controllers.commands import ContainerExited
from faultset.collector.platforms.local.node.messages import JobExited, PollExits


class Reports:
    """Reports that nobody has asked for yet, and polls that wait for one."""

    def __init__(self) -> None:
        self._reports: list[ContainerExited | JobExited] = []
        self._polls: list[tuple[float, DeferredAnswer[tuple[ContainerExited | JobExited, ...]]]] = []

    def add(self, report: ContainerExited | JobExited) -> None:
        """Keep a report until the next `answer`."""
        self._reports.append(report)

    def poll(self, request: PollExits) -> DeferredAnswer[tuple[ContainerExited | JobExited, ...]]:
        """Answer with what has happened since the last poll, at once or when something does."""
        reply = DeferredAnswer(request)
        self._polls.append((time.monotonic() + request.timeout_s, reply))
        self.answer(time.monotonic())
        return reply

    def answer(self, now: float) -> None:
        """Answer polls that have waited for a report, or long enough; `now` is in monotonic seconds."""
        waiting, self._polls = self._polls, []
        for deadline, reply in waiting:
            if self._reports or now >= deadline:
                reply.resolve(tuple(self._reports))
                self._reports = []
            else:
                self._polls.append((deadline, reply))

    def timeout_s(self, now: float) -> float:
        """Return in how many seconds `answer` has to be called again; infinity without polls."""
        return min((deadline for deadline, _ in self._polls), default=math.inf) - now
