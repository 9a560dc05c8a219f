"""memcached in its own name: a cache that keeps nothing on disk."""

from __future__ import annotations

from pathlib import Path

from faultset.collector.runtime.stores.driver import (
    AdminAction,
    ClientContext,
    Credentials,
    StoreAddress,
    StoreClient,
)
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.runtime.stores.originals.memcached_client import MemcachedClient, flush
from faultset.collector.runtime.stores.originals.users import argv_as_user
from faultset.core.errors import PlatformError

_MEMORY_MIB = 128
_THREADS = 2
_OWN_CONNECTIONS = 16
"""How many of its connections a server of two threads keeps for itself, so that it takes so many fewer of clients."""


class OriginalMemcachedDriver(OriginalDriver):
    """A memcached of 128 MB; it knows no accounts, no locks, and forgets rather than refuses when it is full."""

    name = "original-memcached"
    role = "memcached"
    port = 11211
    keeps_data = False
    capabilities = frozenset({"connection-limit"})
    programs = ("memcached",)
    to_install = "memcached"
    client_library = "pymemcache"

    def version(self) -> str:
        """Return the name and version of the server."""
        return self.reported_version("memcached")

    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Do nothing: it needs no files."""

    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server."""
        memory_mib = _MEMORY_MIB if max_memory_kib is None else max(1, max_memory_kib // 1024)
        options = ["-l", address, "-p", str(self.port), "-U", "0", "-m", str(memory_mib), "-t", str(_THREADS)]
        if max_clients is not None:
            options += ["-c", str(_OWN_CONNECTIONS + max_clients)]
        return argv_as_user([self.program("memcached"), *options], "memcache")

    def administer(
        self, address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials
    ) -> None:
        """Empty the cache, the only thing that there is to administer; raise PlatformError for anything else."""
        if action != "empty-store":
            raise PlatformError(f"memcached has no accounts, so that nobody can {action}; choose a store that has")
        flush(address, port)

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client that speaks memcached's protocol."""
        return MemcachedClient(self, store, context)
