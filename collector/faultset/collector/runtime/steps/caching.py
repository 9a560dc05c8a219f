"""Steps that read stores through a cache."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Literal

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores.driver import StoreError


class CachedDocuments(Step):
    """Documents by key through a cache: one multi-get, then the store for what is missed, and the cache is filled.

    What a failure does is said for the cache and for the store: it may end the process (`panic`) or fail the request.
    A failing cache may also be skipped, and in place of a document that a failing store does not give an empty record
    may go into the answer *and into the cache*.
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
    on_cache_error: Literal["panic", "fail", "skip"] = "panic"
    """`panic` ends the process when the cache fails, `fail` the request; `skip` asks the database for everything."""
    fill_span: str | None = None
    """Name of the span around the request that fills the cache; when left out, it is filled in the background."""
    store: str
    """The database, one of the service's `stores`."""
    collection: str
    """The database's collection that has the documents."""
    store_span: str
    """Name of the span around each request to the database."""
    store_error: str
    """Line that is logged when the database fails, with `{key}` and `{error}`."""
    on_store_error: Literal["panic", "fail", "cache_empty"] = "panic"
    """`panic` ends the process when the database fails, `fail` the request; `cache_empty` answers and caches an empty
    record."""
    misses: Literal["one_by_one", "together"] = "one_by_one"
    """Whether what the cache lacks is asked for `one_by_one`, and its absence cached too, or `together`."""
    save: str
    """Name under which the list of documents is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves a list of documents."""
        keys_of, reader = getter(self.keys), _Reader(self, service, location)

        async def handle(request: RequestContext) -> None:
            keys = [str(key) for key in keys_of(request.values) or ()]
            found = dict(zip(keys, await reader.cached(request, keys), strict=True)) if keys else {}
            missed = [key for key, text in found.items() if text is None]
            if missed:
                await reader.fill(request, found, missed)
            request.values[self.save] = [json.loads(text) for key in keys if (text := found[key])]

        return handle


class _Reader:
    """Reads documents of one step from its cache and its store."""

    def __init__(self, step: CachedDocuments, service: ServiceContext, location: str):
        self._step, self._service, self._location = step, service, location
        self._cache, self._store = service.stores[step.cache], service.stores[step.store]

    async def cached(self, request: RequestContext, keys: list[str]) -> list[str | None]:
        step = self._step
        try:
            with self._service.store_span(request, step.cache, step.cache_span):
                return await self._cache.get_many(keys)
        except StoreError as error:
            listed = self._service.persona.format_list(keys)
            self._report(step.cache_error.format(keys=listed, error=error), step.on_cache_error)
            return [None] * len(keys)

    async def fill(self, request: RequestContext, found: dict[str, str | None], missed: list[str]) -> None:
        """Find what was missed in the store, and put it into the cache."""
        if self._step.misses == "together":
            texts = dict(zip(missed, await self._stored(request, missed), strict=True))
            new = {key: text for key, text in texts.items() if text is not None}
        else:
            new = {}
            for key in missed:
                (text,) = await self._stored(request, [key])
                new[key] = text or ""
                if self._step.fill_span is None:
                    self._cache.set_later(key, new[key])
        found.update(new)
        if self._step.fill_span is None and self._step.misses == "together":
            for key, text in new.items():
                self._cache.set_later(key, text)
        elif self._step.fill_span is not None and new:
            with (
                contextlib.suppress(StoreError),
                self._service.store_span(request, self._step.cache, self._step.fill_span),
            ):
                await self._cache.set_many(new)

    async def _stored(self, request: RequestContext, keys: list[str]) -> list[str | None]:
        step = self._step
        try:
            with self._service.store_span(request, step.store, step.store_span):
                if step.misses == "together":
                    return await self._store.find_many(step.collection, keys)
                return [await self._store.find(step.collection, keys[0])]
        except StoreError as error:
            text = step.store_error.format(key=self._service.persona.format_list(keys), error=error)
            self._report(text, step.on_store_error)
            return ["{}"] * len(keys)

    def _report(self, text: str, on_error: str) -> None:
        if on_error == "panic":
            self._service.log.panic(self._location, text)
        self._service.log.error(self._location, text)
        if on_error == "fail":
            raise RpcError(Code.INTERNAL, text)
