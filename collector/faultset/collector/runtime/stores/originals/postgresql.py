"""The driver of the original PostgreSQL server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.stores.driver import (
    Credentials,
    StoreAccess,
    StoreAddress,
    StoreAdministrator,
    StoreClient,
)
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.runtime.stores.originals.postgresql_administrator import (
    ADMINISTRATOR,
    LOG_SEGMENT_BYTES,
    SERVER_USER,
    PostgresAdministrator,
    initial_statements,
)
from faultset.collector.runtime.stores.originals.postgresql_client import PostgresClient
from faultset.collector.runtime.stores.users import (
    argv_as_user,
    argv_with_private_memory,
    set_folder_owner,
    set_owner,
    write_private_file,
)
from faultset.core.errors import PlatformError

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
_TIMEOUT_S = 60.0


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
        """Return the name and version of the server."""
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
        draft.mkdir()
        set_folder_owner(draft, SERVER_USER)
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
        """Return a client that speaks PostgreSQL's protocol."""
        return PostgresClient(self, store, context)

    def administrator(self, access: StoreAccess) -> StoreAdministrator:
        """Return an administrator that speaks PostgreSQL's protocol."""
        return PostgresAdministrator(access)

    def _run(self, name: str, options: Sequence[str], statements: str = "") -> None:
        argv = argv_as_user([self.program(name), *options], SERVER_USER)
        result = subprocess.run(
            argv, input=statements, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd="/", check=False
        )
        # in single-user mode, the exit code is zero even if statements fail
        if result.returncode or "ERROR:" in result.stderr or "FATAL:" in result.stderr:
            lines = result.stderr.strip().splitlines() or result.stdout.strip().splitlines() or ["no message"]
            raise PlatformError(
                f"{name} cannot create the store's database: {lines[0]}; check that {name} works on this machine"
            )
