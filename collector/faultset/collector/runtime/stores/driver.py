"""The contract of a store driver: everything that is particular to one kind of store.

A driver starts the server inside the store's container, makes the clients of the services that use it, and knows the
administrator's actions by which faults take rights away and give them back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol, get_args

from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.signals.metrics import Metrics


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
    """With what a client logs in."""

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
"""What a store's administrator does to the application's account, or to what is stored: each does one thing, so that
none of them puts right whatever may be wrong."""


Capability = Literal["accounts", "rights", "locks", "files", "memory-limit", "connection-limit"]
"""What a store has that faults need: accounts, and rights of theirs that can be taken; locks and queries that keep
others waiting; files whose size can be limited; limits of memory, at which it refuses writes, and of connections."""


class AdminChange(NamedTuple):
    """What a store's administrator does, and what takes it back."""

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
"""The application's account needs a password that nobody knows."""
REWRITE_PASSWORD = AdminChange("set-password", "set-password")
"""The application's account is given the password that it has."""
EMPTY_STORE = AdminChange("empty-store", "empty-store")
"""Everything that is stored is deleted; to take it back deletes it again."""


class Credentials(NamedTuple):
    """The passwords of a store."""

    administrator: str
    application: str


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Where a store is and how one logs in.

    Attributes
    ----------
    connect_timeout_s
        How long to try to reach it; as long as the driver says without.
    """

    name: str
    port: int
    database: str
    account: Account
    connect_timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """What clients of stores share with the rest of their process.

    Attributes
    ----------
    local
        Address from which connections are made; any without.
    """

    names: Names
    local: str | None
    metrics: Metrics
    texts: ErrorTexts


class StoreClient(Protocol):
    """What a service can do with a store. Documents are JSON texts; every method raises StoreError."""

    @property
    def driver(self) -> StoreDriver:
        """Return the kind of store."""
        ...

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command."""
        ...

    async def is_empty(self, collection: str) -> bool:
        """Say whether a collection has no document."""
        ...

    async def has_appended(self, collection: str, key: str) -> bool:
        """Say whether there is a document under a key of an appended collection."""
        ...

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        """Insert documents by key."""
        ...

    async def append(self, collection: str, key: str, document: str) -> None:
        """Add a document to those that a key of an appended collection has."""
        ...

    async def find(self, collection: str, key: str) -> str | None:
        """Return one document."""
        ...

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys."""
        ...

    async def find_all(self, collection: str) -> list[str]:
        """Return all documents of a collection."""
        ...

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        """Add documents of an appended collection, given as pairs of key and document."""
        ...

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        """Return the documents that a key of an appended collection has, or the newest of them, oldest first."""
        ...

    async def add_sorted(self, sets: Mapping[str, Mapping[str, float]], at_most: int | None = None) -> None:
        """Add members with their scores to sorted sets; of each set the `at_most` with the highest scores stay."""
        ...

    async def range_sorted(self, name: str, start: int, stop: int, *, highest_first: bool) -> list[str]:
        """Return the members of a sorted set with the ranks from `start` to `stop`, which is left out."""
        ...

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of a cache."""
        ...

    async def set_many(self, values: Mapping[str, str]) -> None:
        """Write values of a cache."""
        ...

    def set_later(self, key: str, value: str) -> None:
        """Write a value of a cache in the background, after earlier ones of that key; nobody learns of a failure."""
        ...

    async def close(self) -> None:
        """Close idle connections."""
        ...


class StoreDriver(ABC):
    """One kind of store.

    Attributes
    ----------
    name
        What `faultset-store NAME` starts.
    port
        Where the server listens.
    keeps_data
        Whether it has a volume; one without begins empty.
    carries_messages
        Whether it is a broker: its clients publish and consume.
    capabilities
        What it has of that which faults need.
    """

    name: ClassVar[str]
    port: ClassVar[int]
    keeps_data: ClassVar[bool]
    carries_messages: ClassVar[bool] = False
    capabilities: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability))

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
        """Say whether a data folder has what the server needs."""
        return any(folder.iterdir())

    @abstractmethod
    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server; raise PlatformError when this machine has none.

        Parameters
        ----------
        max_memory_kib
            What it may store; as much as the driver says without.
        max_clients
            How many connections it takes; as many as the server itself allows without.
        """

    @abstractmethod
    def administer(
        self, address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials
    ) -> None:
        """Do something as administrator, lastingly; raise PlatformError."""

    @abstractmethod
    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client; it is not connected yet."""

    @staticmethod
    def account_name(*, password: bool) -> str:
        """Return the name of the application's account.

        Parameters
        ----------
        password
            Whether the application's configuration speaks of a password, which faults of rights and accounts need.
        """
        return "admin" if password else "app"
