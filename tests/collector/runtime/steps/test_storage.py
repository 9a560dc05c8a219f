"""Steps that read and write documents, sorted sets and caches, on stores in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import pytest
from pydantic import ValidationError

from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.http.status import BadRequest, RpcError
from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.steps.stores import (
    CachedDocuments,
    FindDocuments,
    PushSorted,
    RangeSorted,
    WriteDocuments,
)
from faultset.collector.runtime.stores.driver import StoreError


class Store:
    """A store in memory, which can fail."""

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.sets: dict[str, dict[str, float]] = {}
        self.fails = False
        self.asked = 0

    def _ask(self) -> None:
        self.asked += 1
        if self.fails:
            raise StoreError("broken", "it is broken")

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        self._ask()
        self.documents.update(documents)

    async def append_all(self, collection: str, documents: Sequence[tuple[str, str]]) -> None:
        self._ask()
        for key, document in documents:
            self.lists.setdefault(key, []).append(document)

    async def find(self, collection: str, key: str) -> str | None:
        self._ask()
        return self.documents.get(key)

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        self._ask()
        return [self.documents.get(key) for key in keys]

    async def find_appended(self, collection: str, key: str, newest: int | None = None) -> list[str]:
        self._ask()
        return self.lists.get(key, [])[-(newest or 0) :]

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        return await self.find_many("", keys)

    async def set_many(self, values: Mapping[str, str]) -> None:
        await self.insert("", values)

    def set_later(self, key: str, value: str) -> None:
        self.documents[key] = value

    async def add_sorted(self, sets: Mapping[str, Mapping[str, float]], at_most: int | None = None) -> None:
        self._ask()
        for name, members in sets.items():
            self.sets.setdefault(name, {}).update(members)

    async def range_sorted(self, name: str, start: int, stop: int, *, highest_first: bool) -> list[str]:
        self._ask()
        ranked = sorted(self.sets.get(name, {}), key=self.sets.get(name, {}).__getitem__, reverse=highest_first)
        return ranked[start:stop]


class Service:
    """What steps use of their service."""

    def __init__(self) -> None:
        self.db, self.cache = Store(), Store()
        self.stores = {"db": self.db, "cache": self.cache}
        self.persona, self.log = Persona(), self
        self.lines: list[str] = []
        self.spans: list[str] = []

    @contextmanager
    def store_span(self, request: RequestContext, store: str, name: str | None) -> Iterator[None]:
        self.spans += [name] if name else []
        yield

    def error(self, location: str, message: str) -> None:
        self.lines.append(message)

    def panic(self, location: str, message: str) -> NoReturn:
        raise SystemExit(message)

    def do(self, step: Step, **values: Any) -> dict[str, Any]:
        request = RequestContext(values=values, trace=None)
        waiting = step.compile(cast(Any, self), "here")(request)
        asyncio.run(waiting)  # type: ignore[arg-type]
        return request.values


@pytest.fixture
def service() -> Service:
    return Service()


DOCUMENTS: dict[str, Any] = {"store": "db", "collection": "c"}


def test_documents_are_written_and_found_by_key(service: Service) -> None:
    write = WriteDocuments(**DOCUMENTS, documents="$new", key="id", span="write")
    service.do(write, new=[{"id": 1, "n": "a"}, {"id": 2, "n": "b"}])
    service.do(write, new={"id": 3, "n": "c"})
    one = FindDocuments(**DOCUMENTS, key="$k", save="found", span="find")
    assert service.do(one, k=2)["found"] == {"id": 2, "n": "b"}
    assert service.do(one, k=9)["found"] is None
    many = FindDocuments(**DOCUMENTS, keys="$ks", save="found")
    assert [found["n"] for found in service.do(many, ks=[3, 9, 1])["found"]] == ["c", "a"]
    assert service.spans == ["write", "write", "find", "find"]


def test_nothing_is_asked_for_without_a_key_and_nothing_written_without_documents(service: Service) -> None:
    service.do(WriteDocuments(**DOCUMENTS, documents="$new", key="id", span="w"), new=[])
    assert service.do(FindDocuments(**DOCUMENTS, key="$k", save="found", span="f"))["found"] is None
    assert service.do(FindDocuments(**DOCUMENTS, keys="$k", save="found", span="f"), k=[])["found"] == []
    assert (service.db.asked, service.spans) == (0, [])


def test_an_update_changes_fields_of_what_exists_only(service: Service) -> None:
    service.db.documents = {"1": '{"id": 1, "n": "a", "m": 5}'}
    step = WriteDocuments(**DOCUMENTS, documents="$new", key="id", how="update")
    service.do(step, new=[{"id": 1, "n": "b"}, {"id": 2, "n": "x"}])
    assert {key: json.loads(text) for key, text in service.db.documents.items()} == {"1": {"id": 1, "n": "b", "m": 5}}


def test_an_appended_collection_gives_its_newest_first(service: Service) -> None:
    step = WriteDocuments(**DOCUMENTS, documents="$new", key="u", how="append")
    for number in range(3):
        service.do(step, new={"u": "a", "p": number})
    find = FindDocuments(**DOCUMENTS, key="a", appended=True, newest=2, save="found")
    assert [one["p"] for one in service.do(find)["found"]] == [2, 1]


def test_either_one_key_or_several_are_given() -> None:
    wrong_ones: list[dict[str, Any]] = [{}, {"key": "$a", "keys": "$b"}, {"keys": "$b", "appended": True}]
    for wrong in wrong_ones:
        with pytest.raises(ValidationError):
            FindDocuments(**DOCUMENTS, save="x", **wrong)


def test_members_are_pushed_to_each_key_once_and_read_by_rank(service: Service) -> None:
    push = PushSorted(store="cache", keys=["$followers", "$mentioned"], members=[{"member": "$id", "score": "$t"}])
    service.do(push, followers=["a", "b"], mentioned=["b", None], id="p1", t=1)
    service.do(push, followers=["a"], id="p2", t=2)
    assert service.cache.sets == {"a": {"p1": 1.0, "p2": 2.0}, "b": {"p1": 1.0}}
    read = RangeSorted(store="cache", key="a", start="$from", stop="$to", save="ids")
    assert service.do(read, **{"from": "0", "to": "10"})["ids"] == ["p2", "p1"]
    assert service.do(read, **{"from": 1, "to": 2})["ids"] == ["p1"]
    assert service.do(read, **{"from": 2, "to": 2})["ids"] == []
    with pytest.raises(BadRequest):
        service.do(read, **{"from": "x", "to": 2})


def test_a_failing_store_fails_the_request_does_nothing_or_ends_the_process(service: Service) -> None:
    service.db.fails = True
    given = {**DOCUMENTS, "key": "1", "save": "found", "error_log": "cannot: {error}"}
    with pytest.raises(RpcError) as caught:
        service.do(FindDocuments(**given, error_message="failed ({error})"))
    assert (caught.value.description, service.lines) == ("failed (it is broken)", ["cannot: it is broken"])
    assert service.do(FindDocuments(**given, on_error="ignore"))["found"] is None
    with pytest.raises(SystemExit, match="cannot: it is broken"):
        service.do(FindDocuments(**given, on_error="panic"))


CACHED: dict[str, Any] = {
    **DOCUMENTS, "keys": "$ks", "cache": "cache", "cache_span": "get", "cache_error": "cache {keys}: {error}",
    "store_span": "find", "store_error": "store {key}: {error}", "save": "found",
}  # fmt: skip


def test_misses_are_asked_for_together_and_fill_the_cache(service: Service) -> None:
    service.db.documents = {"1": '{"n": 1}', "2": '{"n": 2}'}
    service.cache.documents = {"3": '{"n": 3}'}
    step = CachedDocuments(**CACHED, misses="together", fill_span="fill")
    assert service.do(step, ks=[3, 2, 7, 1])["found"] == [{"n": 3}, {"n": 2}, {"n": 1}]
    assert (service.spans, set(service.cache.documents)) == (["get", "find", "fill"], {"1", "2", "3"})
    assert service.db.asked == 1


def test_misses_are_asked_for_one_by_one_and_absence_is_cached(service: Service) -> None:
    service.db.documents = {"1": '{"n": 1}'}
    assert service.do(CachedDocuments(**CACHED), ks=[1, 7])["found"] == [{"n": 1}]
    assert (service.spans, service.cache.documents["7"]) == (["get", "find", "find"], "")
    assert service.do(CachedDocuments(**CACHED), ks=[7])["found"] == []
    assert service.db.asked == 2


def test_a_failing_cache_is_skipped_fails_the_request_or_ends_the_process(service: Service) -> None:
    service.cache.fails, service.db.documents = True, {"1": '{"n": 1}'}
    step = CachedDocuments(**CACHED, on_cache_error="skip", misses="together", fill_span="fill")
    assert service.do(step, ks=[1])["found"] == [{"n": 1}]
    assert service.lines == ["cache 1: it is broken"]
    with pytest.raises(RpcError, match="cache 1: it is broken"):
        service.do(CachedDocuments(**CACHED, on_cache_error="fail"), ks=[1])
    with pytest.raises(SystemExit):
        service.do(CachedDocuments(**CACHED), ks=[1])


def test_a_failing_store_behind_a_cache_fails_the_request_or_leaves_an_empty_record(service: Service) -> None:
    service.db.fails = True
    with pytest.raises(RpcError, match="store 1: it is broken"):
        service.do(CachedDocuments(**CACHED, on_store_error="fail"), ks=[1])
    assert service.cache.documents == {}
    assert service.do(CachedDocuments(**CACHED, on_store_error="cache_empty"), ks=[1])["found"] == [{}]
    assert service.cache.documents == {"1": "{}"}
