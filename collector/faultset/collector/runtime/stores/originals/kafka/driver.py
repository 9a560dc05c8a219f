"""Apache Kafka in its own name: a broker of one node that keeps its messages on disk for as long as it runs."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.runtime.stores.driver import (
    AdminAction,
    ClientContext,
    Credentials,
    StoreAddress,
    StoreClient,
)
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.runtime.stores.originals.kafka.accounts import administer
from faultset.collector.runtime.stores.originals.kafka.client import KafkaClient
from faultset.collector.runtime.stores.originals.kafka.installation import find_home, find_installation
from faultset.collector.runtime.stores.originals.kafka.settings import (
    ADMINISTRATOR,
    SaltedPassword,
    address_settings,
    limit_settings,
    log_settings,
    properties,
    settings_of,
)
from faultset.collector.runtime.stores.passwords import write_private_file
from faultset.core.errors import PlatformError

_LOG, _SETTINGS = "log", "server.properties"
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Options of Java for a small server that starts quickly."""
_TIMEOUT_S = 120.0


class OriginalKafkaDriver(OriginalDriver):
    """A Kafka broker that is its own controller; clients log in, and may do everything until a right is taken."""

    name = "original-kafka"
    role = "kafka"
    port = 9092
    keeps_data = False
    carries_messages = True
    capabilities = frozenset({"accounts", "rights", "connection-limit"})
    programs = ()
    to_install = "Kafka and Java"
    client_library = "aiokafka"
    starts_slowly = True

    def version(self) -> str:
        """Return the name and version of the server."""
        return f"kafka {find_installation().version}"

    def location(self) -> str | None:
        """Return the folder of the server; None without one."""
        home = find_home()
        return None if home is None else str(home)

    @property
    def is_missing(self) -> bool:
        """Whether Kafka or Java is not installed here."""
        try:
            find_installation()
        except PlatformError:
            return True
        return False

    def check(self) -> None:
        """Raise UsageError without the client library, and PlatformError without Kafka or Java."""
        super().check()
        find_installation()

    def is_prepared(self, folder: Path) -> bool:
        """Say whether there is a finished folder of messages."""
        return (folder / _LOG).is_dir()

    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Format the folder of messages with the accounts; one that is not finished is made anew at the next start.

        Raises
        ------
        PlatformError
            The server's program refuses.
        """
        draft = folder / "log.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for name, text in log_settings().items():
            (folder / name).write_text(text, encoding="ascii")
        settings = settings_of(credentials)
        write_private_file(folder / _SETTINGS, properties(settings))
        complete = folder / "format.properties"
        write_private_file(complete, properties({**settings, **address_settings(draft, "127.0.0.1", self.port)}))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        passwords = {ADMINISTRATOR: credentials.administrator, account: credentials.application}
        accounts = [f"--add-scram={SaltedPassword(word).formatted(name)}" for name, word in passwords.items()]
        options = [f"--cluster-id={cluster}", f"--config={complete}", *accounts]
        argv = _java_argv(folder, "kafka.tools.StorageTool", ["format", *options])
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd="/", check=False)
        complete.unlink()
        if ended.returncode:
            lines = (ended.stderr.strip() or ended.stdout.strip() or "it said nothing").splitlines()
            raise PlatformError(f"Kafka cannot make the store's folder: {lines[0]}; see that it runs by itself")
        draft.rename(folder / _LOG)

    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server; with less memory it keeps fewer messages of each topic."""
        given = address_settings(folder / _LOG, address, self.port) | limit_settings(max_memory_kib, max_clients)
        overrides = [word for name, value in given.items() for word in ("--override", f"{name}={value}")]
        return _java_argv(folder, "kafka.Kafka", [str(folder / _SETTINGS), *overrides])

    def administer(
        self, address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials
    ) -> None:
        """Do something as administrator; raise PlatformError."""
        administer(address, port, action, account=account, credentials=credentials)

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client that publishes and consumes by Kafka's protocol."""
        return KafkaClient(self, store, context)


def _java_argv(folder: Path, program: str, options: Sequence[str]) -> list[str]:
    """Return the command of one of Kafka's programs."""
    found = find_installation()
    logging = (
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        f"-Dlog4j.configuration={(folder / 'log4j.properties').as_uri()}",
    )
    return [found.java, *_JVM, "-Djava.awt.headless=true", *logging, "-cp", found.class_path, program, *options]
