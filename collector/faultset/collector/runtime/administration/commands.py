"""`faultset-administer DRIVER VERB`: what an administrator does inside the pod of a store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.memcached_store import MemcachedAdministration
from faultset.collector.runtime.administration.postgresql_store import PostgresAdministration
from faultset.collector.runtime.administration.redis_store import RedisAdministration
from faultset.collector.runtime.administration.store_administration import StoreAdministration
from faultset.collector.runtime.background.processes import running_work
from faultset.collector.runtime.stores.drivers import STORE_DRIVERS, store_driver
from faultset.collector.runtime.stores.originals.memcached import OriginalMemcachedDriver
from faultset.collector.runtime.stores.originals.postgresql import OriginalPostgresDriver
from faultset.collector.runtime.stores.server import store_address, store_credentials
from faultset.core.errors import FaultsetError, PlatformError


def main(argv: Sequence[str] | None = None) -> int:
    """Do one thing; return the exit code."""
    given = _parser().parse_args(argv)
    import redis

    try:
        account = store_driver(given.driver).account_name(password=given.auth)
        access = StoreAccess(store_address(), given.port, account, store_credentials())
        _act(access, given)
    except (redis.RedisError, OSError) as error:
        failure = PlatformError(f"the store refused to {given.verb}: {error}")
        print(f"Error: {failure}", file=sys.stderr)
        return failure.exit_code
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _act(access: StoreAccess, given: argparse.Namespace) -> None:
    administration = _administration(given.driver, access)
    match given.verb:
        case "lock" | "report":
            begin = administration.lock if given.verb == "lock" else administration.report
            begin(on_ms=given.on_ms, off_ms=given.off_ms, seconds=given.seconds, pid_file=given.pid_file)
        case "limit-files":
            administration.limit_files(given.leave)
        case "free-files":
            administration.free_files()
        case "publish-unreadable":
            administration.publish_unreadable(given.stream)
        case "remove-unreadable":
            administration.remove_unreadable(given.stream)
        case _:
            found = administration.state(given.stream)
            if given.pid_file is not None:
                found["working"] = bool(running_work(given.pid_file))
            print(json.dumps(found))


def _administration(driver: str, access: StoreAccess) -> StoreAdministration:
    match store_driver(driver):
        case OriginalPostgresDriver():
            return PostgresAdministration(access)
        case OriginalMemcachedDriver():
            return MemcachedAdministration()
        case _:
            return RedisAdministration(access)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="faultset-administer", description="Act as administrator of a store.")
    parser.add_argument("driver", choices=STORE_DRIVERS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--auth", action="store_true", help="as the store was started")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, text in (
        ("lock", "hold everything locked, again and again"),
        ("report", "run a long query, again and again"),
    ):
        job = verbs.add_parser(name, help=text)
        job.add_argument("--on-ms", type=int, required=True)
        job.add_argument("--off-ms", type=int, required=True)
        job.add_argument("--seconds", type=float, required=True, help="after which it ends by itself")
        job.add_argument("--pid-file", type=Path, required=True)
    limit = verbs.add_parser("limit-files", help="let the server's files grow by so many bytes and no more")
    limit.add_argument("--leave", type=int, required=True)
    verbs.add_parser("free-files", help="let the server's files grow again")
    for name, text in (("publish-unreadable", "publish a message"), ("remove-unreadable", "remove all messages")):
        verbs.add_parser(name, help=f"{text} that nobody can read").add_argument("--stream", required=True)
    state = verbs.add_parser("state", help="print what the store allows and refuses, as JSON")
    state.add_argument("--stream", help="also count its messages that nobody can read")
    state.add_argument("--pid-file", type=Path, help="also say whether the work that it names goes on")
    return parser


if __name__ == "__main__":
    sys.exit(main())
