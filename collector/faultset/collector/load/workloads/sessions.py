"""Users who wait for an answer and think before the next request: load that falls when the application is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from faultset.collector.load.schedule import Schedule, ScheduledRequest
from faultset.collector.load.workloads.patterns import LoadPattern

Send = Callable[[ScheduledRequest, float], Awaitable[None]]
"""Sends a request that was due at an instant of the loop's clock, and returns when it has an answer."""


class Users:
    """Users with sessions: requests with times to think between them, then a pause.

    Parameters
    ----------
    schedule_of
        Gives what a user asks for; every user has draws of its own.
    rate_rps
        Requests per second of all users together while answers are quick.
    """

    def __init__(
        self, pattern: LoadPattern, schedule_of: Callable[[int], Schedule], send: Send, *, rate_rps: float, seed: int
    ):
        self._pattern, self._schedule_of, self._send, self._seed = pattern, schedule_of, send, seed
        cycle_s = pattern["think_s"] + pattern["pause_s"] / pattern["requests"]
        self._wanted_at_one = rate_rps * cycle_s
        self._users: list[asyncio.Task[None]] = []
        self._begun_s = 0.0

    async def run(self) -> None:
        """Let the users come and send until cancelled."""
        self._begun_s = asyncio.get_running_loop().time()
        self.change(1.0)
        try:
            while True:
                await asyncio.sleep(0.5)
                for user in self._users:
                    if user.done():
                        user.result()
        finally:
            for user in self._users:
                user.cancel()

    def change(self, factor: float) -> None:
        """Let users come or go until there are `factor` times as many as planned."""
        wanted = max(1, round(self._wanted_at_one * factor))
        while len(self._users) > wanted:
            self._users.pop().cancel()
        while len(self._users) < wanted:
            self._users.append(asyncio.get_running_loop().create_task(self._use(len(self._users))))

    async def _use(self, number: int) -> None:
        loop, pattern = asyncio.get_running_loop(), self._pattern
        schedule, rng = self._schedule_of(number), np.random.default_rng([self._seed, 22, number])
        # users are somewhere in their sessions when the load begins
        due = loop.time() + float(rng.uniform(0, pattern["think_s"]))
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._send(schedule.next(due - self._begun_s), due)
            due = loop.time() + float(rng.exponential(pattern["think_s"]))
            if rng.random() < 1 / pattern["requests"]:
                due += float(rng.exponential(pattern["pause_s"])) if pattern["pause_s"] else 0.0
