"""HTTP connections that are reused, but not for long."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from faultset.collector.runtime.http.client import MAX_AGE_S


class _Generation:
    def __init__(self, session: aiohttp.ClientSession, born: float):
        self.session = session
        self.born = born
        self.busy = 0


class Connections:
    """A pool that starts anew every `max_age_s`; the old one ends with its last request.

    Parameters
    ----------
    local:
        Address from which connections are made.
    timeout:
        Deadlines of every request.
    """

    def __init__(
        self,
        *,
        local: str | None,
        timeout: aiohttp.ClientTimeout,
        max_age_s: float = MAX_AGE_S,
    ):
        self._local = (local, 0) if local else None
        self._timeout = timeout
        self._max_age_s = max_age_s
        self._loop = asyncio.get_running_loop()
        self._current = self._generation(self._loop.time() - random.random() * max_age_s)
        self._closing: set[asyncio.Task[None]] = set()

    def _generation(self, born: float) -> _Generation:
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=self._max_age_s,
            local_addr=self._local,
            use_dns_cache=False,
            happy_eyeballs_delay=None,
        )
        session = aiohttp.ClientSession(
            connector=connector, timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        return _Generation(session, born)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Lend the current session for one request."""
        now = self._loop.time()
        if now - self._current.born > self._max_age_s:
            old, self._current = self._current, self._generation(now)
            self._close_when_idle(old)
        generation = self._current
        generation.busy += 1
        try:
            yield generation.session
        finally:
            generation.busy -= 1
            if generation is not self._current:
                self._close_when_idle(generation)

    def _close_when_idle(self, generation: _Generation) -> None:
        if generation.busy == 0 and not generation.session.closed:
            task = self._loop.create_task(generation.session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close what is open."""
        await self._current.session.close()
        if self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
