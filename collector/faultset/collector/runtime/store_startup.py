"""Set up the stores of a starting service: log in, fill empty collections, read indexes."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Mapping

from faultset.collector.runtime.context import DocumentIndex
from faultset.collector.runtime.http.caller import ClientContext
from faultset.collector.runtime.persona import StartLog
from faultset.collector.runtime.stores import store_driver
from faultset.collector.runtime.stores.driver import StoreAddress, StoreClient, StoreError, read_password
from faultset.collector.spec.app import AppSpec, ServiceSpec

_CACHE_START_S = 5.0
_CACHE_PAUSE_S = 0.05


def store_clients(
    app: AppSpec,
    service: ServiceSpec,
    context: ClientContext,
    *,
    database_port: int | None,
    password_of: Callable[[str], str] = read_password,
) -> dict[str, StoreClient]:
    """Return a client for each store of a service, not yet connected.

    `database_port` replaces the ports of databases; `password_of` returns the password for a store.
    """
    clients = {}
    for name in service.stores:
        store = app.services[name]
        assert store.store_driver is not None
        driver = store_driver(store.store_driver)
        address = StoreAddress(
            name=name,
            port=database_port if database_port is not None and driver.keeps_data else store.port,
            database=store.database or name,
            username=driver.account_name(password=store.auth == "password"),
            password=password_of(name),
            connect_timeout_s=store.connect_timeout_s,
        )
        clients[name] = driver.client(address, context)
    return clients


async def open_databases(
    app: AppSpec,
    service: ServiceSpec,
    stores: Mapping[str, StoreClient],
    start_log: StartLog,
    *,
    pause_s: float | None = None,
) -> None:
    """Log in and fill empty collections; repeat failed attempts after a pause, if given.

    The persona decides which failures end the process. A cache that cannot be filled within a few seconds stays empty,
    so that its first reads are misses.
    """
    for name in service.stores:
        client = stores[name]
        fill = functools.partial(_fill_seeds, app, service, name, client)
        if app.services[name].kind != "database":
            await _fill_cache(fill)
            continue
        report = functools.partial(start_log.report, store=name, store_port=app.services[name].port)
        report("opening-store")
        while not await _open(client, fill, report):
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        report("store-ready")


async def _fill_cache(fill: Callable[[], Awaitable[None]]) -> None:
    deadline = time.monotonic() + _CACHE_START_S
    while True:
        try:
            return await fill()
        except StoreError:
            if time.monotonic() > deadline:
                return None
        await asyncio.sleep(_CACHE_PAUSE_S)


async def _open(client: StoreClient, fill: Callable[[], Awaitable[None]], report: Callable[..., None]) -> bool:
    event = "login-failed"
    try:
        await client.log_in()
        report("store-opened")
        event = "filling-failed"
        await fill()
    except StoreError as error:
        report(event, error=error)
        return False
    return True


async def _fill_seeds(app: AppSpec, service: ServiceSpec, store: str, client: StoreClient) -> None:
    for seed in service.seeds:
        if seed.store == store:
            await _fill(app, store, seed.collection, client)


async def _fill(app: AppSpec, store: str, name: str, client: StoreClient) -> None:
    collection = app.services[store].collections[name]
    if collection.sorted:
        members = {str(document[collection.key]): document["members"] for document in collection.all()}
        sets = {
            key: {str(value): score for score, value in enumerate(values)} for key, values in members.items() if values
        }
        if sets and not await client.range_sorted(next(iter(sets)), 0, 1, highest_first=True):
            await client.add_sorted(sets)
        return
    documents = [(str(document[collection.key]), json.dumps(document)) for document in collection.all()]
    if collection.appended:
        if documents and not await client.has_appended(name, documents[0][0]):
            await client.append_all(name, documents)
    elif await client.is_empty(name) and documents:
        await client.insert(name, dict(documents))


async def read_indexes(
    app: AppSpec, service: ServiceSpec, stores: Mapping[str, StoreClient], start_log: StartLog
) -> dict[str, DocumentIndex]:
    """Read the collections that the service keeps in memory; unreadable collections stay empty."""
    indexes = {}
    for name, index in service.indexes.items():
        key = app.services[index.store].collections[index.collection].key
        try:
            texts = await stores[index.store].find_all(index.collection)
        except StoreError as error:
            start_log.report("index-unreadable", reason=index.error, error=error)
            texts = []
        documents = [json.loads(text) for text in texts]
        indexes[name] = {document[key]: document for document in documents}
    return indexes
