"""The original PostgreSQL server: its driver and its administrator."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.processes import ShouldContinue, begin_work
from faultset.collector.runtime.stores.driver import (
    AdminAction,
    Credentials,
    StoreAccess,
    StoreAddress,
    StoreAdministrator,
    StoreClient,
    write_private_file,
)
from faultset.collector.runtime.stores.original_driver import (
    OriginalDriver,
    argv_as_user,
    argv_with_private_memory,
    file_size_limits,
    limit_file_size,
    process_tree,
    set_owner,
)
from faultset.collector.runtime.stores.postgresql_client import DATABASE, PostgresClient, quote_name
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    import asyncpg

_CLUSTER_FOLDER = "cluster"
_SETTINGS = {
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "superuser_reserved_connections": "1",
    "dynamic_shared_memory_type": "mmap",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "jit": "off",
}
"""Settings of a small server without background cleaning, which an episode of at most an hour does not need."""
_SETUP_TIMEOUT_S = 60.0
ADMINISTRATOR = "root"
SERVER_USER = "postgres"
"""Operating system user that runs the server if root starts it."""
LOG_SEGMENT_BYTES = 2**20
"""Size of a file of the write-ahead log; PostgreSQL allows no smaller one."""
_CONNECT_TIMEOUT_S = 10
_WRITE_PRIVILEGES = "INSERT, UPDATE, DELETE, TRUNCATE"
_COMPARE_PAIRS = """
SELECT count(*) FROM generate_series(1, 1000000) AS first, generate_series(1, 1000000) AS second
WHERE md5(first::text) = md5(second::text)
"""
"""Query that compares all pairs of rows until it times out."""
_FILL_STATEMENT = """
INSERT INTO {table} (key, document)
SELECT 'filling-' || lpad(number::text, 6, '0'), repeat('x', 1980) FROM generate_series(1, {rows}) AS number
"""
"""Statement that inserts rows of a quarter of a page each."""
_PAGE_BYTES = 8192


class OriginalPostgresDriver(OriginalDriver):
    """A PostgreSQL server with a table of keys and documents for each collection."""

    name = "original-postgresql"
    role = "postgresql"
    port = 5432
    keeps_data = True
    capabilities = frozenset({"accounts", "rights", "locks", "files", "connection-limit"})
    programs = ("postgres", "initdb")
    to_install = "postgresql"
    client_library = "asyncpg"

    def version(self) -> str:
        return " ".join(self.reported_version("postgres").replace("(PostgreSQL)", "").split())

    def is_prepared(self, folder: Path) -> bool:
        """Return whether a database cluster was completely created."""
        return (folder / _CLUSTER_FOLDER).is_dir()

    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Create a database cluster with the accounts; if this is interrupted, the next start repeats it.

        Raises
        ------
        PlatformError
            A program of the server fails.
        """
        draft, password = folder / "cluster.new", folder / "password"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        set_owner(draft, SERVER_USER)
        write_private_file(password, credentials.administrator)
        set_owner(password, SERVER_USER)
        try:
            accounts = ["-U", ADMINISTRATOR, "-A", "scram-sha-256", f"--pwfile={password}"]
            files = ["--no-sync", f"--wal-segsize={LOG_SEGMENT_BYTES // 2**20}", "-E", "UTF8", "--locale=C.UTF-8"]
            self._run("initdb", ["-D", str(draft), *accounts, *files])
        finally:
            password.unlink()
        single_user_options = ["--single", "-F", "-j", "-D", str(draft)]
        for database, statements in initial_statements(account, credentials):
            self._run(
                "postgres", [*single_user_options, database], "".join(f"{statement};\n\n" for statement in statements)
            )
        hosts_file = draft / "pg_hba.conf"
        hosts_file.write_text("host all all 0.0.0.0/0 scram-sha-256\n", encoding="ascii")
        draft.rename(folder / _CLUSTER_FOLDER)

    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server; `max_memory_kib` sets the size of its shared buffers."""
        settings = {**_SETTINGS, "listen_addresses": address, "port": str(self.port)}
        if max_memory_kib is not None:
            settings["shared_buffers"] = f"{max(128, max_memory_kib)}kB"
        if max_clients is not None:
            settings["max_connections"] = str(max_clients + int(settings["superuser_reserved_connections"]))
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        argv = argv_as_user([self.program("postgres"), "-D", str(folder / _CLUSTER_FOLDER), *options], SERVER_USER)
        return argv_with_private_memory(argv)

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        return PostgresClient(self, store, context)

    def administrator(self, access: StoreAccess) -> StoreAdministrator:
        return PostgresAdministrator(access)

    def _run(self, name: str, options: Sequence[str], statements: str = "") -> None:
        argv = argv_as_user([self.program(name), *options], SERVER_USER)
        result = subprocess.run(
            argv, input=statements, capture_output=True, text=True, timeout=_SETUP_TIMEOUT_S, cwd="/", check=False
        )
        # in single-user mode, the exit code is zero even if statements fail
        if result.returncode or "ERROR:" in result.stderr or "FATAL:" in result.stderr:
            lines = result.stderr.strip().splitlines() or result.stdout.strip().splitlines() or ["no message"]
            raise PlatformError(
                f"{name} cannot create the store's database: {lines[0]}; check that {name} works on this machine"
            )


T = TypeVar("T")


class PostgresAdministrator(StoreAdministrator):
    """Changes accounts, data and limits of an original PostgreSQL server; see `StoreAdministrator`."""

    system = "postgresql"

    def perform(self, action: AdminAction) -> None:
        """Run the statements of an action in one transaction."""
        account = self.access.account

        async def run(connection: asyncpg.Connection) -> None:
            exists = bool(await connection.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = $1", account))
            self.require_account(action, exists)
            statements = self._build_statements(action, exists)
            if action == "empty-store" and (tables := await _list_tables(connection)):
                statements = [f"TRUNCATE {', '.join(map(quote_name, tables))}"]
            async with connection.transaction():
                for statement in statements:
                    await connection.execute(statement)

        self._as_administrator(run, purpose=action)

    def _build_statements(self, action: AdminAction, exists: bool) -> list[str]:
        account, password = self.access.account, self.access.credentials.application
        role = quote_name(account)
        match action:
            case "grant-rights":
                return _build_grants(account)
            case "revoke-rights":
                return [
                    f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
                    f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}",
                    f"REVOKE ALL ON SCHEMA public FROM {role}",
                ]
            case "revoke-writing":
                return [
                    f"REVOKE {_WRITE_PRIVILEGES} ON ALL TABLES IN SCHEMA public FROM {role}",
                    f"REVOKE CREATE ON SCHEMA public FROM {role}",
                ]
            case "create-account":
                return [] if exists else [_create_role(account, password), *_build_grants(account)]
            case "remove-account":
                return exists * [
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = {_quote_text(account)}",
                    f"REASSIGN OWNED BY {role} TO {quote_name(ADMINISTRATOR)}",
                    f"DROP OWNED BY {role}",
                    f"DROP ROLE {role}",
                ]
            case "set-password":
                return [f"ALTER ROLE {role} PASSWORD {_quote_text(password)}"]
            case "require-password":
                return [f"ALTER ROLE {role} PASSWORD {_quote_text(secrets.token_hex())}"]
            case "empty-store":
                return []
            case "revoke-consuming":
                return self.cannot("messages")

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Repeatedly lock all tables of the application against reading and writing."""

        async def hold(connection: asyncpg.Connection) -> None:
            tables = ", ".join(quote_name(name) for name in await _list_tables(connection))
            async with connection.transaction():
                if tables:
                    await connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
                await connection.execute("SELECT pg_sleep($1)", on_ms / 1000)

        self._repeat(hold, purpose="lock", off_ms=off_ms, seconds=seconds, pid_file=pid_file)

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Repeatedly run a query without an index, which keeps a processor busy."""
        import asyncpg

        async def query(connection: asyncpg.Connection) -> None:
            await connection.execute(f"SET statement_timeout = {on_ms}")
            with contextlib.suppress(asyncpg.QueryCanceledError):
                await connection.execute(_COMPARE_PAIRS)

        self._repeat(query, purpose="report", off_ms=off_ms, seconds=seconds, pid_file=pid_file)

    def limit_files(self, leave: int) -> None:
        """Fill the pages of all tables, and limit the growth of their files to `leave` bytes.

        The rows that fill the pages are rolled back. They are invisible, but occupy space until they are vacuumed. The
        limit is never below the size of a file of the write-ahead log, because the server would then stop instead of
        refusing rows.
        """

        async def fill(connection: asyncpg.Connection) -> int:
            tables = await _list_tables(connection)
            if not tables:
                raise PlatformError(
                    "the application has no table whose file could be limited; try again after it has stored data"
                )
            largest = max([LOG_SEGMENT_BYTES, *[await _get_size(connection, table) for table in tables]])
            for table in tables:
                pages = (largest - await _get_size(connection, table)) // _PAGE_BYTES + 1
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute(_FILL_STATEMENT.format(table=quote_name(table), rows=4 * pages))
                await transaction.rollback()
            return max([await _get_size(connection, table) for table in tables])

        limit = self._as_administrator(fill, purpose="limit-files") + leave
        for pid in self._list_processes():
            limit_file_size(pid, str(limit), SERVER_USER)

    def free_files(self) -> None:
        """Restore the limit that the server started with, and vacuum the space of the rows that filled the pages."""
        for pid in self._list_processes():
            limit_file_size(pid, file_size_limits(pid)[1], SERVER_USER)

        async def collect(connection: asyncpg.Connection) -> None:
            for table in await _list_tables(connection):
                await connection.execute(f"VACUUM {quote_name(table)}")

        self._as_administrator(collect, purpose="free-files")

    def state(self, stream: str | None = None) -> dict[str, Any]:
        """Report what the server refuses to the application, by trying statements that change nothing."""
        import asyncpg

        async def write(connection: asyncpg.Connection) -> str:
            tables = await _list_tables(connection)
            try:
                for table in tables:
                    await connection.execute(f"DELETE FROM {quote_name(table)} WHERE false")
            except asyncpg.PostgresError as error:
                return str(error)
            may_create = await connection.fetchval("SELECT has_schema_privilege('public', 'CREATE')")
            return "" if may_create or tables else "permission denied for schema public"

        access = self.access
        refusal = self._as_account(access.account, access.credentials.application, write, purpose="state")
        limit, hard = file_size_limits(self._list_processes()[0])
        return {"write_refused": refusal, "consume_refused": "", "file_limit": None if limit == hard else int(limit)}

    def _list_processes(self) -> list[int]:
        async def read(connection: asyncpg.Connection) -> str:
            return str(await connection.fetchval("SELECT pg_read_file('postmaster.pid')"))

        return process_tree(int(self._as_administrator(read, purpose="state").split()[0]))

    def _repeat(
        self,
        use: Callable[[asyncpg.Connection], Awaitable[None]],
        *,
        purpose: str,
        off_ms: int,
        seconds: float,
        pid_file: Path,
    ) -> None:
        def work(should_continue: ShouldContinue) -> None:
            while should_continue():
                self._as_administrator(use, purpose=purpose)
                time.sleep(off_ms / 1000)

        begin_work(work, workers=1, seconds=seconds, pid_file=pid_file)

    def _as_administrator(self, use: Callable[[asyncpg.Connection], Awaitable[T]], *, purpose: str) -> T:
        return self._as_account(ADMINISTRATOR, self.access.credentials.administrator, use, purpose=purpose)

    def _as_account(
        self, account: str, password: str, use: Callable[[asyncpg.Connection], Awaitable[T]], *, purpose: str
    ) -> T:
        import asyncpg

        address, port = self.access.address, self.access.port

        async def run() -> T:
            connection = await asyncpg.connect(
                host=address,
                port=port,
                user=account,
                password=password,
                database=DATABASE,
                ssl=False,
                timeout=_CONNECT_TIMEOUT_S,
            )
            try:
                return await use(connection)
            finally:
                await connection.close()

        try:
            return asyncio.run(run())
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise PlatformError(f"the store at {address}:{port} could not perform {purpose}: {error}") from None


def initial_statements(account: str, credentials: Credentials) -> list[tuple[str, list[str]]]:
    """Return the statements that prepare a new database cluster, by database."""
    create = [f"CREATE DATABASE {DATABASE}", f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC"]
    return [
        ("postgres", [_create_role(account, credentials.application), *create]),
        (DATABASE, ["REVOKE ALL ON SCHEMA public FROM PUBLIC", *_build_grants(account)]),
    ]


def _create_role(account: str, password: str) -> str:
    return f"CREATE ROLE {quote_name(account)} LOGIN PASSWORD {_quote_text(password)}"


def _build_grants(account: str) -> list[str]:
    role = quote_name(account)
    return [
        f"GRANT CONNECT ON DATABASE {DATABASE} TO {role}",
        f"GRANT ALL ON SCHEMA public TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
    ]


async def _list_tables(connection: asyncpg.Connection) -> list[str]:
    """Return the names of the application's tables."""
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename")
    return [str(row["tablename"]) for row in rows]


async def _get_size(connection: asyncpg.Connection, table: str) -> int:
    """Return the size of a table in bytes, including unused space."""
    return int(await connection.fetchval("SELECT pg_relation_size($1::regclass)", quote_name(table)) or 0)


def _quote_text(text: str) -> str:
    """Quote a string for a statement.

    >>> _quote_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
