"""A stand-in for memcached: a cache that keeps nothing, with the texts of the client gomemcache."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.driver import StoreAddress
from faultset.collector.runtime.stores.redis_driver import RedisDriver


class MemcachedDriver(RedisDriver):
    """A Redis server of 128 MB from which the least recently used keys go first, nothing on disk."""

    name = "memcached"
    port = 11211
    keeps_data = False
    timeout_s = 2.0
    redials = False
    options = MappingProxyType({"appendonly": "no", "maxmemory": "128mb", "maxmemory-policy": "allkeys-lru"})

    def refused_login(self) -> str:
        """Return the client's text."""
        return "memcache: authentication failed"

    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the client's text."""
        return f"memcache: unexpected response to {command[0].lower()}"

    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return the client's text."""
        if timed_out:
            return f"memcache: connect timeout to {address}"
        return texts.connection_failed(error, address)
