"""Steps that read and write sorted sets, of which timelines and lists of followers consist."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.status import BadRequest
from faultset.collector.runtime.steps.storage import StoreStep, flattened


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
        """Return a function that reads; ranks that are no numbers are refused as a wrong request."""
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
