"""The contract of a store driver: everything that is particular to one kind of store.

A driver starts the server inside the store's container, and creates the clients of services and the administrator, by
which faults break the store and repair it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Never, Protocol, TypeVar, get_args

from faultset.collector.runtime.http.client import MAX_AGE_S, Names
from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.signals import Metrics
from faultset.core.errors import PlatformError


class StoreError(Exception):
    """A store that cannot be reached, refuses or does not answer; the text is the modelled client's.

    Attributes
    ----------
    kind
        unreachable, login, rights, broken, timeout or other
    """

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


class Account(NamedTuple):
    """Login credentials of a client."""

    username: str
    password: str


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
"""What a store's administrator changes of the application's account or data. Each action does one thing, so that none
repairs more than the fault it undoes."""


Capability = Literal["accounts", "rights", "locks", "files", "memory-limit", "connection-limit"]
"""What a fault may need of a store: accounts, and rights that can be revoked; locks and queries that block others;
files whose size can be limited; limits of memory, at which it refuses writes, and of connections."""


class AdminChange(NamedTuple):
    """An action of a store's administrator and its undo."""

    action: AdminAction
    undo: AdminAction


REVOKE_RIGHTS = AdminChange("revoke-rights", "grant-rights")
"""The application's account may log in but run no command."""
REVOKE_WRITING = AdminChange("revoke-writing", "grant-rights")
"""The application's account may read and no longer write."""
REVOKE_CONSUMING = AdminChange("revoke-consuming", "grant-rights")
"""The application's account may publish messages and no longer take any."""
REMOVE_ACCOUNT = AdminChange("remove-account", "create-account")
"""The application's account no longer exists."""
REQUIRE_PASSWORD = AdminChange("require-password", "set-password")
"""The application's account gets an unknown password."""
REWRITE_PASSWORD = AdminChange("set-password", "set-password")
"""The application's account is given the password that it has."""
EMPTY_STORE = AdminChange("empty-store", "empty-store")
"""Everything that is stored is deleted; to take it back deletes it again."""


class Credentials(NamedTuple):
    """The passwords of a store."""

    administrator: str
    application: str


class StoreAccess(NamedTuple):
    """Where an administrator reaches a store, with the application's account and all passwords."""

    address: str
    port: int
    account: str
    credentials: Credentials


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Address and login of a store.

    Attributes
    ----------
    connect_timeout_s
        How long to try to reach it; the driver's default if None.
    """

    name: str
    port: int
    database: str
    account: Account
    connect_timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """State that clients of stores share with their process.

    Attributes
    ----------
    local
        Source address of connections; any if None.
    """

    names: Names
    local: str | None
    metrics: Metrics
    texts: ErrorTexts


class StoreDriver(ABC):
    """One kind of store.

    Attributes
    ----------
    name
        What `faultset-store NAME` starts.
    port
        Where the server listens.
    keeps_data
        Whether it has a volume; a store without one starts empty.
    carries_messages
        Whether it is a broker: its clients publish and consume.
    capabilities
        Capabilities that faults may require.
    """

    name: str
    port: int
    keeps_data: bool
    carries_messages: bool = False
    capabilities: frozenset[Capability] = frozenset(get_args(Capability))

    @property
    def system(self) -> str:
        """Return the name of the system in spans and metrics."""
        return self.name

    @abstractmethod
    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Fill an empty data folder with what the server needs.

        Parameters
        ----------
        account
            Name of the application's account.
        """

    def is_prepared(self, folder: Path) -> bool:
        """Return whether a data folder has what the server needs."""
        return any(folder.iterdir())

    @abstractmethod
    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server; raise PlatformError when this machine has none.

        Parameters
        ----------
        max_memory_kib
            Limit of the stored data; the driver's default if None.
        max_clients
            Limit of the number of connections; the server's default if None.
        """

    @abstractmethod
    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client; it is not connected yet."""

    @abstractmethod
    def administrator(self, access: StoreAccess) -> StoreAdministrator:
        """Return the administrator of a running server."""

    @staticmethod
    def account_name(*, password: bool) -> str:
        """Return the name of the application's account.

        Parameters
        ----------
        password
            Whether the application's configuration has a password, which faults of rights and accounts need.
        """
        return "admin" if password else "app"


class StoreConnection(Protocol):
    """One connection to a store.

    Attributes
    ----------
    born
        When it was opened, on the monotonic clock.
    """

    born: float

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


Connection = TypeVar("Connection", bound=StoreConnection)


class BrokerMessage(NamedTuple):
    """A message that a broker delivered: its identity, and its fields as texts."""

    identity: str
    fields: dict[str, str]


class StoreClient(ABC, Generic[Connection]):
    """A client of one store, with a pool of idle connections; each command is counted and timed.

    Documents are JSON texts. Every method raises StoreError. A client overrides what its kind of store can do; the
    rest is refused.
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
        """Close idle connections."""
        while self.idle:
            await self.idle.pop().close()

    @property
    def place(self) -> str:
        """Return the address and port for messages, or the store's name while no address is known."""
        return f"{self.context.names.last.get(self.store.name, self.store.name)}:{self.store.port}"

    @contextlib.contextmanager
    def measured(self, command: str) -> Iterator[None]:
        """Count a command and its time in the metrics of the process."""
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
        """Return whether a collection has no document."""
        self._cannot("collections")

    async def has_appended(self, collection: str, key: str) -> bool:
        """Return whether there is a document under a key of an appended collection."""
        self._cannot("collections")

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        """Insert documents by key."""
        self._cannot("collections")

    async def append(self, collection: str, key: str, document: str) -> None:
        """Add a document to those that a key of an appended collection has."""
        await self.append_all(collection, [(key, document)])

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        """Add documents of an appended collection, given as pairs of key and document."""
        self._cannot("collections")

    async def find(self, collection: str, key: str) -> str | None:
        """Return one document."""
        (document,) = await self.find_many(collection, [key])
        return document

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys."""
        self._cannot("collections")

    async def find_all(self, collection: str) -> list[str]:
        """Return all documents of a collection."""
        self._cannot("collections")

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        """Return the documents that a key of an appended collection has, or the newest of them, oldest first."""
        self._cannot("collections")

    # sorted sets

    async def add_sorted(self, sets: Mapping[str, Mapping[str, float]], at_most: int | None = None) -> None:
        """Add members with their scores to sorted sets; each keeps the `at_most` members with the highest scores."""
        self._cannot("sorted sets")

    async def range_sorted(self, name: str, start: int, stop: int, *, highest_first: bool) -> list[str]:
        """Return the members of a sorted set with the ranks from `start` up to, but not including, `stop`."""
        self._cannot("sorted sets")

    # values of a cache

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of a cache."""
        self._cannot("values of a cache")

    async def set_many(self, values: Mapping[str, str]) -> None:
        """Write values of a cache."""
        self._cannot("values of a cache")

    async def set_one(self, key: str, value: str) -> None:
        """Write one value of a cache."""
        await self.set_many({key: value})

    def set_later(self, key: str, value: str) -> None:
        """Write a value of a cache in the background, after earlier writes of the same key; ignore failures."""
        before = self._writing.get(key)

        async def write() -> None:
            if before is not None:
                await asyncio.wait((before,))
            with contextlib.suppress(StoreError):
                await self.set_one(key, value)
            if self._writing.get(key) is task:
                del self._writing[key]

        task = asyncio.get_running_loop().create_task(write())
        self._writing[key] = task

    # messages

    async def publish(self, topic: str, messages: Sequence[Mapping[str, str]]) -> None:
        """Add messages to a topic."""
        self._cannot("messages")

    async def join(self, topic: str, group: str) -> None:
        """Create a group that receives all messages of a topic from its first on, unless the group exists."""
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

    Every method raises PlatformError where the store cannot do it or refuses. An administrator overrides what its
    kind of store can do.

    Attributes
    ----------
    system
        Kind of the store, for messages.
    """

    system: str

    def __init__(self, access: StoreAccess):
        self.access = access

    @abstractmethod
    def perform(self, action: AdminAction) -> None:
        """Change the application's account, or delete all data; the change survives a restart."""

    @abstractmethod
    def state(self, stream: str | None = None) -> dict[str, Any]:
        """Return what the store allows and refuses at present.

        `write_refused` and `consume_refused` hold the reasons, empty if nothing is refused. `file_limit` is the limit
        of the server's files in bytes or None, and `file_write`, where the server reports it, how its last write
        ended. `unreadable` is the number of unreadable messages of a stream.
        """

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Start to lock and unlock the whole store repeatedly; return at once."""
        self.cannot("locks")

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Start to run a long query repeatedly; return at once."""
        self.cannot("queries")

    def limit_files(self, leave: int) -> None:
        """Limit the growth of the server's files to a number of bytes."""
        self.cannot("files")

    def free_files(self) -> None:
        """Lift the limit of the server's files."""
        self.cannot("files")

    def publish_unreadable(self, stream: str) -> None:
        """Publish a message that no consumer can read."""
        self.cannot("messages")

    def remove_unreadable(self, stream: str) -> None:
        """Remove all messages that no consumer can read."""
        self.cannot("messages")

    def cannot(self, feature: str) -> Never:
        """Raise PlatformError for something that this kind of store does not have."""
        raise PlatformError(f"{self.system} has no {feature}; choose another store")

    def require_account(self, action: AdminAction, exists: bool) -> None:
        """Raise PlatformError if an action changes an account that does not exist."""
        if not exists and action not in ("create-account", "remove-account", "empty-store"):
            access = self.access
            raise PlatformError(
                f"the store at {access.address}:{access.port} has no account {access.account}; create it first"
            )
