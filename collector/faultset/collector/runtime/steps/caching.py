"""Steps that read stores through a cache."""

from __future__ import annotations

import json
from typing import Any, Literal

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores.driver import StoreError


class CachedDocuments(Step):
    """Documents by key through a cache: one multi-get, one store query per miss, cache filled in the background.

    A failing cache always ends the process. `on_store_error` decides whether a failing store does too, or whether an
    empty record takes the document's place, in the answer *and in the cache*.
    """

    keyword = "cached_documents"
    keys: Any
    """Keys of the documents, a list."""
    cache: str
    """The cache, one of the service's `stores`."""
    cache_span: str
    """Name of the span around the request to the cache."""
    cache_error: str
    """Line that is logged when the cache fails, with `{keys}` and `{error}`."""
    store: str
    """The database, one of the service's `stores`."""
    collection: str
    """The database's collection that has the documents."""
    store_span: str
    """Name of the span around each request to the database."""
    store_error: str
    """Line that is logged when the database fails, with `{key}` and `{error}`."""
    on_store_error: Literal["panic", "cache_empty"] = "panic"
    """`panic` ends the process when the database fails; `cache_empty` answers and caches an empty record."""
    save: str
    """Name under which the list of documents is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves a list of documents."""
        keys_of, cache, store = getter(self.keys), service.stores[self.cache], service.stores[self.store]

        async def cached(request: RequestContext, keys: list[str]) -> list[str | None]:
            try:
                with service.store_span(request, self.cache, self.cache_span):
                    return await cache.get_many(keys)
            except StoreError as error:
                listed = service.persona.format_list(keys)
                service.log.panic(location, self.cache_error.format(keys=listed, error=error))

        async def document(request: RequestContext, key: str) -> str:
            try:
                with service.store_span(request, self.store, self.store_span):
                    found = await store.find(self.collection, key)
            except StoreError as error:
                text = self.store_error.format(key=key, error=error)
                if self.on_store_error == "panic":
                    service.log.panic(location, text)
                service.log.error(location, text)
                found = "{}"
            return found if found is not None else ""

        async def handle(request: RequestContext) -> None:
            keys = [str(key) for key in keys_of(request.values) or ()]
            found = await cached(request, keys) if keys else []
            records: list[Any] = []
            for key, text in zip(keys, found, strict=True):
                record = text
                if record is None:
                    record = await document(request, key)
                    cache.set_later(key, record)
                if record:
                    records.append(json.loads(record))
            request.values[self.save] = records

        return handle
