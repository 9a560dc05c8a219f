"""State of the placement driver: timestamps, live stores, and the leader of each region."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Getter, Step, ValueStep, getter

REGIONS = 12
ROWS = 1200
"""Rows of the table, numbered from 1; each region has an equal share."""

DOWN_AFTER_S = 10.0
"""Seconds without a heartbeat after which a store loses its regions."""

_LOGICAL_BITS = 18


class KeyRegion(NamedTuple):
    """A range of rows, ends included, and the address of the store that leads it."""

    id: int
    first: int
    last: int
    leader: str


class NoLeader(Exception):
    """A region has no leader, because no store is up."""


def find_region(row: int) -> int:
    """Return the number of a row's region, counted from 0.

    >>> find_region(1), find_region(100), find_region(101), find_region(1200)
    (0, 0, 1, 11)
    """
    return min(REGIONS - 1, max(0, (row - 1) * REGIONS // ROWS))


def get_row_range(region: int) -> tuple[int, int]:
    """Return the first and the last row of a region.

    >>> get_row_range(1)
    (101, 200)
    """
    return region * ROWS // REGIONS + 1, (region + 1) * ROWS // REGIONS


class TimestampOracle:
    """Timestamps that also increase across restarts: milliseconds since 1970, and a counter."""

    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, int(self._clock() * 1000) << _LOGICAL_BITS)
        return self._last


def physical_s(timestamp: int) -> float:
    return (timestamp >> _LOGICAL_BITS) / 1000


class Placement:
    """The leader of each region, and the stores that are up."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen_s: dict[str, float] = {}
        self._leaders: dict[int, str] = {}

    def heartbeat(self, store: str) -> list[int]:
        """Record that a store is up; return the regions that it now leads."""
        self._seen_s[store] = self._clock()
        self._replace_leaders()
        self._balance()
        return sorted(region for region, leader in self._leaders.items() if leader == store)

    def region(self, row: int) -> KeyRegion:
        """Return the region of a row; raise NoLeader if no store is up."""
        self._replace_leaders()
        number = find_region(row)
        if number not in self._leaders:
            raise NoLeader(f"region {number} has no leader: no store is up")
        return KeyRegion(number, *get_row_range(number), self._leaders[number])

    def stores_up(self) -> list[str]:
        now_s = self._clock()
        return sorted(store for store, seen_s in self._seen_s.items() if now_s - seen_s <= DOWN_AFTER_S)

    def _replace_leaders(self) -> None:
        up = self.stores_up()
        self._leaders = {region: leader for region, leader in self._leaders.items() if leader in up}
        for region in range(REGIONS):
            if region not in self._leaders and up:
                self._leaders[region] = min(up, key=lambda store: (self._count(store), store))

    def _balance(self) -> None:
        """Move a region from the store with the most regions to the one with the fewest."""
        most, fewest = (choose(self.stores_up(), key=self._count) for choose in (max, min))
        if self._count(most) - self._count(fewest) > 1:
            region = max(region for region, leader in self._leaders.items() if leader == most)
            self._leaders[region] = fewest

    def _count(self, store: str) -> int:
        return sum(leader == store for leader in self._leaders.values())


_placements: WeakKeyDictionary[Caller, Placement] = WeakKeyDictionary()


def _placement_of(service: ServiceContext) -> Placement:
    return _placements.setdefault(service.caller, Placement())


class AllocateTimestamp(ValueStep):
    """Take a timestamp from the oracle."""

    keyword = "allocate_timestamp"
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        oracle = TimestampOracle()
        return lambda values: oracle.next()


class FindRegion(Step):
    """Find the region of a row and its leader; the request fails if no store is up."""

    keyword = "find_region"
    row: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        row_of, placement = getter(self.row), _placement_of(service)

        def handle(request: RequestContext) -> None:
            try:
                request.values[self.save] = placement.region(int(row_of(request.values)))._asdict()
            except NoLeader as error:
                service.log.warning(location, str(error))
                raise RpcError(Code.UNAVAILABLE, str(error)) from None

        return handle


class RegisterStore(Step):
    """Register a heartbeat of a store; return the regions that it leads."""

    keyword = "register_store"
    address: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        address_of, placement = getter(self.address), _placement_of(service)

        def handle(request: RequestContext) -> None:
            address = str(address_of(request.values))
            previous = placement.stores_up()
            request.values[self.save] = placement.heartbeat(address)
            if address not in previous:
                service.log.write("info", location, f"store is up, store {address}")
            for lost_store in set(previous) - set(placement.stores_up()):
                service.log.warning(location, f"store has no heartbeat, store {lost_store}")

        return handle
