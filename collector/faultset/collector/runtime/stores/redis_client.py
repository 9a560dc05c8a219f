"""Client of stores that run on Redis, with the error messages and timeouts of the imitated client.

A refused login closes the connection, so that the client never continues with Redis' default account.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis.exceptions
from redis.asyncio.connection import Connection

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.stores.driver import BrokerMessage, StoreAddress, StoreClient, StoreDriver, StoreError

MIN_TOPIC_MESSAGES = 50_000
"""Minimum number of messages that a topic keeps; older ones may be deleted."""
_REDIAL_S = 0.1
_VERB_BY_COMMAND = {
    "HGET": "find",
    "HMGET": "find",
    "HVALS": "find",
    "LRANGE": "find",
    "HLEN": "count",
    "EXISTS": "count",
}
"""MongoDB's verbs for commands of Redis; the verb of all others is `insert`."""


@dataclass(frozen=True, kw_only=True)
class ClientTexts:
    """Error messages of the imitated client, with fields in braces except in `refused_login`."""

    refused_login: str
    """Message for a wrong account or password."""
    refused_command: str
    """Message for a forbidden command, with `{database}`, `{collection}`, Redis' `{command}` in lower case, MongoDB's
    `{verb}` and Redis' `{reply}`."""
    failed_connection: str
    """Message for a failed connection, with its `{address}`, the `{failure}` as the persona describes it, and the
    operating system's `{reason}`."""
    connect_timeout: str | None = None
    """Message for a connection that timed out; None to use `failed_connection`."""


class _Link(Connection):
    """A connection from the pod's address that resolves the store's name when it is opened."""

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
    def is_open(self) -> bool:
        return self._reader is not None and not self._reader.at_eof()

    @property
    def source(self) -> str:
        local = self._writer.get_extra_info("sockname") if self._writer else None
        return f"{local[0]}:{local[1]}" if local else "?"

    async def close(self) -> None:
        await self.disconnect(nowait=True)


class RedisClient(StoreClient[_Link]):
    """See `StoreClient`.

    A collection is a hash `database.collection` from key to document; an append-only collection is a list for each key.
    A topic is a stream with a counter of published messages and, for each group, a counter of acknowledged messages.
    The group's lag is the difference.
    """

    def __init__(
        self,
        driver: StoreDriver,
        store: StoreAddress,
        context: ClientContext,
        texts: ClientTexts,
        *,
        timeout_s: float,
        redials: bool,
    ):
        super().__init__(driver, store, context)
        self._texts, self._timeout_s, self._redials = texts, timeout_s, redials

    async def is_empty(self, collection: str) -> bool:
        return not await self.run("HLEN", self._key(collection))

    async def has_appended(self, collection: str, key: str) -> bool:
        return bool(await self.run("EXISTS", self._key(collection, key)))

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        words = [word for pair in documents.items() for word in pair]
        await self.run("HSET", self._key(collection), *words)

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        await self.run_all([("RPUSH", self._key(collection, key), document) for key, document in documents])

    async def find(self, collection: str, key: str) -> str | None:
        return await self.run("HGET", self._key(collection), key)

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        return await self.run("HMGET", self._key(collection), *keys)

    async def find_all(self, collection: str) -> list[str]:
        return await self.run("HVALS", self._key(collection))

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        return await self.run("LRANGE", self._key(collection, key), 0 if newest is None else -newest, -1)

    async def add_sorted(self, sets: Mapping[str, Mapping[str, float]], at_most: int | None = None) -> None:
        commands: list[tuple[Any, ...]] = []
        for name, members in sets.items():
            commands.append(("ZADD", name, *(word for member, score in members.items() for word in (score, member))))
            if at_most is not None:
                commands.append(("ZREMRANGEBYRANK", name, 0, -at_most - 1))
        await self.run_all(commands)

    async def range_sorted(self, name: str, start: int, stop: int, *, highest_first: bool) -> list[str]:
        return await self.run("ZREVRANGE" if highest_first else "ZRANGE", name, start, stop - 1)

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        return await self.run("MGET", *keys)

    async def set_many(self, values: Mapping[str, str]) -> None:
        await self.run("MSET", *(word for pair in values.items() for word in pair))

    async def set_one(self, key: str, value: str) -> None:
        await self.run("SET", key, value)

    async def publish(self, topic: str, messages: Sequence[Mapping[str, str]]) -> None:
        stream = self._key(topic)
        commands: list[tuple[Any, ...]] = [
            (
                "XADD",
                stream,
                "MAXLEN",
                "~",
                MIN_TOPIC_MESSAGES,
                "*",
                *(word for field in message.items() for word in field),
            )
            for message in messages
        ]
        if commands:
            await self.run_all([*commands, ("INCRBY", self._key(topic, "published"), len(messages))])

    async def join(self, topic: str, group: str) -> None:
        try:
            await self.run("XGROUP", "CREATE", self._key(topic), group, "0", "MKSTREAM")
        except StoreError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def take(self, topic: str, group: str, member: str, *, count: int, wait_s: float) -> list[BrokerMessage]:
        options = ("COUNT", count, "BLOCK", max(1, round(wait_s * 1000)))
        streams = await self.run("XREADGROUP", "GROUP", group, member, *options, "STREAMS", self._key(topic), ">")
        return [message for _, entries in streams or () for message in _parse_messages(entries)]

    async def take_over(self, topic: str, group: str, member: str, *, count: int, idle_s: float) -> list[BrokerMessage]:
        idle_ms = round(idle_s * 1000)
        reply = await self.run("XAUTOCLAIM", self._key(topic), group, member, idle_ms, "0", "COUNT", count)
        return _parse_messages(reply[1])

    async def has(self, topic: str, identity: str) -> bool:
        return bool(await self.run("XRANGE", self._key(topic), identity, identity))

    async def acknowledge(self, topic: str, group: str, identities: Sequence[str]) -> None:
        acknowledged = await self.run("XACK", self._key(topic), group, *identities)
        if acknowledged:
            await self.run("INCRBY", self._key(topic, f"acknowledged.{group}"), acknowledged)

    async def lag(self, topic: str, group: str) -> int:
        keys = (self._key(topic, "published"), self._key(topic, f"acknowledged.{group}"))
        published, acknowledged = await self.run("MGET", *keys)
        return max(0, int(published or 0) - int(acknowledged or 0))

    def _key(self, collection: str, key: str | None = None) -> str:
        name = f"{self.store.database}.{collection}"
        return name if key is None else f"{name}:{key}"

    async def run(self, *command: Any) -> Any:
        """Run one command of Redis; raise StoreError if it fails."""
        (reply,) = await self.run_all([command])
        return reply

    async def run_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together, then read the replies; raise StoreError for the first refused command."""
        with self.measure(commands[0][0]):
            return await self._run_all(commands)

    async def _run_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        link = await self.acquire()
        try:
            async with asyncio.timeout(self._timeout_s):
                await link.send_packed_command(link.pack_commands(commands), check_health=False)
                replies = [await _read_reply(link) for _ in commands]
        except redis.exceptions.ConnectionError:
            await link.close()
            raise StoreError("broken", self.context.texts.connection_closed()) from None
        except TimeoutError:
            text = self.context.texts.read_timed_out(link.source, f"{link.address}:{self.store.port}")
            await link.close()
            raise StoreError("timeout", text) from None
        except BaseException:
            await link.close()
            raise
        self.idle.append(link)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, redis.exceptions.NoPermissionError):
                raise StoreError("rights", self._refusal_text(str(command[0]), str(command[1]), str(reply)))
            if isinstance(reply, redis.exceptions.ResponseError):
                raise StoreError("other", str(reply))
        return replies

    def _refusal_text(self, command: str, key: str, reply: str) -> str:
        database = self.store.database
        return self._texts.refused_command.format(
            database=database,
            collection=key.removeprefix(f"{database}.").partition(":")[0],
            command=command.lower(),
            verb=_VERB_BY_COMMAND.get(command, "insert"),
            reply=reply.removeprefix("NOPERM "),
        )

    async def dial(self) -> _Link:
        """Open a connection and log in; some clients retry for a while."""
        timeout_s = self._timeout_s if self.store.connect_timeout_s is None else self.store.connect_timeout_s
        deadline = time.monotonic() + (timeout_s if self._redials else 0)
        while True:
            try:
                return await self._dial_once()
            except StoreError as error:
                remaining_s = deadline - time.monotonic()
                if error.kind == "login" or remaining_s <= 0:
                    raise
            await asyncio.sleep(min(_REDIAL_S, remaining_s))

    async def _dial_once(self) -> _Link:
        link = _Link(
            self.context.names,
            self.context.local,
            host=self.store.name,
            port=self.store.port,
            username=self.store.username,
            password=self.store.password,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=self._timeout_s,
            driver_info=None,
            decode_responses=True,
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                await link.connect()
        except redis.exceptions.AuthenticationError:
            raise StoreError("login", self._texts.refused_login) from None
        except redis.exceptions.ResponseError as error:
            raise StoreError("other", str(error)) from None
        except (redis.exceptions.RedisError, OSError) as error:
            await link.close()
            raise StoreError("unreachable", self._connection_text(error)) from None
        return link

    def _connection_text(self, error: BaseException) -> str:
        cause = error.__cause__ or error.__context__ or error
        number = cause.errno if isinstance(cause, OSError) else None
        text = self._texts.failed_connection
        if isinstance(error, (TimeoutError, redis.exceptions.TimeoutError)):
            text = self._texts.connect_timeout or text
        return text.format(
            address=self.endpoint,
            failure=self.context.texts.connection_failed(cause, self.endpoint),
            reason=os.strerror(number) if number else cause,
        )


async def _read_reply(link: _Link) -> Any:
    """Return a reply or its error, because the replies of later commands must still be read."""
    try:
        return await link.read_response()
    except redis.exceptions.ResponseError as error:
        return error


def _parse_messages(entries: Any) -> list[BrokerMessage]:
    """Return the entries of a stream as messages, without deleted ones, which have no fields."""
    return [
        BrokerMessage(identity, dict(zip(fields[::2], fields[1::2], strict=True)))
        for identity, fields in entries
        if fields
    ]
