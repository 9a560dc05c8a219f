"""A stand-in for PostgreSQL: a database that keeps its data on its volume, with the texts of Npgsql."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.driver import StoreAddress
from faultset.collector.runtime.stores.redis_driver import RedisDriver


class PostgresDriver(RedisDriver):
    """A Redis server with an append-only file; a table is a hash, or lists when rows are appended."""

    name = "postgresql"
    port = 5432
    keeps_data = True
    timeout_s = 15.0
    redials = False
    options = MappingProxyType({"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"})

    def refused_login(self) -> str:
        """Return the server's text."""
        return '28P01: password authentication failed for user "otelu"'

    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the server's text."""
        table = command[1].removeprefix(f"{store.database}.").partition(":")[0]
        return f"42501: permission denied for table {table}"

    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return the client's text."""
        if timed_out:
            return "The operation has timed out."
        return f"Failed to connect to {address}"
