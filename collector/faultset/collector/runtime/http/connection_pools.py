"""Pools of connections: how many calls a process has under way at a time, and what becomes of those beyond."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WAIT_S = 1.0
"""How long a call waits for a connection of the pool."""


class PoolExhaustedError(Exception):
    """No connection of the pool was given back in time."""


class ConnectionPool:
    """A number of connections that calls share.

    Parameters
    ----------
    size
        How many there are.
    kept_share, kept_s
        Share of the calls whose connection comes back late, and how much later.
    """

    def __init__(self, size: int, *, kept_share: float = 0.0, kept_s: float = 0.0):
        self._free = asyncio.Semaphore(size)
        self._kept_share, self._kept_s = kept_share, kept_s

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        """Lend a connection for one call; raise PoolExhaustedError when none is free in time."""
        try:
            await asyncio.wait_for(self._free.acquire(), WAIT_S)
        except TimeoutError:
            raise PoolExhaustedError from None
        try:
            yield
        finally:
            late_s = self._kept_s if random.random() < self._kept_share else 0.0
            asyncio.get_running_loop().call_later(late_s, self._free.release)
