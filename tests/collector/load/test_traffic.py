"""Regions of clients."""

from __future__ import annotations

import asyncio
import time

import pytest

from faultset.collector.apps import load_app
from faultset.collector.load.driver import RequestResult
from faultset.collector.load.schedule import Schedule, ScheduledRequest
from faultset.collector.load.traffic import RegionalDriver, parse_regions
from faultset.core.errors import UsageError

HOTEL = load_app("hotel")


class Quick:
    """Answers at once."""

    async def send(self, request: ScheduledRequest) -> RequestResult:
        return RequestResult("ok", 200)

    async def close(self) -> None:
        pass


def test_a_far_region_waits_for_the_way_there_and_back() -> None:
    async def run() -> float:
        driver = RegionalDriver(Quick(), parse_regions("far=1:60ms"), 0)
        begun = time.monotonic()
        assert await driver.send(Schedule(HOTEL, "default", 0).next()) == RequestResult("ok", 200)
        return time.monotonic() - begun

    assert asyncio.run(run()) > 0.04


@pytest.mark.parametrize("text", ["eu", "eu=0.5", "eu=0:20ms", "eu=-1:20ms", "eu=1:-5ms", "eu=1:nan", "eu=1:1,eu=1:2"])
def test_regions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_regions(text)
