"""Client of a MongoDB by its own protocol, with the library PyMongo."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from faultset.collector.runtime.http.client import MAX_AGE_S
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError
from faultset.collector.runtime.stores.mongodb import MongoDriver
from faultset.collector.runtime.stores.originals.client import OriginalClient
from faultset.collector.runtime.stores.originals.mongodb_accounts import ACCOUNTS_DATABASE, MECHANISM, refusal_text

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.errors import PyMongoError

G = TypeVar("G")
T = TypeVar("T")
_TIMEOUT_S = 10.0
_PAUSE_S = 0.1
_LOGIN_REFUSED, _RIGHT_REFUSED, _ALREADY_THERE = 18, 13, 11000
_AT_ONCE = 20
"""How many documents are asked for, or changed, at the same time."""
_LOCAL: ContextVar[str | None] = ContextVar("local", default=None)
"""Address from which connections are made."""


class _Sockets:
    """Stands for the module `socket` in PyMongo, which has no option for the address that it connects from."""

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def socket(self, *kind: Any) -> socket.socket:
        """Return a new socket, bound to the address of whoever connects."""
        made, local = socket.socket(*kind), _LOCAL.get()
        if local is not None and made.family == socket.AF_INET:
            made.bind((local, 0))
        return made


class MongoProtocolClient(OriginalClient):
    """See `StoreClient`; connections that are idle for five seconds end.

    A document of a collection is `{_id: key, document: text}`; one of an appended collection is
    `{_id: key, documents: [text]}`, to which `$push` adds.
    """

    def __init__(self, driver: StoreDriver, store: StoreAddress, context: ClientContext):
        super().__init__(driver, store, context)
        self._client: AsyncMongoClient[dict[str, Any]] | None = None
        self._address = ""
        self._closing: set[asyncio.Task[None]] = set()

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command; raise StoreError."""

        async def ask(client: AsyncMongoClient[dict[str, Any]]) -> None:
            # whoever may not log in is refused when the connection is made, before any command
            await client[self.store.database].command("ping")

        await self._run(ask)

    async def is_empty(self, collection: str) -> bool:
        """Say whether a collection has no document."""
        return await self._use("find", collection, lambda one: one.find_one({}, {"_id": 1})) is None

    async def has_appended(self, collection: str, key: str) -> bool:
        """Say whether there is a document under a key of an appended collection."""
        return await self._use("find", collection, lambda one: one.find_one({"_id": key}, {"_id": 1})) is not None

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        """Insert documents by key; those that are there already are replaced."""

        async def write(one: AsyncCollection[dict[str, Any]]) -> None:
            new = [{"_id": key, "document": text} for key, text in documents.items()]
            there = await _insert_all(one, new)
            await _in_groups(there, lambda each: one.replace_one({"_id": each["_id"]}, each, upsert=True))

        await self._use("insert", collection, write)

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        """Add documents, each to those of its key."""
        texts: dict[str, list[str]] = {}
        for key, text in documents:
            texts.setdefault(key, []).append(text)

        async def write(one: AsyncCollection[dict[str, Any]]) -> None:
            new = [{"_id": key, "documents": some} for key, some in texts.items()]

            def push(each: dict[str, Any]) -> Awaitable[Any]:
                return one.update_one({"_id": each["_id"]}, {"$push": {"documents": {"$each": each["documents"]}}})

            await _in_groups(await _insert_all(one, new), push)

        await self._use("update", collection, write)

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys, each asked for by itself."""

        async def read(one: AsyncCollection[dict[str, Any]]) -> dict[str, str]:
            found = await _in_groups([*dict.fromkeys(keys)], lambda key: one.find_one({"_id": key}))
            return {each["_id"]: each["document"] for each in found if each is not None}

        found = await self._use("find", collection, read)
        return [found.get(key) for key in keys]

    async def find_all(self, collection: str) -> list[str]:
        """Return all documents of a collection."""

        async def read(one: AsyncCollection[dict[str, Any]]) -> list[str]:
            return [each["document"] async for each in one.find({})]

        return await self._use("find", collection, read)

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        """Return the documents of a key, or the newest of them, oldest first."""
        found = await self._use("find", collection, lambda one: one.find_one({"_id": key}))
        documents: list[str] = [] if found is None else found["documents"]
        return documents if newest is None else documents[-newest:] if newest else []

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _use(
        self, name: str, collection: str, command: Callable[[AsyncCollection[dict[str, Any]]], Awaitable[T]]
    ) -> T:
        with self.measured(name):
            return await self._run(lambda client: command(client[self.store.database][collection]))

    async def _run(self, command: Callable[[AsyncMongoClient[dict[str, Any]]], Awaitable[T]]) -> T:
        from pymongo.errors import PyMongoError

        _LOCAL.set(self.context.local)
        client = await self._connected()
        try:
            return await command(client)
        except PyMongoError as error:
            raise self._failure(error) from None

    def _failure(self, error: PyMongoError) -> StoreError:
        from pymongo.errors import ConnectionFailure, NetworkTimeout, OperationFailure, ServerSelectionTimeoutError

        texts, place = self.context.texts, f"{self._address}:{self.store.port}"
        match error:
            case OperationFailure():
                text = refusal_text(error)
                if error.code == _LOGIN_REFUSED:
                    return StoreError("login", f"server returned error on SASL authentication step: {text}")
                return StoreError("rights" if error.code == _RIGHT_REFUSED else "other", text)
            case ServerSelectionTimeoutError():
                return StoreError("unreachable", self._unreachable(error))
            case NetworkTimeout():
                return StoreError("timeout", texts.read_timed_out(self.context.local or "?", place))
            case ConnectionFailure():
                return StoreError("broken", texts.connection_closed())
            case _:
                return StoreError("other", str(error).partition("\n")[0])

    def _unreachable(self, error: BaseException) -> str:
        return MongoDriver().failed_connection(error, self._address, self.context.texts, timed_out=False)

    @property
    def _wait_s(self) -> float:
        return _TIMEOUT_S if self.store.connect_timeout_s is None else self.store.connect_timeout_s

    async def _connected(self) -> AsyncMongoClient[dict[str, Any]]:
        """Return a client of the store's present address."""
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                address = await self.context.names.address(self.store.name)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise StoreError("unreachable", self._unreachable(error)) from None
            await asyncio.sleep(_PAUSE_S)
        if self._client is None or address != self._address:
            before, self._client, self._address = self._client, self._made(address), address
            if before is not None:
                task = asyncio.get_running_loop().create_task(before.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        return self._client

    def _made(self, address: str) -> AsyncMongoClient[dict[str, Any]]:
        from pymongo import AsyncMongoClient, pool_shared

        replaced: Any = pool_shared
        if not isinstance(replaced.socket, _Sockets):
            replaced.socket = _Sockets()
        limit_ms = round(1000 * _TIMEOUT_S)
        return AsyncMongoClient(
            address,
            self.store.port,
            username=self.store.account.username,
            password=self.store.account.password,
            authSource=ACCOUNTS_DATABASE,
            authMechanism=MECHANISM,
            directConnection=True,
            retryWrites=False,
            retryReads=False,
            serverMonitoringMode="poll",
            maxIdleTimeMS=round(1000 * MAX_AGE_S),
            serverSelectionTimeoutMS=round(1000 * self._wait_s),
            connectTimeoutMS=limit_ms,
            socketTimeoutMS=limit_ms,
        )


async def _insert_all(one: AsyncCollection[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Insert documents; return those whose key is there already."""
    from pymongo.errors import BulkWriteError

    try:
        if new:
            await one.insert_many(new, ordered=False)
    except BulkWriteError as error:
        details: Any = error.details
        if any(failed["code"] != _ALREADY_THERE for failed in details["writeErrors"]):
            raise
        return [new[failed["index"]] for failed in details["writeErrors"]]
    return []


async def _in_groups(given: Sequence[G], command: Callable[[G], Awaitable[T]]) -> list[T]:
    """Return the results of a command for each of the given, of which not too many run at the same time."""
    found: list[T] = []
    for first in range(0, len(given), _AT_ONCE):
        found += await asyncio.gather(*(command(one) for one in given[first : first + _AT_ONCE]))
    return found
