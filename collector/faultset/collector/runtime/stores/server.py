"""`faultset-store NAME`: a store of an application, which becomes the server that its driver starts."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.runtime.stores.driver import StoreDriver
from faultset.collector.runtime.stores.drivers import STORE_DRIVERS, store_driver
from faultset.collector.spec.containers import DATA_PATH
from faultset.core.errors import FaultsetError, PlatformError


def admin_command(driver: str, port: int, *words: str) -> list[str]:
    """Return the argv that runs a store command as administrator, inside the store's pod."""
    return ["faultset-store", "admin", driver, "--port", str(port), "--", *words]


def main(argv: Sequence[str] | None = None) -> int:
    """Become the store, or run a command in it; return the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        if arguments.role == "admin":
            address = os.environ.get("POD_IP") or "127.0.0.1"
            print(store_driver(arguments.driver).administer(address, arguments.port, arguments.words))
            return 0
        _become(store_driver(arguments.role), password=arguments.auth)
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="faultset-store", description="Run a store of an application.")
    roles = parser.add_subparsers(dest="role", required=True)
    for name, driver in STORE_DRIVERS.items():
        kind = "a database that keeps its data on its volume" if driver.keeps_data else "a cache that keeps nothing"
        store = roles.add_parser(name, help=kind)
        store.add_argument("--auth", action="store_true", help="let clients in with a password only")
    admin = roles.add_parser("admin", help="run a command in the store of this pod")
    admin.add_argument("driver", choices=STORE_DRIVERS)
    admin.add_argument("--port", type=int, required=True)
    admin.add_argument("words", nargs="+")
    return parser


def _become(driver: StoreDriver, *, password: bool) -> None:
    folder = _data_folder(driver)
    if not any(folder.iterdir()):
        driver.prepare(folder, password=password)
    argv = driver.server_argv(folder, address=os.environ.get("POD_IP") or "0.0.0.0")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)


def _data_folder(driver: StoreDriver) -> Path:
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
