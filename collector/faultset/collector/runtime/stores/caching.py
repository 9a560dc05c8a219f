"""Steps that read and write stores through a cache."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from faultset.collector.runtime.expressions import getter, go_list
from faultset.collector.runtime.signals.tracing import fail
from faultset.collector.runtime.stores.client import StoreClient, StoreError
from faultset.collector.spec import steps as spec
from faultset.collector.spec.collections import nights

if TYPE_CHECKING:
    from faultset.collector.runtime.operations import Act, Scope, Site, Surroundings


class _Reader:
    """Runs store commands of one step, each in a client span when it has a name."""

    def __init__(self, store: StoreClient, around: Surroundings):
        self._store = store
        self._tracing = around.tracing
        role, name = store.store.role, store.store.name
        self._attributes = {"db.system": role, "peer.service": name}

    async def run(self, scope: Scope, span_name: str | None, *command: Any) -> Any:
        """Run one command."""
        if span_name is None:
            return await self._store.run(*command)
        span = self._tracing.client(span_name, scope.context, self._attributes)
        try:
            return await self._store.run(*command)
        except StoreError as error:
            fail(span, str(error))
            raise
        finally:
            span.end()


def cached_documents(step: spec.CachedDocuments, site: Site, around: Surroundings) -> Act:
    """Compile `CachedDocuments`."""
    keys_of = getter(step.keys)
    cache = _Reader(around.stores[step.cache], around)
    store = _Reader(around.stores[step.store], around)
    table = f"{around.databases[step.store]}.{step.collection}"

    async def documents(scope: Scope, keys: list[str]) -> list[str | None]:
        try:
            return await cache.run(scope, step.cache_span, "MGET", *keys)
        except StoreError as error:
            site.panic(step.cache_error.format(keys=go_list(keys), error=error))

    async def document(scope: Scope, key: str) -> str:
        try:
            found = await store.run(scope, step.store_span, "HGET", table, key)
        except StoreError as error:
            text = step.store_error.format(key=key, error=error)
            if step.on_store_error == "panic":
                site.panic(text)
            site.log.error(site.caller, text)
            found = "{}"
        return found if found is not None else ""

    async def act(scope: Scope) -> None:
        keys = [str(key) for key in keys_of(scope.known) or ()]
        found = await documents(scope, keys) if keys else []
        records: list[Any] = []
        for key, text in zip(keys, found, strict=True):
            record = text
            if record is None:
                record = await document(scope, key)
                around.stores[step.cache].set_later(key, record)
            if record:
                records.append(json.loads(record))
        scope.known[step.save] = records

    return act


def availability(step: spec.Availability, site: Site, around: Surroundings) -> Act:
    """Compile `Availability`."""
    keys_of, count_of = getter(step.keys), getter(step.count)
    first_of, last_of = getter(step.nights[0]), getter(step.nights[1])
    cache = _Reader(around.stores[step.cache], around)
    store = _Reader(around.stores[step.store], around)
    database = around.databases[step.store]
    spans = step.spans

    async def cached(scope: Scope, span: str | None, error_text: str, keys: list[str]) -> list[str | None]:
        try:
            return await cache.run(scope, span, "MGET", *keys)
        except StoreError as error:
            site.panic(error_text.format(keys=go_list(keys), error=error))

    def fill(key: str, value: int) -> None:
        around.stores[step.cache].set_later(key, str(value))

    async def capacities(scope: Scope, keys: list[str], stay: tuple[str, str]) -> dict[str, int]:
        names = [f"{key}_cap" for key in keys]
        found = await cached(scope, spans and spans.capacity_cache, step.capacity_cache_error, names)
        missing = [key for key, text in zip(keys, found, strict=True) if text is None]
        capacity = {key: int(text) for key, text in zip(keys, found, strict=True) if text is not None}
        if missing:
            table = f"{database}.{step.capacity}"
            try:
                documents = await store.run(scope, spans and spans.capacity_store, "HMGET", table, *missing)
            except StoreError as error:
                site.panic(_told(step.store_error, go_list(missing), stay, error))
            for key, text in zip(missing, documents, strict=True):
                capacity[key] = json.loads(text)["number"] if text else 0
                fill(f"{key}_cap", capacity[key])
        return capacity

    async def bookings(scope: Scope, places: dict[str, tuple[str, str, str]]) -> dict[str, int]:
        names = list(places)
        found = await cached(scope, spans and spans.bookings_cache, step.bookings_cache_error, names)
        counts: dict[str, int] = {}
        for name, text in zip(names, found, strict=True):
            if text is not None:
                counts[name] = int(text)
                continue
            key, *stay = places[name]
            span = spans and spans.bookings_store.format(key=name)
            try:
                documents = await store.run(scope, span, "LRANGE", f"{database}.{step.bookings}:{name}", 0, -1)
            except StoreError as error:
                site.panic(_told(step.store_error, key, (stay[0], stay[1]), error))
            counts[name] = sum(json.loads(document)["number"] for document in documents)
            fill(name, counts[name])
        return counts

    async def act(scope: Scope) -> None:
        keys = [str(key) for key in keys_of(scope.known) or ()]
        first, last = str(first_of(scope.known)), str(last_of(scope.known))
        free: list[str] = []
        if keys:
            capacity = await capacities(scope, keys, (first, last))
            days = nights(first, last)
            places = {f"{key}_{one}_{other}": (key, one, other) for key in keys for one, other in days}
            counts = await bookings(scope, places) if places else {}
            wanted = int(count_of(scope.known) or 1)
            full = {places[name][0] for name, taken in counts.items() if taken + wanted > capacity[places[name][0]]}
            free = [key for key in keys if key not in full]
            scope.bookings = counts
        scope.known[step.save] = free

    return act


def _told(template: str, key: str, stay: tuple[str, str], error: StoreError) -> str:
    return template.format(key=key, first=stay[0], last=stay[1], error=error)


def insert(step: spec.Insert, site: Site, around: Surroundings) -> Act:
    """Compile `Insert`."""
    when, key_of, count_of, document_of = (getter(part) for part in (step.when, step.key, step.count, step.document))
    first_of, last_of = getter(step.nights[0]), getter(step.nights[1])
    store, cache = around.stores[step.store], around.stores[step.cache]
    table = f"{around.databases[step.store]}.{step.collection}"

    async def act(scope: Scope) -> None:
        if not when(scope.known):
            return
        given = key_of(scope.known)
        key = str(given[0] if isinstance(given, list) else given)
        count = int(count_of(scope.known) or 1)
        for first, last in nights(str(first_of(scope.known)), str(last_of(scope.known))):
            name = f"{key}_{first}_{last}"
            document = json.dumps({**document_of(scope.known), "night": name, "number": count})
            try:
                await store.run("RPUSH", f"{table}:{name}", document)
            except StoreError as error:
                site.panic(step.store_error.format(key=key, error=error))
            cache.set_later(name, str(scope.bookings.get(name, 0) + count))

    return act
