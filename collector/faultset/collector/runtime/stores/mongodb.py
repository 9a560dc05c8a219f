"""A stand-in for MongoDB: a database that keeps its data on its volume, with the texts of the client mgo."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.driver import StoreAddress
from faultset.collector.runtime.stores.redis_driver import RedisDriver

_VERBS = {"HGET": "find", "HMGET": "find", "HVALS": "find", "LRANGE": "find", "HLEN": "count", "EXISTS": "count"}


class MongoDriver(RedisDriver):
    """A Redis server with an append-only file; a collection is a hash, or lists when documents are appended."""

    name = "mongodb"
    port = 27017
    keeps_data = True
    timeout_s = 10.0
    redials = True
    options = MappingProxyType({"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"})

    def refused_login(self) -> str:
        """Return mgo's text."""
        return "server returned error on SASL authentication step: Authentication failed."

    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the server's text, with what Redis said."""
        verb = _VERBS.get(command[0], "insert")
        collection = command[1].removeprefix(f"{store.database}.").partition(":")[0]
        text = f'not authorized on {store.database} to execute command {{ {verb}: "{collection}" }}'
        return f"{text} (NOPERM {reply.removeprefix('NOPERM ')})"

    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return mgo's text."""
        return "no reachable servers"
