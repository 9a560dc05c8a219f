"""`faultset-store NAME`: a store of an application, which becomes the server that its driver starts."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from faultset.collector.runtime.stores.driver import AdminAction, Credentials, StoreDriver
from faultset.collector.runtime.stores.drivers import (
    STORE_DRIVERS,
    original_versions,
    store_driver,
)
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.runtime.stores.passwords import read_password
from faultset.collector.spec.containers import ADMINISTRATOR, APPLICATION, DATA_PATH
from faultset.core.errors import FaultsetError, PlatformError


def admin_command(driver: str, port: int, action: AdminAction, *, password: bool) -> list[str]:
    """Return the argv that does something as a store's administrator, inside the store's pod."""
    return ["faultset-store", "admin", driver, action, "--port", str(port), *(["--auth"] if password else [])]


def main(argv: Sequence[str] | None = None) -> int:
    """Become the store, or run a command in it; return the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        if arguments.role == "versions":
            print(json.dumps(original_versions(arguments.drivers)))
            return 0
        if arguments.role == "admin":
            driver = store_driver(arguments.driver)
            account, credentials = driver.account_name(password=arguments.auth), store_credentials()
            driver.administer(
                store_address(), arguments.port, arguments.action, account=account, credentials=credentials
            )
            return 0
        _become(
            store_driver(arguments.role),
            password=arguments.auth,
            max_memory_kib=arguments.max_memory_kib,
            max_clients=arguments.max_clients,
        )
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="faultset-store", description="Run a store of an application.")
    roles = parser.add_subparsers(dest="role", required=True)
    for name, driver in STORE_DRIVERS.items():
        kind = "a database that keeps its data on its volume" if driver.keeps_data else "a cache that keeps nothing"
        kind = "a broker of messages" if driver.carries_messages else kind
        store = roles.add_parser(name, help=kind)
        store.add_argument("--auth", action="store_true", help="let clients in with a password only")
        store.add_argument("--max-memory-kib", type=int, help="what it may store")
        store.add_argument("--max-clients", type=int, help="how many connections it takes")
    versions = roles.add_parser("versions", help="print which original servers are installed, as JSON")
    versions.add_argument(
        "drivers",
        nargs="+",
        choices=[name for name, driver in STORE_DRIVERS.items() if isinstance(driver, OriginalDriver)],
    )
    admin = roles.add_parser("admin", help="do something as administrator of the store of this pod")
    admin.add_argument("driver", choices=STORE_DRIVERS)
    admin.add_argument("action", choices=get_args(AdminAction))
    admin.add_argument("--port", type=int, required=True)
    admin.add_argument("--auth", action="store_true", help="as the store was started")
    return parser


def _become(driver: StoreDriver, *, password: bool, max_memory_kib: int | None, max_clients: int | None) -> None:
    address, folder = store_address(), data_folder(driver)
    if not driver.is_prepared(folder):
        driver.prepare(folder, account=driver.account_name(password=password), credentials=store_credentials())
    argv = driver.server_argv(folder, address=address, max_memory_kib=max_memory_kib, max_clients=max_clients)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)


def store_credentials() -> Credentials:
    """Return the passwords of the store of this pod."""
    return Credentials(administrator=read_password(ADMINISTRATOR), application=read_password(APPLICATION))


def store_address() -> str:
    """Return the pod's address, the only one to listen on; outside a cluster it belongs to this machine alone.

    Raises
    ------
    PlatformError
        There is none, or others could reach it who must not.
    """
    given = os.environ.get("POD_IP", "")
    try:
        address = ipaddress.ip_address(given)
    except ValueError:
        raise PlatformError(f"POD_IP must be the address that the store listens on, but is {given!r}; set it") from None
    in_cluster = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if address.is_unspecified or address.is_multicast or not (in_cluster or address.is_loopback):
        raise PlatformError(
            f"a store listens on its pod's address, or on a loopback address outside a cluster, but POD_IP is {given}"
        )
    return given


def data_folder(driver: StoreDriver) -> Path:
    """Return the folder of the store's files, which is made if need be; that of a cache is emptied."""
    given = os.environ.get("FAULTSET_DATA")
    if driver.keeps_data:
        folder = Path(given or DATA_PATH)
    else:
        folder = Path(given or Path.cwd()) / "cache"
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlatformError(
            f"the store's data folder cannot be made: {error}; mount a writable volume there, or name another "
            "folder in FAULTSET_DATA"
        ) from None
    return folder


if __name__ == "__main__":
    sys.exit(main())
