"""Client of a store over Redis, with the texts and time limits of the client it stands for.

A refused login is an error of the connection: it never goes on as Redis' default account.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import redis.exceptions
from redis.asyncio.connection import Connection

from faultset.collector.runtime.http.client import MAX_AGE_S, Names
from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError
from faultset.collector.runtime.stores.instrumented_client import InstrumentedClient

_REDIAL_S = 0.1


class RedisClientTraits(StoreDriver):
    """In what clients of different kinds of stores over Redis differ.

    Attributes
    ----------
    timeout_s
        How long a client waits for a connection, and for an answer.
    redials
        Whether a client tries for that long to reach a server that refuses connections.
    """

    timeout_s: ClassVar[float]
    redials: ClassVar[bool]

    @abstractmethod
    def refused_login(self) -> str:
        """Return the client's text for a wrong account or password."""

    @abstractmethod
    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the client's text for a command for which the account has no right."""

    @abstractmethod
    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return the client's text for a connection that could not be made."""


class _Link(Connection):
    """A connection from the pod's own address to an address looked up when it is made."""

    def __init__(self, names: Names, local: str | None, **options: Any):
        super().__init__(**options)
        self._names = names
        self._local = (local, 0) if local else None
        self.born = time.monotonic()

    async def _connect(self) -> None:
        self.address = await self._names.address(self.host)
        await super()._connect()

    def _connection_arguments(self) -> dict[str, Any]:
        return {"host": self.address, "port": self.port, "local_addr": self._local}

    @property
    def usable(self) -> bool:
        reader = self._reader
        return reader is not None and not reader.at_eof() and time.monotonic() - self.born < MAX_AGE_S


class RedisClient(InstrumentedClient):
    """See `StoreClient`; connections live for five seconds at most.

    A collection is a hash `database.collection` from key to document, an appended one a list for each key.
    """

    def __init__(self, driver: RedisClientTraits, store: StoreAddress, context: ClientContext):
        super().__init__(driver, store, context)
        self._traits = driver
        self._idle: deque[_Link] = deque()

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command; raise StoreError."""
        self._idle.append(await self._acquire())

    async def is_empty(self, collection: str) -> bool:
        """Say whether a collection has no document."""
        return not await self.run("HLEN", self._key(collection))

    async def has_appended(self, collection: str, key: str) -> bool:
        """Say whether there is a document under a key of an appended collection."""
        return bool(await self.run("EXISTS", self._key(collection, key)))

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        """Insert documents by key."""
        pairs = [part for pair in documents.items() for part in pair]
        await self.run("HSET", self._key(collection), *pairs)

    async def append(self, collection: str, key: str, document: str) -> None:
        """Add a document to those of a key."""
        await self.append_all(collection, [(key, document)])

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        """Add documents, each to those of its key."""
        await self.run_all([("RPUSH", self._key(collection, key), document) for key, document in documents])

    async def find(self, collection: str, key: str) -> str | None:
        """Return one document."""
        return await self.run("HGET", self._key(collection), key)

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys."""
        return await self.run("HMGET", self._key(collection), *keys)

    async def find_all(self, collection: str) -> list[str]:
        """Return all documents of a collection."""
        return await self.run("HVALS", self._key(collection))

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        """Return the documents of a key, or the newest of them, oldest first."""
        return await self.run("LRANGE", self._key(collection, key), 0 if newest is None else -newest, -1)

    async def add_sorted(self, sets: Mapping[str, Mapping[str, float]], at_most: int | None = None) -> None:
        """Add members with their scores to sorted sets; of each set the `at_most` with the highest scores stay."""
        commands: list[tuple[Any, ...]] = []
        for name, members in sets.items():
            commands.append(("ZADD", name, *(part for member, score in members.items() for part in (score, member))))
            if at_most is not None:
                commands.append(("ZREMRANGEBYRANK", name, 0, -at_most - 1))
        await self.run_all(commands)

    async def range_sorted(self, name: str, start: int, stop: int, *, highest_first: bool) -> list[str]:
        """Return the members of a sorted set with the ranks from `start` to `stop`, which is left out."""
        return await self.run("ZREVRANGE" if highest_first else "ZRANGE", name, start, stop - 1)

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of a cache."""
        return await self.run("MGET", *keys)

    async def set_many(self, values: Mapping[str, str]) -> None:
        """Write values of a cache."""
        await self.run("MSET", *(part for pair in values.items() for part in pair))

    async def set_one(self, key: str, value: str) -> None:
        """Write one value of a cache."""
        await self.run("SET", key, value)

    def _key(self, collection: str, key: str | None = None) -> str:
        name = f"{self.store.database}.{collection}"
        return name if key is None else f"{name}:{key}"

    async def run(self, *command: Any) -> Any:
        """Run one command of Redis; raise StoreError."""
        (reply,) = await self.run_all([command])
        return reply

    async def run_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together, then read their replies; raise StoreError for the first that is refused."""
        with self.measured(commands[0][0]):
            return await self._run_all(commands)

    async def _run_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        link = await self._acquire()
        try:
            async with asyncio.timeout(self._traits.timeout_s):
                await link.send_packed_command(link.pack_commands(commands), check_health=False)
                replies = [await _reply(link) for _ in commands]
        except redis.exceptions.ConnectionError:
            await link.disconnect(nowait=True)
            raise StoreError("broken", self.context.texts.connection_closed()) from None
        except TimeoutError:
            local = link._writer.get_extra_info("sockname") if link._writer else None
            await link.disconnect(nowait=True)
            source = f"{local[0]}:{local[1]}" if local else "?"
            text = self.context.texts.read_timed_out(source, f"{link.address}:{self.store.port}")
            raise StoreError("timeout", text) from None
        except BaseException:
            await link.disconnect(nowait=True)
            raise
        self._idle.append(link)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, redis.exceptions.NoPermissionError):
                words = [str(word) for word in command]
                raise StoreError("rights", self._traits.refused_command(self.store, words, str(reply)))
            if isinstance(reply, redis.exceptions.ResponseError):
                raise StoreError("other", str(reply))
        return replies

    async def _acquire(self) -> _Link:
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link
            await link.disconnect(nowait=True)
        return await (self._dial_until_reachable() if self._traits.redials else self._dial())

    async def _dial_until_reachable(self) -> _Link:
        given_s = self.store.connect_timeout_s
        deadline = time.monotonic() + (self._traits.timeout_s if given_s is None else given_s)
        while True:
            try:
                return await self._dial()
            except StoreError as error:
                if error.kind == "login":
                    raise
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            await asyncio.sleep(min(_REDIAL_S, left))

    async def _dial(self) -> _Link:
        link = _Link(
            self.context.names,
            self.context.local,
            host=self.store.name,
            port=self.store.port,
            username=self.store.account.username,
            password=self.store.account.password,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=self._traits.timeout_s,
            driver_info=None,
            decode_responses=True,
        )
        try:
            async with asyncio.timeout(self._traits.timeout_s):
                await link.connect()
        except redis.exceptions.AuthenticationError:
            raise StoreError("login", self._traits.refused_login()) from None
        except redis.exceptions.ResponseError as error:
            raise StoreError("other", str(error)) from None
        except (redis.exceptions.RedisError, OSError) as error:
            await link.disconnect(nowait=True)
            raise StoreError("unreachable", self._connection_text(error)) from None
        return link

    def _connection_text(self, error: BaseException) -> str:
        cause = error.__cause__ or error.__context__ or error
        timed_out = isinstance(error, (TimeoutError, redis.exceptions.TimeoutError))
        address = f"{self.context.names.last.get(self.store.name, self.store.name)}:{self.store.port}"
        return self._traits.failed_connection(cause, address, self.context.texts, timed_out=timed_out)

    async def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)


async def _reply(link: _Link) -> Any:
    """Return a reply, also one that refuses: those of the commands after it must still be read."""
    try:
        return await link.read_response()
    except redis.exceptions.ResponseError as error:
        return error
