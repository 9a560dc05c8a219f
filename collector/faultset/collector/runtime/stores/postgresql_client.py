"""Client of the original PostgreSQL, with the library asyncpg."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from faultset.collector.runtime.stores.driver import StoreClient, StoreError

if TYPE_CHECKING:
    import asyncpg


T = TypeVar("T")
DATABASE = "application"
"""Name of the database with the application's tables."""
_TIMEOUT_S = 15.0


class _PodLoop:
    """An event loop that connects from the pod's address, for which asyncpg has no option."""

    def __init__(self, loop: asyncio.AbstractEventLoop, local: str):
        self._loop, self._local = loop, local

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def create_connection(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        """Return a coroutine that connects."""
        return self._loop.create_connection(factory, host, port, local_addr=(self._local, 0), **options)


class _PostgresConnection:
    def __init__(self, connection: asyncpg.Connection):
        self.connection = connection
        self.born = time.monotonic()

    @property
    def is_open(self) -> bool:
        return not self.connection.is_closed()

    async def close(self) -> None:
        self.connection.terminate()


class PostgresClient(StoreClient[_PostgresConnection]):
    """See `StoreClient`.

    A collection is a table with the columns `key` and `document`. The table of an append-only collection also has a
    number that orders the documents of a key. A table is created on first use.
    """

    async def is_empty(self, collection: str) -> bool:
        sql = f"SELECT EXISTS (SELECT 1 FROM {_quote_table(collection)})"
        return not await self._use("SELECT", collection, lambda session: session.fetchval(sql))

    async def has_appended(self, collection: str, key: str) -> bool:
        sql = f"SELECT EXISTS (SELECT 1 FROM {_quote_table(collection)} WHERE key = $1)"
        return bool(await self._use("SELECT", collection, lambda session: session.fetchval(sql, key), appended=True))

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        sql = (
            f"INSERT INTO {_quote_table(collection)} (key, document) SELECT * FROM unnest($1::text[], $2::text[]) "
            "ON CONFLICT (key) DO UPDATE SET document = excluded.document"
        )
        await self._use("INSERT", collection, lambda session: session.execute(sql, [*documents], [*documents.values()]))

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        sql = f"INSERT INTO {_quote_table(collection)} (key, document) SELECT * FROM unnest($1::text[], $2::text[])"
        keys, texts = [key for key, _ in documents], [text for _, text in documents]
        await self._use("INSERT", collection, lambda session: session.execute(sql, keys, texts), appended=True)

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        sql = f"SELECT key, document FROM {_quote_table(collection)} WHERE key = ANY($1::text[])"
        rows = await self._use("SELECT", collection, lambda session: session.fetch(sql, [*keys]))
        documents = {row["key"]: row["document"] for row in rows}
        return [documents.get(key) for key in keys]

    async def find_all(self, collection: str) -> list[str]:
        sql = f"SELECT document FROM {_quote_table(collection)}"
        return [row["document"] for row in await self._use("SELECT", collection, lambda session: session.fetch(sql))]

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        sql = f"SELECT document FROM {_quote_table(collection)} WHERE key = $1 ORDER BY number DESC LIMIT $2"
        rows = await self._use("SELECT", collection, lambda session: session.fetch(sql, key, newest), appended=True)
        return [row["document"] for row in reversed(rows)]

    async def _use(
        self,
        name: str,
        collection: str,
        command: Callable[[asyncpg.Connection], Awaitable[T]],
        *,
        appended: bool = False,
    ) -> T:
        """Run a command on a connection; create the table of the collection if it does not exist."""
        import asyncpg

        async def run(connection: asyncpg.Connection) -> T:
            try:
                return await command(connection)
            except asyncpg.UndefinedTableError:
                await connection.execute(_create_table(collection, appended=appended))
            return await command(connection)

        # exceptions after which a connection is unusable
        connection_errors = (
            asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError,
            asyncpg.InternalClientError, OSError,
        )  # fmt: skip
        with self.measure(name):
            session, texts = await self.acquire(), self.context.texts
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    result = await run(session.connection)
            except connection_errors as error:
                await session.close()
                if isinstance(error, TimeoutError):
                    text = texts.read_timed_out(self.context.local or "?", self.endpoint)
                    raise StoreError("timeout", text) from None
                raise StoreError("broken", _format_error(error)) from None
            except asyncpg.PostgresError as error:
                self.idle.append(session)
                kind = "rights" if isinstance(error, asyncpg.InsufficientPrivilegeError) else "other"
                raise StoreError(kind, _format_error(error)) from None
            except BaseException:
                await session.close()
                raise
            self.idle.append(session)
            return result

    async def dial(self) -> _PostgresConnection:
        import asyncpg

        store, loop = self.store, asyncio.get_running_loop()
        wait_s = _TIMEOUT_S if store.connect_timeout_s is None else store.connect_timeout_s
        pod_loop: Any = loop if self.context.local is None else _PodLoop(loop, self.context.local)
        try:
            connection = await asyncpg.connect(
                host=await self.context.names.address(store.name),
                port=store.port,
                user=store.username,
                password=store.password,
                database=DATABASE,
                ssl=False,
                timeout=math.ceil(wait_s),
                statement_cache_size=0,
                loop=pod_loop,
            )
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidPasswordError) as error:
            raise StoreError("login", _format_error(error)) from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreError("other", _format_error(error)) from None
        except TimeoutError:
            raise StoreError("unreachable", "The operation has timed out.") from None
        except OSError as error:
            raise StoreError("unreachable", self.context.texts.connection_failed(error, self.endpoint)) from None
        return _PostgresConnection(connection)


def quote_name(name: str) -> str:
    """Quote a name for a statement.

    >>> quote_name('od"d')
    '"od""d"'
    """
    return '"' + name.replace('"', '""') + '"'


def _quote_table(collection: str) -> str:
    return f"public.{quote_name(collection)}"


def _create_table(collection: str, *, appended: bool) -> str:
    table = _quote_table(collection)
    if not appended:
        return f"CREATE TABLE IF NOT EXISTS {table} (key text PRIMARY KEY, document text NOT NULL)"
    index = quote_name(f"{collection}_key")
    return (
        f"CREATE TABLE IF NOT EXISTS {table} (number bigserial, key text NOT NULL, document text NOT NULL); "
        f"CREATE INDEX IF NOT EXISTS {index} ON {table} (key, number)"
    )


def _format_error(error: BaseException) -> str:
    """Return the server's error code and message, as clients show them."""
    code = getattr(error, "sqlstate", None)
    first = str(error).partition("\n")[0]
    return f"{code}: {first}" if code else first or type(error).__name__
