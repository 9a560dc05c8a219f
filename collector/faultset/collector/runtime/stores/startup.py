"""What a service does with its databases when it starts: log in, fill empty collections, read indexes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from faultset.collector.runtime.http.names import Names
from faultset.collector.runtime.signals.logs import Log
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.runtime.stores.client import StoreAddress, StoreClient, StoreError
from faultset.collector.spec.app import AppSpec, ServiceSpec

ACCOUNT = ("admin", "admin")
OPEN_ACCOUNT = ("app", "")


def store_clients(
    app: AppSpec, service: ServiceSpec, *, names: Names, local: str | None, metrics: Metrics, port: int | None
) -> dict[str, StoreClient]:
    """Return a client for each store of a service; none is connected yet.

    Parameters
    ----------
    port:
        Port on which databases are dialled in place of their own.
    """
    clients = {}
    for name in service.stores:
        store = app.services[name]
        is_database = store.kind == "database"
        username, password = ACCOUNT if store.auth == "password" else OPEN_ACCOUNT
        address = StoreAddress(
            name=name,
            role="mongodb" if is_database else "memcached",
            port=port if port is not None and is_database else store.port,
            database=store.database,
            username=username,
            password=password,
        )
        clients[name] = StoreClient(address, names=names, local=local, metrics=metrics)
    return clients


async def open_databases(app: AppSpec, service: ServiceSpec, stores: Mapping[str, StoreClient], log: Log) -> None:
    """Log in and fill empty collections; what goes wrong ends the process as the original ends."""
    caller = f"{service.caller.rpartition('/')[0]}/db.go"
    for name in service.stores:
        if app.services[name].kind != "database":
            continue
        log.info(f"{service.caller}:37", f"Read database URL: {name}:{app.services[name].port}")
        log.info(f"{service.caller}:38", "Initializing DB connection...")
        try:
            await stores[name].log_in()
        except StoreError as error:
            log.panic(f"{caller}:24", str(error))
        log.info(f"{caller}:29", "New session successfull...")
        log.info(f"{caller}:31", "Generating test data...")
        try:
            for seed in service.seeds:
                if seed.store == name:
                    await _fill(app, name, seed.collection, stores[name])
        except StoreError as error:
            log.fatal(f"{caller}:46", str(error))
        log.info(f"{service.caller}:40", "Successfull")


async def _fill(app: AppSpec, store: str, name: str, client: StoreClient) -> None:
    collection = app.services[store].collections[name]
    documents = list(collection.all())
    table = f"{app.services[store].database}.{name}"
    if collection.appended:
        if not await client.run("EXISTS", f"{table}:{documents[0][collection.key]}"):
            for document in documents:
                await client.run("RPUSH", f"{table}:{document[collection.key]}", json.dumps(document))
    elif not await client.run("HLEN", table):
        pairs = [part for item in documents for part in (item[collection.key], json.dumps(item))]
        await client.run("HSET", table, *pairs)


async def read_indexes(
    app: AppSpec, service: ServiceSpec, stores: Mapping[str, StoreClient], log: Log
) -> dict[str, dict[str, dict[str, Any]]]:
    """Read the collections that the service keeps in memory; one that cannot be read is empty from then on."""
    indexes = {}
    for name, index in service.indexes.items():
        store = app.services[index.store]
        key = store.collections[index.collection].key
        try:
            texts = await stores[index.store].run("HVALS", f"{store.database}.{index.collection}")
        except StoreError as error:
            log.error(f"services/{service.name}/server.go:58", f"{index.error}: {error}")
            texts = []
        documents = [json.loads(text) for text in texts]
        indexes[name] = {document[key]: document for document in documents}
    return indexes
