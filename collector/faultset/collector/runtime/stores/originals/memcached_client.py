"""Client of memcached by its own protocol: the library pymemcache, which waits, in threads."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from faultset.collector.runtime.http.client import MAX_AGE_S
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError
from faultset.collector.runtime.stores.originals.client import OriginalClient
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    from pymemcache.client.base import Client

T = TypeVar("T")
_TIMEOUT_S = 2.0
_THREADS = 64


class _NotConnectedError(Exception):
    """A connection that could not be made; the cause says why."""


class _Socket(socket.socket):
    """A socket that tells a failure to connect from any other."""

    def connect(self, address: Any, /) -> None:
        try:
            super().connect(address)
        except OSError as error:
            raise _NotConnectedError from error


class _Sockets:
    """Stands for the module `socket`: connections are made from the pod's own address."""

    def __init__(self, local: str | None):
        self._local = local

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def socket(self, *kind: Any) -> socket.socket:
        """Return a new socket."""
        made = _Socket(*kind)
        if self._local is not None:
            made.bind((self._local, 0))
        return made


class _Connection:
    """One connection, made with its first command."""

    def __init__(self, address: str, port: int, local: str | None):
        from pymemcache.client.base import Client

        self.address = address
        self.born = time.monotonic()
        self.local = "?"
        sockets: Any = _Sockets(local)
        self.client: Client = Client(
            (address, port),
            connect_timeout=_TIMEOUT_S,
            timeout=_TIMEOUT_S,
            no_delay=True,
            socket_module=sockets,
            default_noreply=False,
        )

    @property
    def usable(self) -> bool:
        """Whether it is young, and the server has not closed it."""
        sock = self.client.sock
        if sock is None or time.monotonic() - self.born > MAX_AGE_S:
            return False
        return not select.select([sock], [], [], 0)[0]

    def use(self, command: Callable[[Client], T]) -> T:
        """Run a command."""
        try:
            return command(self.client)
        finally:
            if self.client.sock is not None:
                self.local = "{}:{}".format(*self.client.sock.getsockname()[:2])

    def close(self) -> None:
        """Close it, whoever waits for it."""
        self.client.close()


class MemcachedClient(OriginalClient):
    """See `StoreClient`; connections live for five seconds at most."""

    def __init__(self, driver: StoreDriver, store: StoreAddress, context: ClientContext):
        super().__init__(driver, store, context)
        self._idle: deque[_Connection] = deque()
        self._threads: ThreadPoolExecutor | None = None

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command; raise StoreError."""
        await self._run("version", lambda client: client.version())

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of a cache."""
        found = await self._run("get", lambda client: client.get_many([*dict.fromkeys(keys)]))
        values: list[bytes | None] = [found.get(key) for key in keys]
        return [None if value is None else value.decode() for value in values]

    async def set_many(self, values: Mapping[str, str]) -> None:
        """Write values of a cache."""
        await self._run("set", lambda client: client.set_many({key: text.encode() for key, text in values.items()}))

    async def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def _run(self, name: str, command: Callable[[Client], T]) -> T:
        with self.measured(name):
            return await self._run_once(command)

    async def _run_once(self, command: Callable[[Client], T]) -> T:
        from pymemcache.exceptions import MemcacheError, MemcacheUnexpectedCloseError

        connection = await self._acquire()
        texts, place = self.context.texts, f"{connection.address}:{self.store.port}"
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=self.store.name)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, partial(connection.use, command))
        except _NotConnectedError as error:
            raise StoreError("unreachable", self._connection_text(error.__cause__, place)) from None
        except TimeoutError:
            raise StoreError("timeout", texts.read_timed_out(connection.local, place)) from None
        except (MemcacheUnexpectedCloseError, OSError):
            raise StoreError("broken", texts.connection_closed()) from None
        except MemcacheError as error:
            raise StoreError("other", f"memcache: {_text(error)}") from None
        except asyncio.CancelledError:
            connection.close()  # its thread may still wait for an answer
            raise
        self._idle.append(connection)
        return found

    async def _acquire(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        try:
            address = await self.context.names.address(self.store.name)
        except OSError as error:
            text = self._connection_text(error, f"{self.store.name}:{self.store.port}")
            raise StoreError("unreachable", text) from None
        return _Connection(address, self.store.port, self.context.local)

    def _connection_text(self, error: BaseException | None, place: str) -> str:
        if isinstance(error, TimeoutError):
            return f"memcache: connect timeout to {place}"
        return self.context.texts.connection_failed(error, place)


def _text(error: Exception) -> str:
    """Return what the library says: the server's words where it has any.

    >>> _text(ValueError(b"out of memory storing object"))
    'out of memory storing object'
    """
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text or type(error).__name__


def flush(address: str, port: int) -> None:
    """Empty a cache; raise PlatformError when it cannot be reached or refuses."""
    from pymemcache.exceptions import MemcacheError

    connection = _Connection(address, port, None)
    try:
        connection.use(lambda client: client.flush_all(noreply=False))
    except (MemcacheError, OSError, _NotConnectedError) as error:
        cause = error.__cause__ or error
        raise PlatformError(f"the store at {address}:{port} refused to empty-store: {cause}") from None
    finally:
        connection.close()
