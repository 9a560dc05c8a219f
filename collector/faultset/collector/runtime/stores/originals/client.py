"""What the clients of original servers share: times, metrics, writing in the background, and what they cannot do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Never

from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError


class OriginalClient:
    """See `StoreClient`; what a kind of store does not override it cannot do."""

    def __init__(self, driver: StoreDriver, store: StoreAddress, context: ClientContext):
        self.driver = driver
        self.store = store
        self.context = context
        self._writing: dict[str, asyncio.Task[None]] = {}

    @contextlib.contextmanager
    def observed(self, command: str) -> Iterator[None]:
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

    def _cannot(self, what: str) -> Never:
        raise StoreError("other", f"{self.driver.system} has no {what}")

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command."""
        raise NotImplementedError

    async def is_empty(self, collection: str) -> bool:
        """Say whether a collection has no document."""
        self._cannot("collections")

    async def has_appended(self, collection: str, key: str) -> bool:
        """Say whether there is a document under a key of an appended collection."""
        self._cannot("collections")

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        """Insert documents by key."""
        self._cannot("collections")

    async def append(self, collection: str, key: str, document: str) -> None:
        """Add a document to those of a key."""
        await self.append_all(collection, [(key, document)])

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        """Add documents, each to those of its key."""
        self._cannot("collections")

    async def find(self, collection: str, key: str) -> str | None:
        """Return one document."""
        (found,) = await self.find_many(collection, [key])
        return found

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys."""
        self._cannot("collections")

    async def find_all(self, collection: str) -> list[str]:
        """Return all documents of a collection."""
        self._cannot("collections")

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        """Return the documents of a key, or the newest of them, oldest first."""
        self._cannot("collections")

    async def add_sorted(self, sets: Mapping[str, Mapping[str, float]], at_most: int | None = None) -> None:
        """Add members with their scores to sorted sets."""
        self._cannot("sorted sets")

    async def range_sorted(self, name: str, start: int, stop: int, *, highest_first: bool) -> list[str]:
        """Return the members of a sorted set with some ranks."""
        self._cannot("sorted sets")

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of a cache."""
        self._cannot("values of a cache")

    async def set_many(self, values: Mapping[str, str]) -> None:
        """Write values of a cache."""
        self._cannot("values of a cache")

    def set_later(self, key: str, value: str) -> None:
        """Write a value in the background, after earlier writes of the same key; nobody learns of a failure."""
        before = self._writing.get(key)

        async def write() -> None:
            if before is not None:
                await asyncio.wait((before,))
            with contextlib.suppress(StoreError):
                await self.set_many({key: value})
            if self._writing.get(key) is task:
                del self._writing[key]

        task = asyncio.get_running_loop().create_task(write())
        self._writing[key] = task

    async def close(self) -> None:
        """Close idle connections."""
        raise NotImplementedError
