"""The administrator of a PostgreSQL, by its own means: locks of tables, long queries, and limits of its files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.process_limits import file_size_limits, limit_file_size
from faultset.collector.runtime.administration.server_processes import process_tree
from faultset.collector.runtime.administration.store_administration import StoreAdministration
from faultset.collector.runtime.background.processes import IsWanted, begin_work
from faultset.collector.runtime.stores.originals.postgresql import SERVER_USER
from faultset.collector.runtime.stores.originals.postgresql_accounts import (
    LOG_SEGMENT_BYTES,
    application_tables,
    as_account,
    as_administrator,
    quoted,
)
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    import asyncpg

_COMPARE_PAIRS = """
SELECT count(*) FROM generate_series(1, 1000000) AS first, generate_series(1, 1000000) AS second
WHERE md5(first::text) = md5(second::text)
"""
"""Compares everything with everything; it ends when it has taken the time that it may take."""

_FILL = """
INSERT INTO {table} (key, document)
SELECT 'filling-' || lpad(number::text, 6, '0'), repeat('x', 1980) FROM generate_series(1, {rows}) AS number
"""
"""Four rows fill a page, which leaves no room for others."""
_PAGE_BYTES = 8192


class PostgresAdministration(StoreAdministration):
    """See `StoreAdministration`."""

    system = "postgresql"

    def __init__(self, access: StoreAccess):
        self._access = access

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Take all tables of the application in the mode that lets nobody read or write."""

        async def hold(connection: asyncpg.Connection) -> None:
            tables = ", ".join(quoted(name) for name in await application_tables(connection))
            async with connection.transaction():
                if tables:
                    await connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
                await connection.execute("SELECT pg_sleep($1)", on_ms / 1000)

        self._begin("lock", hold, off_ms=off_ms, seconds=seconds, pid_file=pid_file)

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Run a query without an index, which keeps a processor busy for a time."""
        import asyncpg

        async def ask(connection: asyncpg.Connection) -> None:
            await connection.execute(f"SET statement_timeout = {on_ms}")
            with contextlib.suppress(asyncpg.QueryCanceledError):
                await connection.execute(_COMPARE_PAIRS)

        self._begin("report", ask, off_ms=off_ms, seconds=seconds, pid_file=pid_file)

    def limit_files(self, leave: int) -> None:
        """Fill the pages that tables have, and let their files grow by so many bytes and no more.

        The rows that fill them are rolled back, so that nobody sees them, but their room is taken until it is
        collected. No limit can be below the size of a file of the write-ahead log: the server would end rather than
        refuse rows.
        """

        async def fill(connection: asyncpg.Connection) -> int:
            tables = await application_tables(connection)
            if not tables:
                raise PlatformError("the application has no table yet, whose file could be limited; try again later")
            largest = max([LOG_SEGMENT_BYTES, *[await _size(connection, table) for table in tables]])
            for table in tables:
                pages = (largest - await _size(connection, table)) // _PAGE_BYTES + 1
                filling = connection.transaction()
                await filling.start()
                await connection.execute(_FILL.format(table=quoted(table), rows=4 * pages))
                await filling.rollback()
            return max([await _size(connection, table) for table in tables])

        limit = self._as_administrator(fill, what="limit-files") + leave
        for pid in self._processes():
            limit_file_size(pid, str(limit), SERVER_USER)

    def free_files(self) -> None:
        """Let files grow as far as they might at the server's start, and collect the room that was taken."""
        for pid in self._processes():
            limit_file_size(pid, file_size_limits(pid)[1], SERVER_USER)

        async def collect(connection: asyncpg.Connection) -> None:
            for table in await application_tables(connection):
                await connection.execute(f"VACUUM {quoted(table)}")

        self._as_administrator(collect, what="free-files")

    def state(self, stream: str | None) -> dict[str, Any]:
        """Try a statement that changes nothing, as the application."""
        import asyncpg

        async def write(connection: asyncpg.Connection) -> str:
            tables = await application_tables(connection)
            try:
                for table in tables:
                    await connection.execute(f"DELETE FROM {quoted(table)} WHERE false")
            except asyncpg.PostgresError as error:
                return str(error)
            may = await connection.fetchval("SELECT has_schema_privilege('public', 'CREATE')")
            return "" if may or tables else "permission denied for schema public"

        access = self._access
        refused = as_account(
            access.address, access.port, access.account, access.credentials.application, write, what="state"
        )
        limit, most = file_size_limits(self._processes()[0])
        return {
            "write_refused": refused,
            "consume_refused": "",
            "file_limit": None if limit == most else int(limit),
        }

    def _processes(self) -> list[int]:
        """Return the processes of the server, the one first from which all others come."""

        async def read(connection: asyncpg.Connection) -> str:
            return str(await connection.fetchval("SELECT pg_read_file('postmaster.pid')"))

        return process_tree(int(self._as_administrator(read, what="state").split()[0]))

    def _begin(
        self,
        what: str,
        use: Callable[[asyncpg.Connection], Awaitable[None]],
        *,
        off_ms: int,
        seconds: float,
        pid_file: Path,
    ) -> None:
        def work(is_wanted: IsWanted) -> None:
            while is_wanted():
                self._as_administrator(use, what=what)
                time.sleep(off_ms / 1000)

        begin_work(work, workers=1, seconds=seconds, pid_file=pid_file)

    def _as_administrator(self, use: Callable[[asyncpg.Connection], Awaitable[Any]], *, what: str) -> Any:
        access = self._access
        return as_administrator(access.address, access.port, access.credentials, use, what=what)


async def _size(connection: asyncpg.Connection, table: str) -> int:
    """Return how many bytes the rows of a table take, used or not."""
    return int(await connection.fetchval("SELECT pg_relation_size($1::regclass)", quoted(table)) or 0)
