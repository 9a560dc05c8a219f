"""Steps that read and write the documents of a database."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.steps.storage import StoreStep, flattened


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
    """Name under which what was found is kept for later steps."""

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
