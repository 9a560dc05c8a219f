"""The contract of a store driver: everything that is particular to one kind of store.

A driver starts the server inside the store's container, makes the clients of the services that use it, and knows the
administrator's commands by which faults take rights away and give them back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from faultset.collector.runtime.http.error_texts import ErrorTexts
from faultset.collector.runtime.http.names import Names
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
    """With what a client logs in; no password is an empty one."""

    username: str
    password: str


class AdminChange(NamedTuple):
    """A command of a store's administrator, and the one that takes it back."""

    words: tuple[str, ...]
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Where a store is and how one logs in."""

    name: str
    port: int
    database: str
    account: Account


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

    async def find_appended(self, collection: str, key: str) -> list[str]:
        """Return the documents that a key of an appended collection has."""
        ...

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of a cache."""
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
        What `faultset-store NAME` starts, and the name of the system in spans and metrics.
    port
        Where the server listens.
    keeps_data
        Whether it has a volume; one without begins empty.
    """

    name: ClassVar[str]
    port: ClassVar[int]
    keeps_data: ClassVar[bool]

    @abstractmethod
    def prepare(self, folder: Path, *, password: bool) -> None:
        """Fill an empty data folder with what the server needs.

        Parameters
        ----------
        password
            Whether clients log in with a password.
        """

    @abstractmethod
    def server_argv(self, folder: Path, *, address: str) -> list[str]:
        """Return the command of the server; raise PlatformError when this machine has none."""

    @abstractmethod
    def administer(self, address: str, port: int, words: Sequence[str]) -> str:
        """Run a command as administrator, lastingly, and return the answer; raise PlatformError."""

    @abstractmethod
    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client; it is not connected yet."""

    @abstractmethod
    def account(self, *, password: bool) -> Account:
        """Return the account of the application, in a store with or without passwords."""

    @abstractmethod
    def revoke(self, account: Account) -> AdminChange:
        """Return the change by which an account may log in but run no command."""

    @abstractmethod
    def remove(self, account: Account) -> AdminChange:
        """Return the change by which an account no longer exists."""

    @abstractmethod
    def require_password(self, account: Account, password: str) -> AdminChange:
        """Return the change by which an account that needed no password needs one."""

    @abstractmethod
    def rewrite(self, account: Account) -> AdminChange:
        """Return the change that gives an account the rights that it has."""

    @abstractmethod
    def flush(self) -> AdminChange:
        """Return the change that empties the store; to take it back empties it again."""
