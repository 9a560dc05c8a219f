"""What an administrator does to the accounts of a MongoDB, by its own commands."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from faultset.collector.runtime.stores.driver import AdminAction, Credentials
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    import pymongo
    from pymongo.database import Database

ADMINISTRATOR = "root"
ACCOUNTS_DATABASE = "admin"
"""The database that has the accounts."""
MECHANISM = "SCRAM-SHA-256"
_OWN_DATABASES = frozenset({ACCOUNTS_DATABASE, "config", "local"})
_TIMEOUT_S = 10.0
_ALL = [{"role": "readWriteAnyDatabase", "db": ACCOUNTS_DATABASE}]
_READING = [{"role": "readAnyDatabase", "db": ACCOUNTS_DATABASE}]


def make_accounts(socket: str, account: str, credentials: Credentials, *, has_roles: bool) -> None:
    """Make the accounts of a server that has just started, and asks nobody for a password where it knows roles."""
    password = None if has_roles else credentials.administrator
    with connected(
        f"mongodb://{quote(socket, safe='')}", None, ADMINISTRATOR, password, what="make accounts"
    ) as client:
        admin = client[ACCOUNTS_DATABASE]
        if has_roles:
            admin.command("createUser", ADMINISTRATOR, pwd=credentials.administrator, roles=["root"])
        admin.command("createUser", account, pwd=credentials.application, roles=_ALL if has_roles else [])


def administer(
    address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials, has_roles: bool
) -> None:
    """Do something as administrator; raise PlatformError."""
    with connected(address, port, ADMINISTRATOR, credentials.administrator, what=action) as client:
        admin = client[ACCOUNTS_DATABASE]
        if action == "empty-store":
            for name in application_databases(client):
                client.drop_database(name)
            return
        is_there = bool(admin.command("usersInfo", account)["users"])
        if action == "create-account":
            if not is_there:
                admin.command("createUser", account, pwd=credentials.application, roles=_ALL if has_roles else [])
        elif action == "remove-account":
            if is_there:
                admin.command("dropUser", account)
        elif not is_there:
            raise PlatformError(f"the store at {address}:{port} has no account {account}; create it first")
        else:
            _change(admin, action, account, credentials, has_roles=has_roles)


def _change(
    admin: Database[dict[str, Any]], action: AdminAction, account: str, credentials: Credentials, *, has_roles: bool
) -> None:
    match action:
        case "set-password":
            admin.command("updateUser", account, pwd=credentials.application)
        case "require-password":
            admin.command("updateUser", account, pwd=secrets.token_hex())
        case "grant-rights" | "revoke-rights" | "revoke-writing" if not has_roles:
            raise PlatformError(f"ferretdb has no roles, so that nobody can {action}; install mongod")
        case "grant-rights":
            admin.command("grantRolesToUser", account, roles=_ALL)
        case "revoke-rights":
            admin.command("revokeRolesFromUser", account, roles=[*_ALL, *_READING])
        case "revoke-writing":
            admin.command("grantRolesToUser", account, roles=_READING)
            admin.command("revokeRolesFromUser", account, roles=_ALL)
        case _:
            raise PlatformError(f"mongodb carries no messages, so that nobody can {action}; choose a broker")


def application_databases(client: pymongo.MongoClient[dict[str, Any]]) -> list[str]:
    """Return the names of the databases that are the application's."""
    return [name for name in client.list_database_names() if name not in _OWN_DATABASES]


@contextlib.contextmanager
def connected(
    host: str, port: int | None, account: str, password: str | None, *, what: str
) -> Iterator[pymongo.MongoClient[dict[str, Any]]]:
    """Yield a client of an account, without a login where there is no password; raise PlatformError for refusals.

    Parameters
    ----------
    host
        Address, or a URI.
    """
    import pymongo
    from pymongo.errors import PyMongoError

    limit_ms = round(1000 * _TIMEOUT_S)
    options: dict[str, Any] = {
        "serverSelectionTimeoutMS": limit_ms,
        "connectTimeoutMS": limit_ms,
        "socketTimeoutMS": limit_ms,
        "directConnection": True,
        "retryWrites": False,
    }
    if password is not None:
        options |= {"username": account, "password": password}
        options |= {"authSource": ACCOUNTS_DATABASE, "authMechanism": MECHANISM}
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(host, port, **options)
    try:
        yield client
    except PyMongoError as error:
        place = host if port is None else f"{host}:{port}"
        raise PlatformError(f"the store at {place} refused to {what}: {refusal_text(error)}") from None
    finally:
        client.close()


def refusal_text(error: Exception) -> str:
    """Return the server's own words, without what the library adds to them."""
    details: Any = getattr(error, "details", None) or {}
    failed: Any = details.get("writeErrors") or [details]
    return str(failed[0].get("errmsg") or error).partition("\n")[0]
