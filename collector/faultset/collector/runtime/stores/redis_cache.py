"""Redis in its own name: a store of sorted sets that keeps nothing on disk, with the texts of redis-plus-plus."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import MappingProxyType

from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.driver import StoreAddress
from faultset.collector.runtime.stores.redis_driver import RedisDriver


class RedisCacheDriver(RedisDriver):
    """A Redis server that refuses writes when 128 MB are full, rather than to forget."""

    name = "redis"
    port = 6379
    keeps_data = False
    timeout_s = 10.0
    redials = False
    options = MappingProxyType({"appendonly": "no", "maxmemory": "128mb", "maxmemory-policy": "noeviction"})

    def refused_login(self) -> str:
        """Return the server's text."""
        return "WRONGPASS invalid username-password pair or user is disabled."

    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the server's text."""
        return f"NOPERM {reply.removeprefix('NOPERM ')}"

    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return the client's text."""
        if timed_out:
            return "Failed to connect to Redis: Connection timed out"
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else None
        return f"Failed to connect to Redis: {reason or error}"
