"""A stand-in for RocksDB below a key-value server: a database that keeps its data on its volume."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.driver import StoreAddress
from faultset.collector.runtime.stores.redis_driver import RedisDriver


class RocksDBDriver(RedisDriver):
    """A Redis server with an append-only file; a column family is a hash, or lists when records are appended."""

    name = "rocksdb"
    port = 20161
    keeps_data = True
    timeout_s = 5.0
    redials = True
    options = MappingProxyType({"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"})

    def refused_login(self) -> str:
        """Return the engine's text."""
        return "Engine(Status { code: IoError, sub_code: None, sev: NoError, state: Permission denied })"

    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the engine's text."""
        family = command[1].removeprefix(f"{store.database}.").partition(":")[0]
        return f"Engine(Status {{ code: NotSupported, state: {command[0].lower()} on column family {family} }})"

    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return the engine's text."""
        return f"Engine(Status {{ code: {'TimedOut' if timed_out else 'IoError'}, state: {address} }})"
