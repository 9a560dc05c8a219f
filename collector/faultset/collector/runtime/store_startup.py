"""What a service does with its databases when it starts: log in, fill empty collections, read indexes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from faultset.collector.runtime.context import DocumentIndex
from faultset.collector.runtime.persona import StartLog
from faultset.collector.runtime.stores.driver import Account, ClientContext, StoreAddress, StoreClient, StoreError
from faultset.collector.runtime.stores.drivers import store_driver
from faultset.collector.runtime.stores.passwords import read_password
from faultset.collector.spec.app import AppSpec, ServiceSpec


def store_clients(
    app: AppSpec,
    service: ServiceSpec,
    context: ClientContext,
    *,
    database_port: int | None,
    password_of: Callable[[str], str] = read_password,
) -> dict[str, StoreClient]:
    """Return a client for each store of a service; none is connected yet.

    Parameters
    ----------
    database_port
        Port on which databases are dialled in place of their own.
    password_of
        Returns the password of the account in a store.
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
            account=Account(driver.account_name(password=store.auth == "password"), password_of(name)),
        )
        clients[name] = driver.client(address, context)
    return clients


async def open_databases(
    app: AppSpec, service: ServiceSpec, stores: Mapping[str, StoreClient], start_log: StartLog
) -> None:
    """Log in and fill empty collections; what goes wrong ends the process as the persona says."""
    for name in service.stores:
        if app.services[name].kind != "database":
            continue
        facts = {"store": name, "store_port": app.services[name].port}
        start_log.report("opening-store", **facts)
        try:
            await stores[name].log_in()
        except StoreError as error:
            start_log.report("login-failed", error=error, **facts)
        start_log.report("store-opened", **facts)
        try:
            for seed in service.seeds:
                if seed.store == name:
                    await _fill(app, name, seed.collection, stores[name])
        except StoreError as error:
            start_log.report("filling-failed", error=error, **facts)
        start_log.report("store-ready", **facts)


async def _fill(app: AppSpec, store: str, name: str, client: StoreClient) -> None:
    collection = app.services[store].collections[name]
    documents = [(str(document[collection.key]), json.dumps(document)) for document in collection.all()]
    if collection.appended:
        if documents and not await client.has_appended(name, documents[0][0]):
            for key, document in documents:
                await client.append(name, key, document)
    elif await client.is_empty(name) and documents:
        await client.insert(name, dict(documents))


async def read_indexes(
    app: AppSpec, service: ServiceSpec, stores: Mapping[str, StoreClient], start_log: StartLog
) -> dict[str, DocumentIndex]:
    """Read the collections that the service keeps in memory; one that cannot be read is empty from then on."""
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
