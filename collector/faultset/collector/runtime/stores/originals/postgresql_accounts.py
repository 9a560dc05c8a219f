"""What an administrator does to the accounts of PostgreSQL, in its own language."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from faultset.collector.runtime.stores.driver import AdminAction, Credentials
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")
ADMINISTRATOR = "root"
DATABASE = "application"
"""The database of the application's tables."""
LOG_SEGMENT_BYTES = 2**20
"""Size of a file of the write-ahead log, the smallest that there can be."""
_TIMEOUT_S = 10
_WRITING = "INSERT, UPDATE, DELETE, TRUNCATE"


def initial_statements(account: str, credentials: Credentials) -> list[tuple[str, list[str]]]:
    """Return what a new cluster of databases is told: each database with its statements."""
    role = f"CREATE ROLE {quoted(account)} LOGIN PASSWORD {literal(credentials.application)}"
    return [
        ("postgres", [role, f"CREATE DATABASE {DATABASE}", f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC"]),
        (DATABASE, ["REVOKE ALL ON SCHEMA public FROM PUBLIC", *_granted(account)]),
    ]


def administer(address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials) -> None:
    """Do something as administrator; raise PlatformError."""

    async def run(connection: asyncpg.Connection) -> None:
        is_there = await connection.fetchval("SELECT count(*) > 0 FROM pg_roles WHERE rolname = $1", account)
        if action == "create-account" and is_there:
            return
        if action not in ("create-account", "remove-account", "empty-store") and not is_there:
            raise PlatformError(f"the store at {address}:{port} has no account {account}; create it first")
        if action == "empty-store":
            tables = await application_tables(connection)
            statements = [f"TRUNCATE {', '.join(map(quoted, tables))}"] if tables else []
        elif action == "remove-account" and not is_there:
            return
        else:
            statements = _statements(action, account, credentials)
        async with connection.transaction():
            for statement in statements:
                await connection.execute(statement)

    as_administrator(address, port, credentials, run, what=action)


def _statements(action: AdminAction, account: str, credentials: Credentials) -> list[str]:
    role = quoted(account)
    match action:
        case "grant-rights":
            return _granted(account)
        case "revoke-rights":
            return [
                f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
                f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}",
                f"REVOKE ALL ON SCHEMA public FROM {role}",
            ]
        case "revoke-writing":
            return [
                f"REVOKE {_WRITING} ON ALL TABLES IN SCHEMA public FROM {role}",
                f"REVOKE CREATE ON SCHEMA public FROM {role}",
            ]
        case "create-account":
            return [f"CREATE ROLE {role} LOGIN PASSWORD {literal(credentials.application)}", *_granted(account)]
        case "remove-account":
            return [
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = {literal(account)}",
                f"REASSIGN OWNED BY {role} TO {quoted(ADMINISTRATOR)}",
                f"DROP OWNED BY {role}",
                f"DROP ROLE {role}",
            ]
        case "set-password":
            return [f"ALTER ROLE {role} PASSWORD {literal(credentials.application)}"]
        case "require-password":
            return [f"ALTER ROLE {role} PASSWORD {literal(secrets.token_hex())}"]
        case _:
            raise PlatformError(f"postgresql carries no messages, so that nobody can {action}; choose a broker")


def _granted(account: str) -> list[str]:
    role = quoted(account)
    return [
        f"GRANT CONNECT ON DATABASE {DATABASE} TO {role}",
        f"GRANT ALL ON SCHEMA public TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
    ]


async def application_tables(connection: asyncpg.Connection) -> list[str]:
    """Return the names of the application's tables."""
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename")
    return [str(row["tablename"]) for row in rows]


def as_administrator(
    address: str,
    port: int,
    credentials: Credentials,
    use: Callable[[asyncpg.Connection], Awaitable[T]],
    *,
    what: str,
) -> T:
    """Do something on a connection of the administrator; raise PlatformError when the server refuses."""
    return as_account(address, port, ADMINISTRATOR, credentials.administrator, use, what=what)


def as_account(
    address: str,
    port: int,
    account: str,
    password: str,
    use: Callable[[asyncpg.Connection], Awaitable[T]],
    *,
    what: str,
) -> T:
    """Do something on a connection of an account; raise PlatformError when the server refuses."""
    import asyncpg

    async def run() -> T:
        connection = await asyncpg.connect(
            host=address, port=port, user=account, password=password, database=DATABASE, ssl=False, timeout=_TIMEOUT_S
        )
        try:
            return await use(connection)
        finally:
            await connection.close()

    try:
        return asyncio.run(run())
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise PlatformError(f"the store at {address}:{port} refused to {what}: {error}") from None


def quoted(name: str) -> str:
    """Return a name as it stands in a statement.

    >>> quoted('od"d')
    '"od""d"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as it stands in a statement.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
