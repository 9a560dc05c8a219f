"""`faultset-store NAME` runs the server of a store; `faultset-store admin NAME VERB` administers it in its pod."""

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

from faultset.collector.runtime.processes import running_work
from faultset.collector.runtime.stores import STORE_DRIVERS, read_original_versions, store_driver
from faultset.collector.runtime.stores.driver import AdminAction, Credentials, StoreAccess, StoreDriver, read_password
from faultset.collector.runtime.stores.original_driver import OriginalDriver
from faultset.collector.spec.containers import ADMINISTRATOR, APPLICATION, DATA_PATH
from faultset.core.errors import FaultsetError, PlatformError


def admin_command(driver: str, verb: str, *options: str, port: int, password: bool) -> list[str]:
    """Return the command that runs an administrator's action in the store's pod."""
    auth = ["--auth"] if password else []
    return ["faultset-store", "admin", driver, verb, "--port", str(port), *auth, *options]


def main(argv: Sequence[str] | None = None) -> int:
    """Replace this process with the server, or run a command; return the exit code."""
    try:
        arguments = _build_parser().parse_args(argv)
        match arguments.role:
            case "versions":
                print(json.dumps(read_original_versions(arguments.drivers)))
            case "admin":
                try:
                    _administer(arguments)
                except OSError as error:
                    raise PlatformError(f"the store could not perform {arguments.verb}: {error}") from None
            case _:
                _replace_process(arguments)
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _replace_process(arguments: argparse.Namespace) -> None:
    driver = store_driver(arguments.role)
    address, folder = store_address(), data_folder(driver)
    if not driver.is_prepared(folder):
        driver.prepare(folder, account=driver.account_name(password=arguments.auth), credentials=store_credentials())
    limits = {"max_memory_kib": arguments.max_memory_kib, "max_clients": arguments.max_clients}
    argv = driver.server_argv(folder, address=address, **limits)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)


def _administer(arguments: argparse.Namespace) -> None:
    driver = store_driver(arguments.driver)
    account = driver.account_name(password=arguments.auth)
    administrator = driver.administrator(StoreAccess(store_address(), arguments.port, account, store_credentials()))
    match arguments.verb:
        case "lock" | "report":
            start = administrator.lock if arguments.verb == "lock" else administrator.report
            durations = {name: getattr(arguments, name) for name in ("on_ms", "off_ms", "seconds")}
            start(**durations, pid_file=arguments.pid_file)
        case "limit-files":
            administrator.limit_files(arguments.leave)
        case "free-files":
            administrator.free_files()
        case "publish-unreadable":
            administrator.publish_unreadable(arguments.stream)
        case "remove-unreadable":
            administrator.remove_unreadable(arguments.stream)
        case "state":
            state = administrator.state(arguments.stream)
            if arguments.pid_file is not None:
                state["working"] = bool(running_work(arguments.pid_file))
            print(json.dumps(state))
        case action:
            administrator.perform(action)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="faultset-store", description="Run a store of an application.")
    roles = parser.add_subparsers(dest="role", required=True)
    for name, driver in STORE_DRIVERS.items():
        kind = "a database with its data on a volume" if driver.keeps_data else "a cache without persistent data"
        kind = "a message broker" if driver.carries_messages else kind
        store = roles.add_parser(name, help=kind)
        store.add_argument("--auth", action="store_true", help="require a password from clients")
        store.add_argument("--max-memory-kib", type=int, help="limit of the stored data")
        store.add_argument("--max-clients", type=int, help="limit of the number of connections")
    versions = roles.add_parser("versions", help="print the versions of original servers as JSON")
    versions.add_argument(
        "drivers",
        nargs="+",
        choices=[name for name, driver in STORE_DRIVERS.items() if isinstance(driver, OriginalDriver)],
    )
    admin = roles.add_parser("admin", help="administer the store of this pod")
    admin.add_argument("driver", choices=STORE_DRIVERS)
    verbs = admin.add_subparsers(dest="verb", required=True)

    def add_verb(name: str, text: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("--port", type=int, required=True)
        verb.add_argument("--auth", action="store_true", help="required if the store was started with --auth")
        return verb

    for action in get_args(AdminAction):
        add_verb(action, "change the application's account or data")
    for name, text in (("lock", "repeatedly lock the whole store"), ("report", "repeatedly run a long query")):
        work = add_verb(name, text)
        work.add_argument("--on-ms", type=int, required=True)
        work.add_argument("--off-ms", type=int, required=True)
        work.add_argument("--seconds", type=float, required=True, help="time after which the work ends")
        work.add_argument("--pid-file", type=Path, required=True)
    limit = add_verb("limit-files", "limit the growth of the server's files")
    limit.add_argument("--leave", type=int, required=True, help="bytes by which the files may still grow")
    add_verb("free-files", "remove the limit of the server's files")
    for name, text in (("publish-unreadable", "publish a message"), ("remove-unreadable", "remove all messages")):
        add_verb(name, f"{text} that no consumer can read").add_argument("--stream", required=True)
    state = add_verb("state", "print what the store allows and refuses, as JSON")
    state.add_argument("--stream", help="also count the unreadable messages of this stream")
    state.add_argument("--pid-file", type=Path, help="also report whether the work of this pid file is running")
    return parser


def store_credentials() -> Credentials:
    return Credentials(administrator=read_password(ADMINISTRATOR), application=read_password(APPLICATION))


def store_address() -> str:
    """Return the pod's address; raise PlatformError if it is invalid, or not loopback outside a cluster."""
    text = os.environ.get("POD_IP", "")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise PlatformError(
            f"POD_IP must be the address to listen on, but is {text!r}; set it to the pod's address"
        ) from None
    in_cluster = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if address.is_unspecified or address.is_multicast or not (in_cluster or address.is_loopback):
        raise PlatformError(
            f"POD_IP must be the pod's address, or a loopback address outside a cluster, but is {text}; correct it"
        )
    return text


def data_folder(driver: StoreDriver) -> Path:
    """Return the folder of the store's files; create it if needed, and empty it if the store keeps no data."""
    setting = os.environ.get("FAULTSET_DATA")
    if driver.keeps_data:
        folder = Path(setting or DATA_PATH)
    else:
        folder = Path(setting or Path.cwd()) / "cache"
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlatformError(
            f"the store's data folder cannot be created: {error}; mount a writable volume there, or set "
            "FAULTSET_DATA to another folder"
        ) from None
    return folder


if __name__ == "__main__":
    sys.exit(main())
