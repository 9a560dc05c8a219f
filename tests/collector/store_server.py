"""The server of a store that runs for tests, and what clients and its administrator do with it."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.signals import Metrics
from faultset.collector.runtime.stores.driver import (
    AdminAction,
    Credentials,
    StoreAccess,
    StoreAddress,
    StoreAdministrator,
    StoreClient,
    StoreDriver,
    StoreError,
)

CREDENTIALS = Credentials(administrator='a-"secret\\', application="it's-secret")
ACCOUNT = "app"
_START_S = 60.0

Client = TypeVar("Client", bound=StoreClient)


class StoreServer(Generic[Client]):
    """The server of a driver, in a folder of its own.

    Attributes
    ----------
    limits
        Those with which the server is started: `max_memory_kib`, `max_clients`.
    pod_address
        Address from which clients connect.
    """

    pod_address = "127.77.245.1"

    def __init__(
        self,
        driver: StoreDriver,
        folder: Path,
        *,
        has_usual_port: bool = False,
        connect_timeout_s: float | None = None,
        **limits: int,
    ):
        self.driver, self.folder = driver, folder / "data"
        self.limits, self._connect_timeout_s = limits, connect_timeout_s
        self.address = f"127.77.{random.randrange(1, 240)}.{random.randrange(1, 250)}"
        self.port = driver.port if has_usual_port else 20_000 + random.randrange(20_000)
        self.hosts = folder / "hosts.json"
        self.hosts.write_text(json.dumps({"store": self.address}))
        self.folder.mkdir()
        driver.prepare(self.folder, account=ACCOUNT, credentials=CREDENTIALS)

    def start(self) -> None:
        """Start the server; it takes connections some time later."""
        argv = self.driver.server_argv(self.folder, address=self.address, **self.limits)
        argv = [re.sub(rf"(?<!\d){self.driver.port}$", str(self.port), word) for word in argv]
        with (self.folder.parent / "output.log").open("ab") as output:
            # SIGXFSZ is ignored, as by the Python program that becomes the server in a pod
            self.process = subprocess.Popen(argv, stdout=output, stderr=output, restore_signals=False)

    def stop(self) -> None:
        """Kill the server."""
        self.process.kill()
        self.process.wait()

    def client(self) -> Client:
        """Return a client of the application's account, which is not connected."""
        context = ClientContext(
            names=Names(str(self.hosts)), local=self.pod_address, metrics=Metrics(), texts=ErrorTexts()
        )
        store = StoreAddress(
            name="store",
            port=self.port,
            database="d",
            username=ACCOUNT,
            password=CREDENTIALS.application,
            connect_timeout_s=self._connect_timeout_s,
        )
        made: Any = self.driver.client(store, context)
        return made

    def use(self, work: Callable[[Client], Awaitable[Any]]) -> Any:
        """Do something with a client that is connected."""

        async def run() -> Any:
            client = self.client()
            deadline = time.monotonic() + _START_S
            while (found := await outcome(client.log_in())) != "ok":
                assert time.monotonic() < deadline, found
                await asyncio.sleep(0.05)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(run())

    async def administer(self, action: AdminAction) -> None:
        """Do something as administrator."""
        await asyncio.to_thread(self.administrator.perform, action)

    @property
    def administrator(self) -> StoreAdministrator:
        """Return the store's administrator."""
        return self.driver.administrator(StoreAccess(self.address, self.port, ACCOUNT, CREDENTIALS))


@contextmanager
def running(store: StoreServer[Client]) -> Iterator[StoreServer[Client]]:
    """Run the server while something is done."""
    store.start()
    try:
        yield store
    finally:
        store.stop()


async def outcome(work: Awaitable[Any]) -> str:
    """Return how something ended: `ok`, or the kind of the failure and its text."""
    try:
        await work
    except StoreError as error:
        return f"{error.kind}: {error}"
    return "ok"


async def outcomes_after(
    changes: Sequence[AdminAction], store: StoreServer[Client], write: Callable[[Client], Awaitable[Any]]
) -> list[str]:
    """Return how a write by a new connection ends after each of some changes by the administrator."""
    found = []
    for change in changes:
        await store.administer(change)
        client = store.client()
        found.append(await outcome(write(client)))
        await client.close()
    return found
