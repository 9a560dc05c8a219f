"""The base classes of store drivers, clients and administrators, which each kind of store implements.

A driver starts the server inside the store's container. It creates the clients of services, and the administrator
with which faults break and repair the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Never, Protocol, TypeVar, get_args

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.http.client import MAX_AGE_S
from faultset.collector.spec.containers import CREDENTIALS_PATH
from faultset.core.errors import PlatformError


class StoreError(Exception):
    """A store is unreachable, refuses a request or does not respond; the text is what the imitated client would report.

    The kind is unreachable, login, rights, broken, timeout or other.
    """

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


AdminAction = Literal[
    "grant-rights",
    "revoke-rights",
    "revoke-writing",
    "revoke-consuming",
    "create-account",
    "remove-account",
    "set-password",
    "require-password",
    "empty-store",
]
"""Changes that an administrator makes to the application's account or data. Each action changes only one thing, so that
an undo repairs only its own fault."""


Capability = Literal["accounts", "rights", "locks", "files", "memory-limit", "connection-limit"]
"""Features of a store that faults may need: accounts, revocable rights, locks and queries that block others, files
whose size can be limited, a memory limit at which writes are refused, and a connection limit."""


class AdminChange(NamedTuple):
    """An action of a store's administrator and its undo."""

    action: AdminAction
    undo: AdminAction


REVOKE_RIGHTS = AdminChange("revoke-rights", "grant-rights")
"""The application's account may log in but not run any command."""
REVOKE_WRITING = AdminChange("revoke-writing", "grant-rights")
"""The application's account may read but no longer write."""
REVOKE_CONSUMING = AdminChange("revoke-consuming", "grant-rights")
"""The application's account may publish messages but no longer take any."""
REMOVE_ACCOUNT = AdminChange("remove-account", "create-account")
"""The application's account no longer exists."""
REQUIRE_PASSWORD = AdminChange("require-password", "set-password")
"""The application's account gets an unknown password."""
REWRITE_PASSWORD = AdminChange("set-password", "set-password")
"""The application's account keeps its password, which is rewritten."""
EMPTY_STORE = AdminChange("empty-store", "empty-store")
"""All data is deleted; the undo deletes it again."""


class Credentials(NamedTuple):
    """The passwords of a store."""

    administrator: str
    application: str


class StoreAccess(NamedTuple):
    """Address of a store, the name of the application's account, and all passwords, for an administrator."""

    address: str
    port: int
    account: str
    credentials: Credentials


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Address and login of a store."""

    name: str
    port: int
    database: str
    username: str
    password: str
    connect_timeout_s: float | None = None
    """Connect timeout in seconds; None for the driver's default."""


class StoreDriver(ABC):
    """One kind of store."""

    name: str
    """Name in `faultset-store NAME`."""
    port: int
    """Port that the server listens on."""
    keeps_data: bool
    """Whether the store has a volume; otherwise it starts empty."""
    carries_messages: bool = False
    """Whether the store is a broker, whose clients publish and consume messages."""
    capabilities: frozenset[Capability] = frozenset(get_args(Capability))
    """Features that faults may use."""

    @property
    def system(self) -> str:
        """Return the name of the system in spans and metrics."""
        return self.name

    @abstractmethod
    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Create the server's files, with the application's account, in an empty data folder."""

    def is_prepared(self, folder: Path) -> bool:
        return any(folder.iterdir())

    @abstractmethod
    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server; raise PlatformError if it is not installed.

        The limits are those of the stored data and of the number of connections; None for the defaults.
        """

    @abstractmethod
    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client, which is not connected yet."""

    @abstractmethod
    def administrator(self, access: StoreAccess) -> StoreAdministrator:
        """Return the administrator of a running server."""

    @staticmethod
    def account_name(*, password: bool) -> str:
        """Return the name of the application's account; faults that change accounts or rights require a password."""
        return "admin" if password else "app"


class StoreConnection(Protocol):
    """One connection to a store."""

    born: float
    """Time of the monotonic clock at which it was opened."""

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection."""
        ...

    async def close(self) -> None: ...


Connection = TypeVar("Connection", bound=StoreConnection)


class BrokerMessage(NamedTuple):
    """A message that a broker delivered: its identity, and its fields as strings."""

    identity: str
    fields: dict[str, str]


class StoreClient(ABC, Generic[Connection]):
    """A client of one store, with a pool of idle connections and metrics of its commands.

    Documents are JSON strings. Every method may raise StoreError. A client overrides the methods that its kind of store
    supports; the others raise StoreError.
    """

    def __init__(self, driver: StoreDriver, store: StoreAddress, context: ClientContext):
        self.driver = driver
        self.store = store
        self.context = context
        self.idle: deque[Connection] = deque()
        self._writing: dict[str, asyncio.Task[None]] = {}

    # connections

    @abstractmethod
    async def dial(self) -> Connection:
        """Open a connection and log in."""

    async def acquire(self) -> Connection:
        """Return an idle connection, or a new one."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_open and time.monotonic() - connection.born < MAX_AGE_S:
                return connection
            await connection.close()
        return await self.dial()

    async def log_in(self) -> None:
        """Open a connection and keep it for the next command."""
        self.idle.append(await self.acquire())

    async def close(self) -> None:
        while self.idle:
            await self.idle.pop().close()

    @property
    def endpoint(self) -> str:
        """The address and port in messages; before the name is resolved, the store's name and port."""
        return f"{self.context.names.last.get(self.store.name, self.store.name)}:{self.store.port}"

    @contextlib.contextmanager
    def measure(self, command: str) -> Iterator[None]:
        """Record the duration and result of a command in the metrics."""
        start, status = time.perf_counter(), "OK"
        try:
            yield
        except StoreError as error:
            status = error.kind
            raise
        finally:
            labels = (self.store.name, self.driver.system, command, status)
            self.context.metrics.database(*labels).observe(time.perf_counter() - start)

    def _cannot(self, feature: str) -> Never:
        raise StoreError("other", f"{self.driver.system} has no {feature}")

    # documents

    async def is_empty(self, collection: str) -> bool:
        self._cannot("collections")

    async def has_appended(self, collection: str, key: str) -> bool:
        """Return whether a key of an append-only collection has documents."""
        self._cannot("collections")

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        self._cannot("collections")

    async def append(self, collection: str, key: str, document: str) -> None:
        """Append a document to the list stored under `key`."""
        await self.append_all(collection, [(key, document)])

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        """Append pairs of key and document to an append-only collection."""
        self._cannot("collections")

    async def find(self, collection: str, key: str) -> str | None:
        """Return the document of a key; None if it does not exist."""
        (document,) = await self.find_many(collection, [key])
        return document

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys; None for each that does not exist."""
        self._cannot("collections")

    async def find_all(self, collection: str) -> list[str]:
        self._cannot("collections")

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        """Return the documents of a key of an append-only collection, or only the `newest`, oldest first."""
        self._cannot("collections")

    # sorted sets

    async def add_sorted(self, sets: Mapping[str, Mapping[str, float]], at_most: int | None = None) -> None:
        """Add members with their scores to sorted sets; each keeps the `at_most` members with the highest scores."""
        self._cannot("sorted sets")

    async def range_sorted(self, name: str, start: int, stop: int, *, highest_first: bool) -> list[str]:
        """Return the members of a sorted set with the ranks from `start` up to, but not including, `stop`."""
        self._cannot("sorted sets")

    # cache

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return cached values; None for each that does not exist."""
        self._cannot("cache")

    async def set_many(self, values: Mapping[str, str]) -> None:
        self._cannot("cache")

    async def set_one(self, key: str, value: str) -> None:
        await self.set_many({key: value})

    def set_later(self, key: str, value: str) -> None:
        """Write a value to the cache in the background, after earlier writes of the same key; ignore failures."""
        previous_write = self._writing.get(key)

        async def write() -> None:
            if previous_write is not None:
                await asyncio.wait((previous_write,))
            with contextlib.suppress(StoreError):
                await self.set_one(key, value)
            if self._writing.get(key) is task:
                del self._writing[key]

        task = asyncio.get_running_loop().create_task(write())
        self._writing[key] = task

    # messages

    async def publish(self, topic: str, messages: Sequence[Mapping[str, str]]) -> None:
        self._cannot("messages")

    async def join(self, topic: str, group: str) -> None:
        """Create a group that starts at the topic's first message, unless the group exists."""
        self._cannot("messages")

    async def take(self, topic: str, group: str, member: str, *, count: int, wait_s: float) -> list[BrokerMessage]:
        """Return messages that no member of the group has received; wait up to `wait_s` for the first."""
        self._cannot("messages")

    async def take_over(self, topic: str, group: str, member: str, *, count: int, idle_s: float) -> list[BrokerMessage]:
        """Return messages that a member received at least `idle_s` ago and has not acknowledged."""
        self._cannot("messages")

    async def has(self, topic: str, identity: str) -> bool:
        """Return whether a topic still has a message."""
        self._cannot("messages")

    async def acknowledge(self, topic: str, group: str, identities: Sequence[str]) -> None:
        """Acknowledge messages, so that they are not delivered again."""
        self._cannot("messages")

    async def lag(self, topic: str, group: str) -> int:
        """Return how many messages the group has not acknowledged."""
        self._cannot("messages")


class StoreAdministrator(ABC):
    """The administrator of one store.

    Every method raises PlatformError if the store does not support the action or refuses it. An administrator
    overrides the methods that its kind of store supports.
    """

    system: str
    """Kind of the store, for error messages."""

    def __init__(self, access: StoreAccess):
        self.access = access

    @abstractmethod
    def perform(self, action: AdminAction) -> None:
        """Change the application's account, or delete all data; the change survives a restart."""

    @abstractmethod
    def state(self, stream: str | None = None) -> dict[str, Any]:
        """Report operations that the store refuses, its limits, and unreadable messages.

        `write_refused` and `consume_refused` are the reasons, or empty if nothing is refused. `file_limit` is the limit
        of the server's files in bytes, or None. `file_write` is the result of the last write to a file, if the server
        reports it. `unreadable` is the number of unreadable messages in a stream.
        """

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Start locking and unlocking the whole store repeatedly; return at once."""
        self.cannot("locks")

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Start repeating a long query in the background."""
        self.cannot("queries")

    def limit_files(self, leave: int) -> None:
        """Limit the growth of the server's files to `leave` bytes."""
        self.cannot("files")

    def free_files(self) -> None:
        self.cannot("files")

    def publish_unreadable(self, stream: str) -> None:
        """Publish a message that no consumer can read."""
        self.cannot("messages")

    def remove_unreadable(self, stream: str) -> None:
        """Remove all messages that no consumer can read."""
        self.cannot("messages")

    def cannot(self, feature: str) -> Never:
        """Raise PlatformError for a feature that this kind of store does not have."""
        raise PlatformError(f"{self.system} has no {feature}; choose another store")

    def require_account(self, action: AdminAction, exists: bool) -> None:
        """Raise PlatformError if an action changes an account that does not exist."""
        if not exists and action not in ("create-account", "remove-account", "empty-store"):
            access = self.access
            raise PlatformError(
                f"the store at {access.address}:{access.port} has no account {access.account}; create it first"
            )


def read_password(name: str) -> str:
    """Return the password in a mounted file; raise PlatformError if the file is missing or empty."""
    path = Path(os.environ.get("FAULTSET_CREDENTIALS") or CREDENTIALS_PATH) / name
    try:
        password = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise PlatformError(
            f"the password in {path} cannot be read ({reason}); mount the Secret there, or set "
            "FAULTSET_CREDENTIALS to its folder"
        ) from None
    if not password:
        raise PlatformError(f"the password in {path} must not be empty")
    return password


def write_private_file(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
