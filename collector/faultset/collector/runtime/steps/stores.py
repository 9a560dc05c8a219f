"""Steps that read and write stores: caches, documents and sorted sets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.http.status import BadRequest, Code, RpcError
from faultset.collector.runtime.steps.step import Step, getter
from faultset.collector.runtime.stores.driver import StoreError

T = TypeVar("T")
OnError = Literal["fail", "ignore", "panic"]


class StoreStep(Step):
    """Fields that the steps for stores share."""

    store: str
    """The store, one of the service's `stores`."""
    span: str | None = None
    """Name of the span around the request to the store; by default there is none."""
    error_log: str | None = None
    """Line that is logged if the store fails, with `{error}`; by default none."""
    error_message: str | None = None
    """Description of the request's failure, with `{error}`; by default the error of the store."""
    on_error: OnError = "fail"
    """Whether a failure of the store fails the request, is ignored, or ends the process (`panic`)."""

    async def use_store(
        self,
        service: ServiceContext,
        location: str,
        request: RequestContext,
        use: Callable[[], Awaitable[T]],
        fallback: T,
    ) -> T:
        """Return the result of `use`, or the fallback after an ignored failure; raise RpcError if it fails."""
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
                return fallback
            message = (self.error_message or "{error}").replace("{error}", str(error))
            raise RpcError(Code.INTERNAL, message) from None


def flatten(value: Any) -> list[Any]:
    """Return the distinct elements of a list and of the lists inside it, without absent elements.

    >>> flatten(["1", ["2", "1"], None])
    ['1', '2']
    """
    elements: dict[Any, None] = {}
    for item in value if isinstance(value, (list, tuple)) else [value]:
        for element in flatten(item) if isinstance(item, (list, tuple)) else [item]:
            if element is not None:
                elements[element] = None
    return list(elements)


class CachedDocuments(Step):
    """Read documents through a cache: one request for all keys, then the database for missing ones.

    The documents from the database are added to the cache. A failure of the cache or of the database can end the
    process (`panic`) or fail the request. Alternatively, a failing cache is skipped, and for a failing database an
    empty record is returned *and cached*.
    """

    keyword = "cached_documents"
    keys: Any
    """Keys of the documents, a list."""
    cache: str
    """The cache, one of the service's `stores`."""
    cache_span: str
    """Name of the span around the request to the cache."""
    cache_error: str
    """Line that is logged if the cache fails, with `{keys}` and `{error}`."""
    on_cache_error: Literal["panic", "fail", "skip"] = "panic"
    """If the cache fails, `panic` ends the process, `fail` fails the request, and `skip` reads the database instead."""
    fill_span: str | None = None
    """Name of the span around filling the cache; by default it is filled in the background, without a span."""
    store: str
    """The database, one of the service's `stores`."""
    collection: str
    """The database's collection of the documents."""
    store_span: str
    """Name of the span around each request to the database."""
    store_error: str
    """Line that is logged if the database fails, with `{key}` and `{error}`."""
    on_store_error: Literal["panic", "fail", "cache_empty"] = "panic"
    """If the database fails, `panic` ends the process, `fail` fails the request, and `cache_empty` returns and caches
    an empty record."""
    misses: Literal["one_by_one", "together"] = "one_by_one"
    """`together` reads all missing keys in one request; `one_by_one` uses a request for each, and also caches that a
    document does not exist."""
    save: str
    """Name under which the list of documents is saved for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        keys_of, reader = getter(self.keys), _Reader(self, service, location)

        async def handle(request: RequestContext) -> None:
            keys = [str(key) for key in keys_of(request.values) or ()]
            texts = dict(zip(keys, await reader.read_cache(request, keys), strict=True)) if keys else {}
            missing = [key for key, text in texts.items() if text is None]
            if missing:
                await reader.fill(request, texts, missing)
            request.values[self.save] = [json.loads(text) for key in keys if (text := texts[key])]

        return handle


class _Reader:
    """Reads documents of one step from its cache and its store."""

    def __init__(self, step: CachedDocuments, service: ServiceContext, location: str):
        self._step, self._service, self._location = step, service, location
        self._cache, self._store = service.stores[step.cache], service.stores[step.store]

    async def read_cache(self, request: RequestContext, keys: list[str]) -> list[str | None]:
        step = self._step
        try:
            with self._service.store_span(request, step.cache, step.cache_span):
                return await self._cache.get_many(keys)
        except StoreError as error:
            key_list = self._service.persona.format_list(keys)
            self._report(step.cache_error.format(keys=key_list, error=error), step.on_cache_error)
            return [None] * len(keys)

    async def fill(self, request: RequestContext, documents: dict[str, str | None], missing: list[str]) -> None:
        if self._step.misses == "together":
            texts = dict(zip(missing, await self._read_store(request, missing), strict=True))
            new = {key: text for key, text in texts.items() if text is not None}
        else:
            new = {}
            for key in missing:
                (text,) = await self._read_store(request, [key])
                new[key] = text or ""
                if self._step.fill_span is None:
                    self._cache.set_later(key, new[key])
        documents.update(new)
        if self._step.fill_span is None and self._step.misses == "together":
            for key, text in new.items():
                self._cache.set_later(key, text)
        elif self._step.fill_span is not None and new:
            with (
                contextlib.suppress(StoreError),
                self._service.store_span(request, self._step.cache, self._step.fill_span),
            ):
                await self._cache.set_many(new)

    async def _read_store(self, request: RequestContext, keys: list[str]) -> list[str | None]:
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
    """Find one document by key, several by their keys, or all documents of a key of an append-only collection."""

    keyword = "find_documents"
    collection: str
    """The collection of the documents."""
    key: Any = None
    """Key of one document; if it does not exist, the saved value is empty."""
    keys: Any = None
    """Keys of several documents, instead of `key`; the list of existing documents is saved."""
    appended: bool = False
    """Whether the collection is append-only; if so, the list of the documents of `key` is saved, newest first."""
    newest: int | None = Field(default=None, ge=1)
    """Maximum number of documents from an append-only collection; by default all."""
    save: str
    """Name under which the result is saved for later steps."""

    @model_validator(mode="after")
    def _check_keys(self) -> FindDocuments:
        if (self.key is None) == (self.keys is None):
            raise ValueError("find_documents must have either key or keys; give one of them")
        if self.appended and self.key is None:
            raise ValueError("an append-only collection must be read with key, not keys")
        return self

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        store, selection_of = service.stores[self.store], getter(self.keys if self.key is None else self.key)

        async def read(selection: Any) -> list[str | None]:
            if self.appended:
                return [*reversed(await store.find_appended(self.collection, str(selection), self.newest))]
            if self.key is not None:
                return [await store.find(self.collection, str(selection))]
            return await store.find_many(self.collection, [str(key) for key in selection])

        async def handle(request: RequestContext) -> None:
            selection = selection_of(request.values)
            selection = selection if self.key is not None else flatten(selection or [])
            texts: list[str | None] = []
            if selection not in (None, "", []):
                texts = await self.use_store(service, location, request, lambda: read(selection), texts)
            documents = [json.loads(text) for text in texts if text]
            is_one = self.key is not None and not self.appended
            request.values[self.save] = next(iter(documents), None) if is_one else documents

        return handle


class WriteDocuments(StoreStep):
    """Insert documents, append them to a collection, or change fields of existing documents."""

    keyword = "write_documents"
    collection: str
    """The collection to write to."""
    documents: Any
    """A document (a mapping) or a list of documents; if empty, nothing is written."""
    key: str
    """Name of the field whose value is a document's key."""
    how: Literal["insert", "append", "update"] = "insert"
    """`insert` replaces a document with the same key. `append`, for append-only collections, adds to the documents of
    the key. `update` sets fields of an existing document and ignores keys without one."""

    def stores_written(self) -> tuple[str, ...]:
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        store, documents_of = service.stores[self.store], getter(self.documents)

        async def write(documents: list[dict[str, Any]]) -> None:
            keys = [str(document[self.key]) for document in documents]
            if self.how == "update":
                before = await store.find_many(self.collection, keys)
                documents = [{**json.loads(old or "{}"), **new} for old, new in zip(before, documents, strict=True)]
                existing = [index for index, old in enumerate(before) if old is not None]
                keys, documents = [keys[index] for index in existing], [documents[index] for index in existing]
            texts = [json.dumps(document) for document in documents]
            if self.how == "append":
                await store.append_all(self.collection, list(zip(keys, texts, strict=True)))
            elif keys:
                await store.insert(self.collection, dict(zip(keys, texts, strict=True)))

        async def handle(request: RequestContext) -> None:
            value = documents_of(request.values)
            documents: list[dict[str, Any]] = [value] if isinstance(value, dict) else list(value or ())
            if documents:
                await self.use_store(service, location, request, lambda: write(documents), None)

        return handle


class PushSorted(StoreStep):
    """Add members with scores to one or several sorted sets, in one request to the store."""

    keyword = "push_sorted"
    keys: Any
    """Key of a set, or a list of keys. Nested lists are flattened, and repeated keys count once."""
    members: Any
    """A list of mappings with `member` and a number `score`; if it or `keys` is empty, nothing is written."""
    at_most: int | None = Field(default=None, ge=1)
    """Maximum number of members of a set; the members with the highest scores are kept. By default all are kept."""

    def stores_written(self) -> tuple[str, ...]:
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        store, keys_of, members_of = service.stores[self.store], getter(self.keys), getter(self.members)

        async def handle(request: RequestContext) -> None:
            keys = [str(key) for key in flatten(keys_of(request.values))]
            members = {str(entry["member"]): float(entry["score"]) for entry in members_of(request.values) or ()}
            if keys and members:
                sets = dict.fromkeys(keys, members)
                await self.use_store(service, location, request, lambda: store.add_sorted(sets, self.at_most), None)

        return handle


class RangeSorted(StoreStep):
    """Read a range of ranks of a sorted set; if the set does not exist, the saved list is empty."""

    keyword = "range_sorted"
    key: Any
    """Key of the set."""
    start: Any = 0
    """First rank of the range; ranks begin at 0."""
    stop: Any = 1_000_000
    """Rank at which the range ends, exclusive."""
    highest_first: bool = True
    """Whether rank 0 has the highest score or, if false, the lowest."""
    save: str
    """Name under which the list of members is saved for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        store, key_of = service.stores[self.store], getter(self.key)
        start_of, stop_of = getter(self.start), getter(self.stop)

        async def handle(request: RequestContext) -> None:
            key = str(key_of(request.values))
            try:
                start, stop = int(start_of(request.values)), int(stop_of(request.values))
            except (TypeError, ValueError):
                raise BadRequest(400, "ranks must be whole numbers") from None
            members: list[str] = []
            if 0 <= start < stop:
                members = await self.use_store(
                    service,
                    location,
                    request,
                    lambda: store.range_sorted(key, start, stop, highest_first=self.highest_first),
                    members,
                )
            request.values[self.save] = members

        return handle
