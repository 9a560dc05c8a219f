"""Carries out the steps of operations: each is compiled once, at the service's start, to a function."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from opentelemetry.context import Context

from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import BadRequest
from faultset.collector.runtime.signals.logs import Log
from faultset.collector.runtime.signals.tracing import Tracing
from faultset.collector.runtime.stores.client import StoreClient
from faultset.collector.spec import steps as spec
from faultset.collector.spec.app import Operation

_EARTH_KM = 6371.0


@dataclass(kw_only=True)
class Scope:
    """What one request knows so far."""

    known: dict[str, Any]
    context: Context
    ids: str = ""
    reply: Any = None
    bookings: dict[str, int] = field(default_factory=dict)


Index = dict[str, dict[str, Any]]
Act = Callable[[Scope], Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the steps of one service can use."""

    caller: Caller
    stores: Mapping[str, StoreClient]
    databases: Mapping[str, str]
    indexes: dict[str, Index]
    log: Log
    tracing: Tracing


@dataclass(frozen=True, kw_only=True)
class Site:
    """The place in the modelled source that a log line names."""

    log: Log
    caller: str

    def panic(self, text: str) -> NoReturn:
        """End the process as a panic there would."""
        self.log.panic(self.caller, text)


def burn(cpu_ms: float) -> None:
    """Use CPU time of this thread, however long that takes on a busy or throttled machine."""
    end = time.thread_time() + cpu_ms / 1000
    block = bytes(512)
    while time.thread_time() < end:
        block = hashlib.sha512(block).digest() * 8


def compile_operation(operation: Operation, around: Surroundings) -> Callable[[Scope], Awaitable[Any]]:
    """Return a function that carries out an operation and returns its reply."""
    site = Site(log=around.log, caller=operation.caller)
    acts = [_compile(step.does, site, around) for step in operation.steps]

    async def run(scope: Scope) -> Any:
        if operation.work_ms:
            burn(operation.work_ms)
        for act in acts:
            waiting = act(scope)
            if waiting is not None:
                await waiting
        return scope.reply

    return run


def _compile(step: spec.Behaviour, site: Site, around: Surroundings) -> Act:
    from faultset.collector.runtime.stores import caching

    match step:
        case spec.Require():
            return _require(step)
        case spec.Call():
            return _call(step, site, around)
        case spec.Work():
            return lambda scope: burn(step.cpu_ms)
        case spec.Nearby():
            return _nearby(step, around)
        case spec.PickBest():
            return _pick_best(step, site, around)
        case spec.CheckPassword():
            return _check_password(step, around)
        case spec.CachedDocuments():
            return caching.cached_documents(step, site, around)
        case spec.Availability():
            return caching.availability(step, site, around)
        case spec.Insert():
            return caching.insert(step, site, around)
        case spec.Respond():
            return _respond(step)


def _require(step: spec.Require) -> Act:
    def act(scope: Scope) -> None:
        for name in step.fields:
            value = scope.known.get(name)
            if value in (None, "") or (step.one_of and value not in step.one_of):
                raise BadRequest(step.status, step.message)
            if step.numbers:
                try:
                    scope.known[name] = float(value)
                except ValueError:
                    raise BadRequest(step.status, step.message) from None

    return act


def _call(step: spec.Call, site: Site, around: Surroundings) -> Act:
    send = getter(step.send)

    async def act(scope: Scope) -> None:
        try:
            reply = await around.caller.call(step.service, step.operation, send(scope.known), scope.context)
        except Exception:
            if step.error_log is not None:
                site.log.error(site.caller, step.error_log)
            raise
        scope.known[step.save] = reply

    return act


def _distance_km(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    a, b = math.radians(lat1), math.radians(lat2)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))


def _by_distance(index: Index, lat: float, lon: float) -> list[tuple[float, str]]:
    return sorted((_distance_km(lat, lon, item["lat"], item["lon"]), key) for key, item in index.items())


def _nearby(step: spec.Nearby, around: Surroundings) -> Act:
    lat, lon = getter(step.lat), getter(step.lon)

    def act(scope: Scope) -> None:
        found = _by_distance(around.indexes[step.index], float(lat(scope.known)), float(lon(scope.known)))
        scope.known[step.save] = [key for distance, key in found[: step.limit] if distance <= step.radius_km]

    return act


def _pick_best(step: spec.PickBest, site: Site, around: Surroundings) -> Act:
    by = getter(step.by)
    points = {
        name: (getter(way.nearest_to[0]), getter(way.nearest_to[1]))
        for name, way in step.ways.items()
        if way.nearest_to
    }

    def act(scope: Scope) -> None:
        index, name = around.indexes[step.index], by(scope.known)
        way = step.ways.get(name)
        keys: Sequence[str] = ()
        if way is None:
            site.log.warning(site.caller, step.unknown_log.format(by=name))
        elif index:
            if way.nearest_to is not None:
                lat, lon = points[name]
                ranked = _by_distance(index, float(lat(scope.known)), float(lon(scope.known)))
            else:
                which, sign = (way.largest, -1.0) if way.largest is not None else (str(way.smallest), 1.0)
                ranked = sorted((sign * item[which], key) for key, item in index.items())
            keys = [key for value, key in ranked if value == ranked[0][0]][: step.limit]
        scope.known[step.save] = list(keys)

    return act


def _check_password(step: spec.CheckPassword, around: Surroundings) -> Act:
    username, password = getter(step.username), getter(step.password)

    def act(scope: Scope) -> None:
        user = around.indexes[step.index].get(username(scope.known))
        digest = hashlib.sha256(str(password(scope.known)).encode()).hexdigest()
        scope.known[step.save] = user is not None and user["password"] == digest

    return act


def _respond(step: spec.Respond) -> Act:
    when, reply, otherwise = getter(step.when), getter(step.json_), getter(step.otherwise)

    def act(scope: Scope) -> None:
        scope.reply = (reply if when(scope.known) else otherwise)(scope.known)

    return act
