"""Client of PostgreSQL by its own protocol, with the library asyncpg."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from faultset.collector.runtime.http.client import MAX_AGE_S
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError
from faultset.collector.runtime.stores.originals.client import OriginalClient
from faultset.collector.runtime.stores.originals.postgresql_accounts import quoted
from faultset.collector.runtime.stores.originals.source_address import SourceAddressLoop

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")
_TIMEOUT_S = 15.0


class _PostgresConnection:
    """One connection, and since when there is one."""

    def __init__(self, connection: asyncpg.Connection, address: str):
        self.connection, self.address = connection, address
        self.born = time.monotonic()

    @property
    def usable(self) -> bool:
        """Whether it is young and open."""
        return not self.connection.is_closed() and time.monotonic() - self.born < MAX_AGE_S


class PostgresClient(OriginalClient):
    """See `StoreClient`; connections live for five seconds at most.

    A collection is a table `key, document`, of an appended one with a number that orders the documents of a key; a
    table is made when it is used for the first time.
    """

    def __init__(self, driver: StoreDriver, store: StoreAddress, context: ClientContext, *, database: str):
        super().__init__(driver, store, context)
        self._database = database
        self._idle: deque[_PostgresConnection] = deque()

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command; raise StoreError."""
        self._idle.append(await self._acquire())

    async def is_empty(self, collection: str) -> bool:
        """Say whether a collection has no document."""
        table = _table(collection)
        return not await self._fetch_value(collection, f"SELECT EXISTS (SELECT 1 FROM {table})")

    async def has_appended(self, collection: str, key: str) -> bool:
        """Say whether there is a document under a key of an appended collection."""
        sql = f"SELECT EXISTS (SELECT 1 FROM {_table(collection)} WHERE key = $1)"
        return bool(await self._fetch_value(collection, sql, key, appended=True))

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        """Insert documents by key."""
        sql = (
            f"INSERT INTO {_table(collection)} (key, document) SELECT * FROM unnest($1::text[], $2::text[]) "
            "ON CONFLICT (key) DO UPDATE SET document = excluded.document"
        )
        await self._use("INSERT", collection, lambda one: one.execute(sql, [*documents], [*documents.values()]))

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        """Add documents, each to those of its key."""
        sql = f"INSERT INTO {_table(collection)} (key, document) SELECT * FROM unnest($1::text[], $2::text[])"
        keys, texts = [key for key, _ in documents], [text for _, text in documents]
        await self._use("INSERT", collection, lambda one: one.execute(sql, keys, texts), appended=True)

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys."""
        sql = f"SELECT key, document FROM {_table(collection)} WHERE key = ANY($1::text[])"
        rows = await self._use("SELECT", collection, lambda one: one.fetch(sql, [*keys]))
        found = {row["key"]: row["document"] for row in rows}
        return [found.get(key) for key in keys]

    async def find_all(self, collection: str) -> list[str]:
        """Return all documents of a collection."""
        sql = f"SELECT document FROM {_table(collection)}"
        return [row["document"] for row in await self._use("SELECT", collection, lambda one: one.fetch(sql))]

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        """Return the documents of a key, or the newest of them, oldest first."""
        sql = f"SELECT document FROM {_table(collection)} WHERE key = $1 ORDER BY number DESC LIMIT $2"
        rows = await self._use("SELECT", collection, lambda one: one.fetch(sql, key, newest), appended=True)
        return [row["document"] for row in reversed(rows)]

    async def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().connection.terminate()

    async def _fetch_value(self, collection: str, sql: str, *arguments: Any, appended: bool = False) -> Any:
        return await self._use("SELECT", collection, lambda one: one.fetchval(sql, *arguments), appended=appended)

    async def _use(
        self,
        name: str,
        collection: str,
        command: Callable[[asyncpg.Connection], Awaitable[T]],
        *,
        appended: bool = False,
    ) -> T:
        import asyncpg

        async def run(connection: asyncpg.Connection) -> T:
            try:
                return await command(connection)
            except asyncpg.UndefinedTableError:
                await connection.execute(_made_table(collection, appended=appended))
            return await command(connection)

        with self.measured(name):
            return await self._run(run)

    async def _run(self, command: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        import asyncpg

        held, texts = await self._acquire(), self.context.texts
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = await command(held.connection)
        except asyncpg.InsufficientPrivilegeError as error:
            self._idle.append(held)
            raise StoreError("rights", _text(error)) from None
        except _broken_connections() as error:
            held.connection.terminate()
            if isinstance(error, TimeoutError):
                place = f"{held.address}:{self.store.port}"
                raise StoreError("timeout", texts.read_timed_out(self.context.local or "?", place)) from None
            raise StoreError("broken", _text(error)) from None
        except asyncpg.PostgresError as error:
            self._idle.append(held)
            raise StoreError("other", _text(error)) from None
        except BaseException:
            held.connection.terminate()
            raise
        self._idle.append(held)
        return found

    async def _acquire(self) -> _PostgresConnection:
        while self._idle:
            held = self._idle.pop()
            if held.usable:
                return held
            held.connection.terminate()
        return await self._dial()

    async def _dial(self) -> _PostgresConnection:
        import asyncpg

        store, loop = self.store, asyncio.get_running_loop()
        wait_s = _TIMEOUT_S if store.connect_timeout_s is None else store.connect_timeout_s
        given: Any = loop if self.context.local is None else SourceAddressLoop(loop, self.context.local)
        try:
            address = await self.context.names.address(store.name)
            made = await asyncpg.connect(
                host=address,
                port=store.port,
                user=store.account.username,
                password=store.account.password,
                database=self._database,
                ssl=False,
                timeout=math.ceil(wait_s),
                statement_cache_size=0,
                loop=given,
            )
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidPasswordError) as error:
            raise StoreError("login", _text(error)) from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreError("other", _text(error)) from None
        except TimeoutError:
            raise StoreError("unreachable", "The operation has timed out.") from None
        except OSError as error:
            place = f"{self.context.names.last.get(store.name, store.name)}:{store.port}"
            raise StoreError("unreachable", self.context.texts.connection_failed(error, place)) from None
        return _PostgresConnection(made, address)


def _broken_connections() -> tuple[type[Exception], ...]:
    """Return what is raised on a connection that is of no more use; the last but one where it ended just before."""
    import asyncpg

    ended = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError)
    return (*ended, asyncpg.InternalClientError, OSError)


def _table(collection: str) -> str:
    return f"public.{quoted(collection)}"


def _made_table(collection: str, *, appended: bool) -> str:
    table = _table(collection)
    if not appended:
        return f"CREATE TABLE IF NOT EXISTS {table} (key text PRIMARY KEY, document text NOT NULL)"
    index = quoted(f"{collection}_key")
    return (
        f"CREATE TABLE IF NOT EXISTS {table} (number bigserial, key text NOT NULL, document text NOT NULL); "
        f"CREATE INDEX IF NOT EXISTS {index} ON {table} (key, number)"
    )


def _text(error: BaseException) -> str:
    """Return the server's code and words, as clients show them."""
    code = getattr(error, "sqlstate", None)
    first = str(error).partition("\n")[0]
    return f"{code}: {first}" if code else first or type(error).__name__
