"""The steps that only HotelReservation needs."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from faultset.collector.runtime.context import DocumentIndex, RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.steps.step import Getter, Step, ValueStep, getter
from faultset.collector.runtime.stores.driver import StoreError
from faultset.collector.spec.steps import FrozenModel

_BOOKED = "booked"
"""Key of the note from `Availability` to `Insert`: reserved rooms by hotel and night."""
_EARTH_RADIUS_KM = 6371.0


def nights(first: str, last: str) -> list[tuple[str, str]]:
    """Return the pairs of consecutive days (`YYYY-MM-DD`) from `first` to `last`."""
    day, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    days = [day + datetime.timedelta(days=count) for count in range((end - day).days + 1)]
    return [(str(start), str(next_day)) for start, next_day in itertools.pairwise(days)]


class SpanNames(FrozenModel):
    """Names of the client spans of `Availability`; `{key}` is replaced by hotel and night."""

    capacity_cache: str | None = None
    capacity_store: str | None = None
    bookings_cache: str | None = None
    bookings_store: str | None = None


class Availability(Step):
    """Find hotels with at least `count` free rooms on every night of a stay, through a cache."""

    keyword = "availability"
    keys: Any
    nights: tuple[Any, Any]
    count: Any
    cache: str
    capacity_cache_error: str
    bookings_cache_error: str
    store: str
    capacity: str
    bookings: str
    store_error: str
    spans: SpanNames = SpanNames()
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        keys_of, count_of = getter(self.keys), getter(self.count)
        first_of, last_of = getter(self.nights[0]), getter(self.nights[1])
        lookup = _Lookup(self, service, location)

        async def handle(request: RequestContext) -> None:
            keys = [str(key) for key in keys_of(request.values) or ()]
            first, last = str(first_of(request.values)), str(last_of(request.values))
            free_keys: list[str] = []
            if keys:
                capacity = await lookup.read_capacities(request, keys, (first, last))
                days = nights(first, last)
                rooms = {
                    f"{key}_{night}_{next_day}": (key, night, next_day) for key in keys for night, next_day in days
                }
                reserved_counts = await lookup.count_bookings(request, rooms) if rooms else {}
                count = int(count_of(request.values) or 1)
                full = {
                    rooms[name][0]
                    for name, reserved in reserved_counts.items()
                    if reserved + count > capacity[rooms[name][0]]
                }
                free_keys = [key for key in keys if key not in full]
                request.notes[_BOOKED] = reserved_counts
            request.values[self.save] = free_keys

        return handle


class _Lookup:
    """Reads capacities and bookings of one `Availability`."""

    def __init__(self, step: Availability, service: ServiceContext, location: str):
        self._step, self._service, self._location = step, service, location
        self._cache, self._store = service.stores[step.cache], service.stores[step.store]

    async def read_capacities(self, request: RequestContext, keys: list[str], stay: tuple[str, str]) -> dict[str, int]:
        step, spans = self._step, self._step.spans
        names = [f"{key}_cap" for key in keys]
        cached = await self._read_cache(request, spans.capacity_cache, step.capacity_cache_error, names)
        missing = [key for key, text in zip(keys, cached, strict=True) if text is None]
        capacity = {key: int(text) for key, text in zip(keys, cached, strict=True) if text is not None}
        if missing:
            try:
                with self._service.store_span(request, step.store, spans.capacity_store):
                    documents = await self._store.find_many(step.capacity, missing)
            except StoreError as error:
                self._panic(self._service.persona.format_list(missing), stay, error)
            for key, text in zip(missing, documents, strict=True):
                capacity[key] = json.loads(text)["number"] if text else 0
                self._cache.set_later(f"{key}_cap", str(capacity[key]))
        return capacity

    async def count_bookings(self, request: RequestContext, rooms: dict[str, tuple[str, str, str]]) -> dict[str, int]:
        step, names = self._step, list(rooms)
        cached = await self._read_cache(request, step.spans.bookings_cache, step.bookings_cache_error, names)
        counts: dict[str, int] = {}
        for name, text in zip(names, cached, strict=True):
            if text is not None:
                counts[name] = int(text)
                continue
            key, first, last = rooms[name]
            span = step.spans.bookings_store
            try:
                with self._service.store_span(request, step.store, span and span.format(key=name)):
                    documents = await self._store.find_appended(step.bookings, name)
            except StoreError as error:
                self._panic(key, (first, last), error)
            counts[name] = sum(json.loads(document)["number"] for document in documents)
            self._cache.set_later(name, str(counts[name]))
        return counts

    async def _read_cache(
        self, request: RequestContext, span: str | None, text: str, keys: list[str]
    ) -> list[str | None]:
        try:
            with self._service.store_span(request, self._step.cache, span):
                return await self._cache.get_many(keys)
        except StoreError as error:
            key_list = self._service.persona.format_list(keys)
            self._service.log.panic(self._location, text.format(keys=key_list, error=error))

    def _panic(self, key: str, stay: tuple[str, str], error: StoreError) -> NoReturn:
        text = self._step.store_error.format(key=key, first=stay[0], last=stay[1], error=error)
        self._service.log.panic(self._location, text)


class Insert(Step):
    """Insert one document per night when `when` is not empty, and add `count` to the cached bookings."""

    keyword = "insert"
    when: Any
    key: Any
    nights: tuple[Any, Any]
    count: Any
    document: dict[str, Any]
    cache: str
    store: str
    collection: str
    store_error: str

    def stores_written(self) -> tuple[str, ...]:
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        when, key_of, count_of = getter(self.when), getter(self.key), getter(self.count)
        first_of, last_of, document_of = getter(self.nights[0]), getter(self.nights[1]), getter(self.document)
        store, cache = service.stores[self.store], service.stores[self.cache]

        async def handle(request: RequestContext) -> None:
            values = request.values
            if not when(values):
                return
            keys = key_of(values)
            key = str(keys[0] if isinstance(keys, list) else keys)
            count = int(count_of(values) or 1)
            reserved_counts = request.notes.get(_BOOKED, {})
            for first, last in nights(str(first_of(values)), str(last_of(values))):
                name = f"{key}_{first}_{last}"
                document = json.dumps({**document_of(values), "night": name, "number": count})
                try:
                    await store.append(self.collection, name, document)
                except StoreError as error:
                    service.log.panic(location, self.store_error.format(key=key, error=error))
                cache.set_later(name, str(reserved_counts.get(name, 0) + count))

        return handle


class Nearby(ValueStep):
    """Find at most `limit` keys of an index within `radius_km`, the nearest first."""

    keyword = "nearby"
    index: str
    lat: Any
    lon: Any
    radius_km: float
    limit: int
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        lat, lon = getter(self.lat), getter(self.lon)

        def find(values: Mapping[str, Any]) -> list[str]:
            hotels = _sort_by_distance(service.indexes[self.index], float(lat(values)), float(lon(values)))
            return [key for distance, key in hotels[: self.limit] if distance <= self.radius_km]

        return find


class Criterion(FrozenModel):
    """A ranking: nearest to a point, or by the largest or smallest value of a field."""

    nearest_to: tuple[Any, Any] | None = None
    largest: str | None = None
    smallest: str | None = None


class PickBest(ValueStep):
    """Find the documents of an index that rank first by the criterion `by`, at most `limit`.

    An unknown criterion is logged as a warning and finds nothing.
    """

    keyword = "pick_best"
    index: str
    limit: int
    by: Any
    criteria: dict[str, Criterion]
    unknown_log: str
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        by = getter(self.by)
        points = {
            name: (getter(criterion.nearest_to[0]), getter(criterion.nearest_to[1]))
            for name, criterion in self.criteria.items()
            if criterion.nearest_to
        }

        def find(values: Mapping[str, Any]) -> list[str]:
            index, name = service.indexes[self.index], by(values)
            criterion = self.criteria.get(name)
            if criterion is None:
                service.log.warning(location, self.unknown_log.format(by=name))
            if criterion is None or not index:
                return []
            if criterion.nearest_to is not None:
                lat, lon = points[name]
                ranked = _sort_by_distance(index, float(lat(values)), float(lon(values)))
            else:
                largest = criterion.largest
                field, sign = (largest, -1.0) if largest is not None else (str(criterion.smallest), 1.0)
                ranked = sorted((sign * item[field], key) for key, item in index.items())
            return [key for value, key in ranked if value == ranked[0][0]][: self.limit]

        return find


class CheckPassword(ValueStep):
    """Check whether an index has the user with this password (stored as SHA-256)."""

    keyword = "check_password"
    index: str
    username: Any
    password: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        username, password = getter(self.username), getter(self.password)

        def check(values: Mapping[str, Any]) -> bool:
            user = service.indexes[self.index].get(username(values))
            digest = hashlib.sha256(str(password(values)).encode()).hexdigest()
            return user is not None and user["password"] == digest

        return check


def _distance_km(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    a, b = math.radians(lat1), math.radians(lat2)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * _EARTH_RADIUS_KM * math.asin(math.sqrt(half))


def _sort_by_distance(index: DocumentIndex, lat: float, lon: float) -> list[tuple[float, str]]:
    return sorted((_distance_km(lat, lon, item["lat"], item["lon"]), key) for key, item in index.items())


STEPS = (Nearby, PickBest, CheckPassword, Availability, Insert)
"""All steps of this application."""
