"""MongoDB's protocol in its own name: MongoDB itself, and FerretDB, which speaks the same protocol over SQLite."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from faultset.collector.runtime.stores.driver import (
    AdminAction,
    ClientContext,
    Credentials,
    StoreAddress,
    StoreClient,
)
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.runtime.stores.originals.mongodb_accounts import (
    ADMINISTRATOR,
    administer,
    make_accounts,
)
from faultset.collector.runtime.stores.originals.mongodb_client import MongoProtocolClient
from faultset.collector.runtime.stores.originals.users import argv_as_user, set_folder_owner
from faultset.core.errors import PlatformError

SERVER_USER = "mongodb"
"""As whom the server runs when root starts it."""
_DATABASE = "database"
_STOP_S = 20.0


class MongoProtocolDriver(OriginalDriver):
    """A server that speaks MongoDB's protocol; a collection is one of the server's, a document the value of a field.

    Attributes
    ----------
    has_roles
        Whether accounts have rights that can be taken; without, whoever logs in may do everything.
    """

    role = "mongodb"
    port = 27017
    keeps_data = True
    to_install = "MongoDB (mongod) or FerretDB 1.24 (ferretdb)"
    client_library = "pymongo"
    has_roles: ClassVar[bool]

    def version(self) -> str:
        """Return the name and version of the server."""
        name = self.programs[0]
        lines = [line.split()[-1] for line in self.reported_version(name).splitlines() if "version" in line.lower()]
        return f"{name} {lines[0].removeprefix('v') if lines else 'of an unknown version'}"

    def is_prepared(self, folder: Path) -> bool:
        """Say whether there is a database with its accounts."""
        return (folder / _DATABASE).is_dir()

    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Start the server where only this process can reach it, and make the accounts.

        Raises
        ------
        PlatformError
            The server does not start, or refuses.
        """
        draft = folder / f"{_DATABASE}.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        set_folder_owner(draft, SERVER_USER)
        with tempfile.TemporaryDirectory(prefix="faultset-") as place, tempfile.TemporaryFile() as said:
            set_folder_owner(Path(place), SERVER_USER)
            socket = Path(place) / "first.sock"
            given = self.first_settings(credentials)
            argv = argv_as_user(self.first_argv(draft, socket), SERVER_USER)
            with subprocess.Popen(argv, stdout=said, stderr=said, env={**os.environ, **given}) as server:
                try:
                    make_accounts(str(socket), account, credentials, has_roles=self.has_roles)
                except PlatformError as error:
                    said.seek(0)
                    lines = said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
                    raise PlatformError(f"{error}; the last that {self.programs[0]} said: {lines[-1]}") from None
                finally:
                    server.terminate()
                    try:
                        server.wait(_STOP_S)
                    except subprocess.TimeoutExpired:
                        server.kill()
        draft.rename(folder / _DATABASE)

    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server."""
        if max_memory_kib is not None:
            raise PlatformError(
                f"{self.programs[0]} has no limit of memory at which it refuses writes; choose another store"
            )
        return argv_as_user(self.usual_argv(folder / _DATABASE, address, max_clients), SERVER_USER)

    def administer(
        self, address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials
    ) -> None:
        """Do something as administrator; raise PlatformError."""
        administer(address, port, action, account=account, credentials=credentials, has_roles=self.has_roles)

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client that speaks MongoDB's protocol."""
        return MongoProtocolClient(self, store, context)

    def first_settings(self, credentials: Credentials) -> Mapping[str, str]:
        """Return variables of the environment of the first start; the administrator is made with them, or later."""
        return {}

    @abstractmethod
    def first_argv(self, folder: Path, socket: Path) -> list[str]:
        """Return the command of the first start, which listens on a socket of this machine."""

    @abstractmethod
    def usual_argv(self, folder: Path, address: str, max_clients: int | None) -> list[str]:
        """Return the command of every other start, which lets in nobody without a password."""


class OriginalMongoDriver(MongoProtocolDriver):
    """A MongoDB server, with accounts that have roles."""

    name = "original-mongodb"
    capabilities = frozenset({"accounts", "rights", "connection-limit"})
    programs = ("mongod",)
    has_roles = True

    def first_argv(self, folder: Path, socket: Path) -> list[str]:
        """Return the command of a server that asks nobody for a password yet."""
        return [self.program("mongod"), "--dbpath", str(folder), "--bind_ip", str(socket), "--noauth"]

    def usual_argv(self, folder: Path, address: str, max_clients: int | None) -> list[str]:
        """Return the command of a server that asks for passwords."""
        limits = [] if max_clients is None else ["--maxConns", str(max_clients)]
        listening = ["--bind_ip", address, "--port", str(self.port), "--nounixsocket"]
        return [self.program("mongod"), "--auth", "--dbpath", str(folder), *listening, *limits]


class OriginalFerretDbDriver(MongoProtocolDriver):
    """A FerretDB 1.24 over SQLite, whose accounts have no roles yet: whoever logs in may do everything."""

    name = "original-ferretdb"
    capabilities = frozenset({"accounts", "files"})
    programs = ("ferretdb",)
    has_roles = False

    def first_settings(self, credentials: Credentials) -> Mapping[str, str]:
        """Return what makes the administrator, as other users of this machine cannot see it."""
        setup = {"DATABASE": "admin", "USERNAME": ADMINISTRATOR, "PASSWORD": credentials.administrator}
        return {f"FERRETDB_SETUP_{name}": value for name, value in setup.items()}

    def first_argv(self, folder: Path, socket: Path) -> list[str]:
        """Return the command of a server that only this machine can reach."""
        return self._argv(folder, ["--listen-addr=", f"--listen-unix={socket}"])

    def usual_argv(self, folder: Path, address: str, max_clients: int | None) -> list[str]:
        """Return the command; a write beyond the size that files may have is refused rather than ends the server."""
        if max_clients is not None:
            raise PlatformError("ferretdb has no limit of connections; choose another store, or install mongod")
        return _without_size_signal(self._argv(folder, [f"--listen-addr={address}:{self.port}"]))

    def _argv(self, folder: Path, listening: list[str]) -> list[str]:
        quiet = ["--state-dir=-", "--debug-addr=-", "--telemetry=disable"]
        data = ["--handler=sqlite", f"--sqlite-url=file:{quote(str(folder))}/", "--test-enable-new-auth"]
        return [self.program("ferretdb"), *data, *quiet, *listening]


def _without_size_signal(argv: list[str]) -> list[str]:
    """Return a command that goes on when a file may not grow, where this machine's `env` can do that."""
    env = shutil.which("env")
    if env is None:
        return argv
    blocking = [env, "--block-signal=XFSZ"]
    can = subprocess.run([*blocking, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    return [*blocking, *argv] if can else argv
