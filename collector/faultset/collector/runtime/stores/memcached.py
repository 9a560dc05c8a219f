"""The original memcached: its driver, a client of its text protocol, and its administrator."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.stores.driver import (
    AdminAction,
    Credentials,
    StoreAccess,
    StoreAddress,
    StoreAdministrator,
    StoreClient,
    StoreError,
)
from faultset.collector.runtime.stores.original_driver import OriginalDriver, argv_as_user
from faultset.core.errors import PlatformError

T = TypeVar("T")
_MEMORY_MIB = 128
_THREADS = 2
_RESERVED_CONNECTIONS = 16
"""Connections that a server with two threads reserves."""
_TIMEOUT_S = 2.0
_MAX_KEY_BYTES = 250


class OriginalMemcachedDriver(OriginalDriver):
    """A memcached server without accounts or locks, which evicts values when it is full."""

    name = "original-memcached"
    role = "memcached"
    port = 11211
    keeps_data = False
    capabilities = frozenset({"connection-limit"})
    programs = ("memcached",)
    to_install = "memcached"

    def version(self) -> str:
        return self.reported_version("memcached")

    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Do nothing, because the server needs no files."""

    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        memory_mib = _MEMORY_MIB if max_memory_kib is None else max(1, max_memory_kib // 1024)
        options = ["-l", address, "-p", str(self.port), "-U", "0", "-m", str(memory_mib), "-t", str(_THREADS)]
        if max_clients is not None:
            options += ["-c", str(_RESERVED_CONNECTIONS + max_clients)]
        return argv_as_user([self.program("memcached"), *options], "memcache")

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        return MemcachedClient(self, store, context)

    def administrator(self, access: StoreAccess) -> StoreAdministrator:
        return MemcachedAdministrator(access)


class _UnexpectedLineError(Exception):
    """The server responded to a command with an unexpected line, such as an error."""


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer
        self.born = time.monotonic()
        self.source = "{}:{}".format(*writer.get_extra_info("sockname")[:2])
        self.target = "{}:{}".format(*writer.get_extra_info("peername")[:2])

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof()

    async def close(self) -> None:
        self._writer.close()

    async def get(self, keys: Sequence[str]) -> dict[str, str]:
        self._writer.write(f"get {' '.join(keys)}\r\n".encode())
        values: dict[str, str] = {}
        while (line := await self._read_line()) != "END":
            match line.split():
                case ["VALUE", key, _, size]:
                    data = await self._reader.readexactly(int(size) + 2)
                    values[key] = data[:-2].decode()
                case _:
                    raise _UnexpectedLineError(line)
        return values

    async def set(self, values: Mapping[str, str]) -> None:
        for key, text in values.items():
            data = text.encode()
            self._writer.write(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(data), data))
        for _ in values:
            if (line := await self._read_line()) != "STORED":
                raise _UnexpectedLineError(line)

    async def version(self) -> None:
        self._writer.write(b"version\r\n")
        if not (line := await self._read_line()).startswith("VERSION"):
            raise _UnexpectedLineError(line)

    async def _read_line(self) -> str:
        return (await self._reader.readuntil(b"\r\n"))[:-2].decode(errors="replace")


class MemcachedClient(StoreClient[_Connection]):
    """See `StoreClient`; failures have the messages of gomemcache."""

    async def log_in(self) -> None:
        """Open a connection and check that the server responds."""
        await self._run("version", _Connection.version)

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        _check_keys(keys)
        values = await self._run("get", lambda connection: connection.get([*dict.fromkeys(keys)]))
        return [values.get(key) for key in keys]

    async def set_many(self, values: Mapping[str, str]) -> None:
        _check_keys(values)
        await self._run("set", lambda connection: connection.set(values))

    async def _run(self, name: str, command: Callable[[_Connection], Awaitable[T]]) -> T:
        with self.measure(name):
            connection, texts = await self.acquire(), self.context.texts
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    result = await command(connection)
            except BaseException as error:
                await connection.close()
                match error:
                    case TimeoutError():
                        text = texts.read_timed_out(connection.source, connection.target)
                        raise StoreError("timeout", text) from None
                    case OSError() | EOFError():
                        raise StoreError("broken", texts.connection_closed()) from None
                    case _UnexpectedLineError():
                        text = f'memcache: unexpected line in response to "{name}": {json.dumps(str(error))}'
                        raise StoreError("other", text) from None
                raise
            self.idle.append(connection)
            return result

    async def dial(self) -> _Connection:
        local: Any = None if self.context.local is None else (self.context.local, 0)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                address = await self.context.names.address(self.store.name)
                streams = await asyncio.open_connection(address, self.store.port, local_addr=local)
        except TimeoutError:
            raise StoreError("unreachable", f"memcache: connect timeout to {self.endpoint}") from None
        except OSError as error:
            text = self.context.texts.connection_failed(error, self.endpoint)
            raise StoreError("unreachable", text) from None
        return _Connection(*streams)


def _check_keys(keys: Sequence[str] | Mapping[str, str]) -> None:
    """Raise StoreError for a key that the protocol does not allow."""
    for key in keys:
        if len(key.encode()) > _MAX_KEY_BYTES or any(letter <= " " or letter == "\x7f" for letter in key):
            raise StoreError("other", "malformed: key is too long or contains invalid characters")


class MemcachedAdministrator(StoreAdministrator):
    """See `StoreAdministrator`; memcached has no permissions."""

    system = "memcached"

    def perform(self, action: AdminAction) -> None:
        """Empty the cache; raise PlatformError for any other action."""
        if action != "empty-store":
            self.cannot(f"accounts, which {action} needs")
        address, port = self.access.address, self.access.port
        try:
            with socket.create_connection((address, port), timeout=_TIMEOUT_S) as connection:
                connection.sendall(b"flush_all\r\n")
                line = connection.makefile("rb").readline()
        except OSError as error:
            raise PlatformError(f"the store at {address}:{port} could not perform {action}: {error}") from None
        if line != b"OK\r\n":
            reason = line.decode(errors="replace").strip() or "the connection was closed"
            raise PlatformError(f"the store at {address}:{port} could not perform {action}: {reason}")

    def state(self, stream: str | None = None) -> dict[str, Any]:
        """Return a state in which nothing is refused."""
        return {"write_refused": "", "consume_refused": "", "file_limit": None}
