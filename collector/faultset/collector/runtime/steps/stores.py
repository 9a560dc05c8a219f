"""Steps that read and write stores: caches, documents, sorted sets and files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.status import BadRequest, Code, RpcError
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores.driver import StoreError

T = TypeVar("T")
OnError = Literal["fail", "ignore", "panic"]


class StoreStep(Step):
    """The fields that these steps share."""

    store: str
    """The store, one of the service's `stores`."""
    span: str | None = None
    """Name of the span around the request to the store; none when left out."""
    error_log: str | None = None
    """Line that is logged when the store fails, with `{error}`; none when left out."""
    error_message: str | None = None
    """Reason with which the request fails then, with `{error}`; the store's when left out."""
    on_error: OnError = "fail"
    """Whether a failing store fails the request, does nothing more, or ends the process (`panic`)."""

    async def use_store(
        self,
        service: ServiceContext,
        location: str,
        request: RequestContext,
        use: Callable[[], Awaitable[T]],
        instead: T,
    ) -> T:
        """Return what the store answers, or something else when its failure is ignored; raise RpcError.

        Parameters
        ----------
        use
            Asks the store.
        """
        try:
            with service.store_span(request, self.store, self.span):
                return await use()
        except StoreError as error:
            text = (self.error_log or "{error}").replace("{error}", str(error))
            if self.on_error == "panic":
                service.log.panic(location, text)
            if self.error_log is not None:
                service.log.error(location, text)
            if self.on_error == "ignore":
                return instead
            message = (self.error_message or "{error}").replace("{error}", str(error))
            raise RpcError(Code.INTERNAL, message) from None


def flattened(value: Any) -> list[Any]:
    """Return the distinct elements of a list and of the lists inside it, without absent elements.

    >>> flattened(["1", ["2", "1"], None])
    ['1', '2']
    """
    found: dict[Any, None] = {}
    for one in value if isinstance(value, (list, tuple)) else [value]:
        for element in flattened(one) if isinstance(one, (list, tuple)) else [one]:
            if element is not None:
                found[element] = None
    return list(found)


class CachedDocuments(Step):
    """Documents by key through a cache: one multi-get, then the store for missing keys; the cache is filled.

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
        """Read missing documents from the store and cache them."""
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


class FindDocuments(StoreStep):
    """Find one document by its key, several by theirs, or those that a key of an appended collection has."""

    keyword = "find_documents"
    collection: str
    """The collection that has the documents."""
    key: Any = None
    """Key of one document, which is saved; nothing is saved as that when there is none."""
    keys: Any = None
    """Keys of several documents in place of `key`; a list of those that exist is saved."""
    appended: bool = False
    """Whether the collection is an appended one: a list of the documents of `key` is saved, the newest first."""
    newest: int | None = Field(default=None, ge=1)
    """Of an appended collection: how many documents at most; all when left out."""
    save: str
    """Name of the result for later steps."""

    @model_validator(mode="after")
    def _has_one_kind_of_keys(self) -> FindDocuments:
        if (self.key is None) == (self.keys is None):
            raise ValueError("either key or keys is needed, and not both")
        if self.appended and self.key is None:
            raise ValueError("an appended collection is read by one key")
        return self

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that finds; without a key it asks for nothing."""
        store, given_of = service.stores[self.store], getter(self.keys if self.key is None else self.key)

        async def texts(given: Any) -> list[str | None]:
            if self.appended:
                return [*reversed(await store.find_appended(self.collection, str(given), self.newest))]
            if self.key is not None:
                return [await store.find(self.collection, str(given))]
            return await store.find_many(self.collection, [str(key) for key in given])

        async def handle(request: RequestContext) -> None:
            given = given_of(request.values)
            given = given if self.key is not None else flattened(given or [])
            found: list[str | None] = []
            if given not in (None, "", []):
                found = await self.use_store(service, location, request, lambda: texts(given), found)
            documents = [json.loads(text) for text in found if text]
            is_one = self.key is not None and not self.appended
            request.values[self.save] = next(iter(documents), None) if is_one else documents

        return handle


class WriteDocuments(StoreStep):
    """Insert documents, add them to those of their keys, or change fields of documents that exist."""

    keyword = "write_documents"
    collection: str
    """The collection that gets the documents."""
    documents: Any
    """A document (a mapping), or a list of them; nothing happens when it is empty."""
    key: str
    """Name of the field whose value is a document's key."""
    how: Literal["insert", "append", "update"] = "insert"
    """`insert` puts a document in the place of any of its key, `append` (to an appended collection) keeps those,
    `update` gives new fields to the document that exists, and leaves out one that does not."""

    def stores_written(self) -> tuple[str, ...]:
        """Return the store."""
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that writes."""
        store, documents_of = service.stores[self.store], getter(self.documents)

        async def write(documents: list[dict[str, Any]]) -> None:
            keys = [str(document[self.key]) for document in documents]
            if self.how == "update":
                before = await store.find_many(self.collection, keys)
                documents = [{**json.loads(old or "{}"), **new} for old, new in zip(before, documents, strict=True)]
                kept = [number for number, old in enumerate(before) if old is not None]
                keys, documents = [keys[number] for number in kept], [documents[number] for number in kept]
            texts = [json.dumps(document) for document in documents]
            if self.how == "append":
                await store.append_all(self.collection, list(zip(keys, texts, strict=True)))
            elif keys:
                await store.insert(self.collection, dict(zip(keys, texts, strict=True)))

        async def handle(request: RequestContext) -> None:
            given = documents_of(request.values)
            documents: list[dict[str, Any]] = [given] if isinstance(given, dict) else list(given or ())
            if documents:
                await self.use_store(service, location, request, lambda: write(documents), None)

        return handle


class PushSorted(StoreStep):
    """Add members with scores to one sorted set, or the same ones to many, in one request to the store."""

    keyword = "push_sorted"
    keys: Any
    """Key of a set, or a list of keys; lists inside it count as their elements, and each key once."""
    members: Any
    """A list of mappings with `member` and `score`, a number; nothing happens when it or `keys` is empty."""
    at_most: int | None = Field(default=None, ge=1)
    """How many members a set keeps, those with the highest scores; all when left out."""

    def stores_written(self) -> tuple[str, ...]:
        """Return the store."""
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that adds."""
        store, keys_of, members_of = service.stores[self.store], getter(self.keys), getter(self.members)

        async def handle(request: RequestContext) -> None:
            keys = [str(key) for key in flattened(keys_of(request.values))]
            members = {str(one["member"]): float(one["score"]) for one in members_of(request.values) or ()}
            if keys and members:
                sets = dict.fromkeys(keys, members)
                await self.use_store(service, location, request, lambda: store.add_sorted(sets, self.at_most), None)

        return handle


class RangeSorted(StoreStep):
    """Read a sorted set from one rank up to another; an empty list is saved when there is no such set."""

    keyword = "range_sorted"
    key: Any
    """Key of the set."""
    start: Any = 0
    """First rank, from 0 on."""
    stop: Any = 1_000_000
    """Rank at which the range ends; it is left out itself."""
    highest_first: bool = True
    """Whether rank 0 has the highest score, or the lowest."""
    save: str
    """Name under which the list of members is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that reads; ranks that are not numbers make the request fail."""
        store, key_of = service.stores[self.store], getter(self.key)
        start_of, stop_of = getter(self.start), getter(self.stop)

        async def handle(request: RequestContext) -> None:
            key = str(key_of(request.values))
            try:
                start, stop = int(start_of(request.values)), int(stop_of(request.values))
            except (TypeError, ValueError):
                raise BadRequest(400, "ranks are whole numbers") from None
            found: list[str] = []
            if 0 <= start < stop:
                found = await self.use_store(
                    service,
                    location,
                    request,
                    lambda: store.range_sorted(key, start, stop, highest_first=self.highest_first),
                    found,
                )
            request.values[self.save] = found

        return handle
