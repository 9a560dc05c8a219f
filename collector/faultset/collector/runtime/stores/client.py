"""What a service does with a store: the base class of all clients."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Never, Protocol, TypeVar

from faultset.collector.runtime.http.client import MAX_AGE_S
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError


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
