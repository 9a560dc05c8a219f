"""Timestamps only grow, and regions are led by stores that are up."""

from __future__ import annotations

from collections import Counter

import pytest

from faultset.collector.apps.tidb.placement import (
    DOWN_AFTER_S,
    REGIONS,
    ROWS,
    NoLeader,
    Placement,
    TimestampOracle,
    find_region,
    get_row_range,
    physical_s,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def leaders(placement: Placement) -> Counter[str]:
    return Counter(placement.region(get_row_range(number)[0]).leader for number in range(REGIONS))


def beat(placement: Placement, *stores: str, times: int = REGIONS) -> None:
    for _ in range(times):
        for store in stores:
            placement.heartbeat(store)


def test_every_row_lies_in_the_region_that_has_it() -> None:
    found = [find_region(row) for row in range(1, ROWS + 1)]
    assert found == sorted(found)
    assert all(get_row_range(number)[0] <= row <= get_row_range(number)[1] for row, number in enumerate(found, start=1))


def test_timestamps_grow_while_the_clock_stands_still_or_goes_back() -> None:
    clock = Clock()
    oracle = TimestampOracle(clock)
    given = [oracle.next() for _ in range(5)]
    assert physical_s(given[0]) == 100.0
    clock.now = 90.0
    given.append(oracle.next())
    assert given == sorted(set(given))


def test_leaders_are_spread_over_the_stores_that_are_up() -> None:
    placement = Placement(Clock())
    beat(placement, "tikv-0", "tikv-1", "tikv-2")
    assert set(leaders(placement).values()) == {REGIONS // 3}


def test_a_store_without_heartbeats_loses_its_regions_to_the_others_and_gets_some_back() -> None:
    clock = Clock()
    placement = Placement(clock)
    beat(placement, "tikv-0", "tikv-1", "tikv-2")
    clock.now += DOWN_AFTER_S
    beat(placement, "tikv-0", "tikv-1")
    assert leaders(placement)["tikv-2"] == REGIONS // 3
    clock.now += 0.1
    assert set(leaders(placement)) == {"tikv-0", "tikv-1"}
    beat(placement, "tikv-0", "tikv-1", "tikv-2")
    assert leaders(placement)["tikv-2"] == REGIONS // 3


def test_a_store_is_told_what_it_leads() -> None:
    placement = Placement(Clock())
    assert placement.heartbeat("tikv-0") == list(range(REGIONS))
    assert placement.heartbeat("tikv-1") == [REGIONS - 1]
    assert placement.heartbeat("tikv-0") == list(range(REGIONS - 2))


def test_without_a_store_no_region_has_a_leader() -> None:
    with pytest.raises(NoLeader, match="region 3 has no leader: no store is up"):
        Placement(Clock()).region(350)
