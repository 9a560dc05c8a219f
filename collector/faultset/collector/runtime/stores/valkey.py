"""Valkey in its own name: a cache that keeps nothing on disk, with the texts of StackExchange.Redis."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.driver import StoreAddress
from faultset.collector.runtime.stores.redis_driver import RedisDriver


class ValkeyDriver(RedisDriver):
    """A Valkey (or Redis) server that refuses writes when 64 MB are full."""

    name = "valkey"
    port = 6379
    keeps_data = False
    timeout_s = 5.0
    redials = False
    options = MappingProxyType({"appendonly": "no", "maxmemory": "64mb", "maxmemory-policy": "noeviction"})

    def refused_login(self) -> str:
        """Return the server's text."""
        return "WRONGPASS invalid username-password pair or user is disabled."

    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the server's text."""
        return f"NOPERM {reply.removeprefix('NOPERM ')}"

    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return the client's text."""
        why = "connect timeout" if timed_out else "UnableToConnect"
        return f"It was not possible to connect to the redis server(s). {why} on {address}/Interactive"
