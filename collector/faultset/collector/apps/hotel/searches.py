"""Steps that read an index: find hotels by distance, rate or price, and check passwords of users."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from faultset.collector.runtime.context import DocumentIndex, RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.steps.step import Step
from faultset.collector.spec.steps import FrozenModel

_EARTH_RADIUS_KM = 6371.0


class Nearby(Step):
    """Find at most `limit` keys of an index within `radius_km`, the nearest first."""

    keyword = "nearby"
    index: str
    lat: Any
    lon: Any
    radius_km: float
    limit: int
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the keys."""
        lat, lon = getter(self.lat), getter(self.lon)

        def handle(request: RequestContext) -> None:
            index = service.indexes[self.index]
            hotels = _sort_by_distance(index, float(lat(request.values)), float(lon(request.values)))
            request.values[self.save] = [key for distance, key in hotels[: self.limit] if distance <= self.radius_km]

        return handle


class Criterion(FrozenModel):
    """A ranking: nearest to a point, or by the largest or smallest value of a field."""

    nearest_to: tuple[Any, Any] | None = None
    largest: str | None = None
    smallest: str | None = None


class PickBest(Step):
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

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the keys."""
        by = getter(self.by)
        points = {
            name: (getter(criterion.nearest_to[0]), getter(criterion.nearest_to[1]))
            for name, criterion in self.criteria.items()
            if criterion.nearest_to
        }

        def handle(request: RequestContext) -> None:
            index, name = service.indexes[self.index], by(request.values)
            criterion = self.criteria.get(name)
            keys: Sequence[str] = ()
            if criterion is None:
                service.log.warning(location, self.unknown_log.format(by=name))
            elif index:
                if criterion.nearest_to is not None:
                    lat, lon = points[name]
                    ranked = _sort_by_distance(index, float(lat(request.values)), float(lon(request.values)))
                else:
                    largest = criterion.largest
                    field, sign = (largest, -1.0) if largest is not None else (str(criterion.smallest), 1.0)
                    ranked = sorted((sign * item[field], key) for key, item in index.items())
                keys = [key for value, key in ranked if value == ranked[0][0]][: self.limit]
            request.values[self.save] = list(keys)

        return handle


class CheckPassword(Step):
    """Check whether an index has the user with this password (stored as SHA-256)."""

    keyword = "check_password"
    index: str
    username: Any
    password: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves true or false."""
        username, password = getter(self.username), getter(self.password)

        def handle(request: RequestContext) -> None:
            user = service.indexes[self.index].get(username(request.values))
            digest = hashlib.sha256(str(password(request.values)).encode()).hexdigest()
            request.values[self.save] = user is not None and user["password"] == digest

        return handle


def _distance_km(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    a, b = math.radians(lat1), math.radians(lat2)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * _EARTH_RADIUS_KM * math.asin(math.sqrt(half))


def _sort_by_distance(index: DocumentIndex, lat: float, lon: float) -> list[tuple[float, str]]:
    return sorted((_distance_km(lat, lon, item["lat"], item["lon"]), key) for key, item in index.items())
