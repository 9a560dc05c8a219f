"""Clients of databases and caches, with the texts and time limits of the clients they stand for.

A refused login is an error of the connection: it never goes on as Redis' default account.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import redis.exceptions
from redis.asyncio.connection import Connection

from faultset.collector.runtime.http.connections import MAX_AGE_S
from faultset.collector.runtime.http.names import Names, dial_error
from faultset.collector.runtime.signals.metrics import Metrics

_DATABASE_TIMEOUT_S = 10.0
_CACHE_TIMEOUT_S = 2.0
_REDIAL_S = 0.1

_VERBS = {"HGET": "find", "HMGET": "find", "HVALS": "find", "LRANGE": "find", "HLEN": "count", "EXISTS": "count"}


class StoreError(Exception):
    """A store that cannot be reached, refuses or does not answer; the text is the modelled client's.

    Attributes
    ----------
    kind:
        unreachable, login, rights, broken, timeout or other
    """

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Where a store is and how one logs in."""

    name: str
    role: str
    port: int
    database: str | None
    username: str
    password: str


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


class StoreClient:
    """Runs commands on one store over connections that live for five seconds at most."""

    def __init__(self, store: StoreAddress, *, names: Names, local: str | None, metrics: Metrics):
        self.store = store
        self._names = names
        self._local = local
        self._metrics = metrics
        self._idle: deque[_Link] = deque()
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._timeout_s = _CACHE_TIMEOUT_S if store.role == "memcached" else _DATABASE_TIMEOUT_S

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command; raise StoreError."""
        self._idle.append(await self._acquire())

    async def run(self, *command: Any) -> Any:
        """Run one command; raise StoreError."""
        start, status = time.perf_counter(), "OK"
        try:
            return await self._run(command)
        except StoreError as error:
            status = error.kind
            raise
        finally:
            self._metrics.database(self.store.name, self.store.role, command[0], status).observe(
                time.perf_counter() - start
            )

    def set_later(self, key: str, value: str) -> None:
        """Write a value in the background, after earlier writes of the same key; nobody learns of a failure."""
        before = self._writing.get(key)

        async def write() -> None:
            if before is not None:
                await asyncio.wait((before,))
            with contextlib.suppress(StoreError):
                await self.run("SET", key, value)
            if self._writing.get(key) is task:
                del self._writing[key]

        task = asyncio.get_running_loop().create_task(write())
        self._writing[key] = task

    async def _run(self, command: tuple[Any, ...]) -> Any:
        link = await self._acquire()
        try:
            async with asyncio.timeout(self._timeout_s):
                await link.send_command(*command, check_health=False)
                reply = await link.read_response()
        except redis.exceptions.NoPermissionError as error:
            self._idle.append(link)
            raise self._not_authorized(command, error) from None
        except redis.exceptions.ConnectionError:
            await link.disconnect(nowait=True)
            raise StoreError("broken", "EOF") from None
        except TimeoutError:
            local = link._writer.get_extra_info("sockname") if link._writer else None
            await link.disconnect(nowait=True)
            source = f"{local[0]}:{local[1]}" if local else "?"
            text = f"read tcp {source}->{link.address}:{self.store.port}: i/o timeout"
            raise StoreError("timeout", text) from None
        except redis.exceptions.ResponseError as error:
            self._idle.append(link)
            raise StoreError("other", str(error)) from None
        except BaseException:
            await link.disconnect(nowait=True)
            raise
        self._idle.append(link)
        return reply

    def _not_authorized(self, command: tuple[Any, ...], reply: Exception) -> StoreError:
        if self.store.role == "memcached":
            return StoreError("rights", f"memcache: unexpected response to {command[0].lower()}")
        verb = _VERBS.get(command[0], "insert")
        collection = str(command[1]).removeprefix(f"{self.store.database}.").partition(":")[0]
        text = f'not authorized on {self.store.database} to execute command {{ {verb}: "{collection}" }}'
        text += f" (NOPERM {str(reply).removeprefix('NOPERM ')})"
        return StoreError("rights", text)

    async def _acquire(self) -> _Link:
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link
            await link.disconnect(nowait=True)
        if self.store.role == "memcached":
            return await self._dial()
        return await self._dial_until_reachable()

    async def _dial_until_reachable(self) -> _Link:
        deadline = time.monotonic() + _DATABASE_TIMEOUT_S
        while True:
            try:
                return await self._dial()
            except StoreError as error:
                if error.kind == "login":
                    raise
                left = deadline - time.monotonic()
                if left <= 0:
                    raise StoreError("unreachable", "no reachable servers") from None
            await asyncio.sleep(min(_REDIAL_S, left))

    async def _dial(self) -> _Link:
        link = _Link(
            self._names,
            self._local,
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
            raise StoreError("login", self._login_text()) from None
        except redis.exceptions.ResponseError as error:
            raise StoreError("other", str(error)) from None
        except (redis.exceptions.RedisError, OSError) as error:
            await link.disconnect(nowait=True)
            raise StoreError("unreachable", self._dial_text(error)) from None
        return link

    def _login_text(self) -> str:
        if self.store.role == "memcached":
            return "memcache: authentication failed"
        return "server returned error on SASL authentication step: Authentication failed."

    def _dial_text(self, error: BaseException) -> str:
        cause = error.__cause__ or error.__context__ or error
        address = f"{self._names.last.get(self.store.name, self.store.name)}:{self.store.port}"
        if isinstance(error, (TimeoutError, redis.exceptions.TimeoutError)):
            return f"memcache: connect timeout to {address}"
        return dial_error(cause, address)

    async def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)
