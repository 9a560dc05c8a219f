"""What the clients of original servers share: what a kind of store does not have, its client cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Never

from faultset.collector.runtime.stores.driver import StoreError
from faultset.collector.runtime.stores.instrumented_client import InstrumentedClient


class OriginalClient(InstrumentedClient):
    """See `StoreClient`; what a kind of store does not override it cannot do."""

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

    async def close(self) -> None:
        """Close idle connections."""
        raise NotImplementedError
