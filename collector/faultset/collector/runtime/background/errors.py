"""Errors that occur occasionally in a healthy service."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable

from faultset.collector.runtime.signals import Log
from faultset.collector.spec.background_errors import BackgroundErrors

_CLOSED_PORT = 9
"""Port on which nothing listens; uploads of usage statistics to it fail."""
_PHASE_S = (4.0, 12.0)
_DELAY_S = (0.001, 0.006)
_REPORTED_SHARE = 0.4
"""Share of the processes that upload usage statistics."""


class BackgroundErrorEmitter:
    """Produces the background errors of one process.

    Parameters
    ----------
    address
        Address that failing uploads connect to.
    """

    def __init__(self, rates: BackgroundErrors, log: Log, location: str, address: str):
        self._rates, self._log, self._location, self._address = rates, log, location, address
        self._delay_s = 0.0

    def tasks(self) -> list[Awaitable[None]]:
        """Return the background work that produces errors."""
        tasks: list[Awaitable[None]] = []
        if self._rates.failed_uploads and random.random() < _REPORTED_SHARE:
            tasks.append(_repeat(self._rates.failed_uploads / _REPORTED_SHARE, self._upload))
        if self._rates.slow_phases:
            tasks.append(_repeat(self._rates.slow_phases, self._slow_down))
        return tasks

    async def delay(self) -> None:
        """Delay a request during a slow phase."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s * random.random())

    def is_healthy(self) -> bool:
        """Draw whether the next health probe succeeds."""
        return random.random() >= self._rates.unhealthy_answers

    async def _upload(self) -> None:
        try:
            _, writer = await asyncio.open_connection(self._address, _CLOSED_PORT)
        except OSError as error:
            self._log.warning(self._location, f"upload of usage statistics failed, will retry: {error}")
            traceback.print_exc()
        else:
            writer.close()

    async def _slow_down(self) -> None:
        self._delay_s = random.uniform(*_DELAY_S)
        await asyncio.sleep(random.uniform(*_PHASE_S))
        self._delay_s = 0.0


async def _repeat(per_minute: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(random.expovariate(per_minute / 60))
        await act()
