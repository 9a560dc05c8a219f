"""What clients of all stores share: commands are counted and timed, and values are written in the background."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping

from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError


class InstrumentedClient:
    """The part of `StoreClient` that does not depend on the kind of store."""

    def __init__(self, driver: StoreDriver, store: StoreAddress, context: ClientContext):
        self.driver = driver
        self.store = store
        self.context = context
        self._writing: dict[str, asyncio.Task[None]] = {}

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

    @abstractmethod
    async def set_many(self, values: Mapping[str, str]) -> None:
        """Write values of a cache."""

    async def set_one(self, key: str, value: str) -> None:
        """Write one value of a cache."""
        await self.set_many({key: value})

    def set_later(self, key: str, value: str) -> None:
        """Write a value in the background, after earlier writes of the same key; nobody learns of a failure."""
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
