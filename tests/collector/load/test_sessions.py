"""Users who wait for answers, regions that are far away, and mixes that change."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from faultset.collector.apps import load_app
from faultset.collector.load.driver import RequestResult
from faultset.collector.load.patterns import parse_pattern
from faultset.collector.load.regions import RegionalDriver, parse_regions
from faultset.collector.load.schedule import Schedule, ScheduledRequest, mixes_of
from faultset.collector.load.sessions import Users
from faultset.core.errors import UsageError

HOTEL = load_app("hotel")


def requests_of(answer_s: float, *, rate_rps: float = 200.0, length_s: float = 0.8) -> int:
    """Count what users send to something that takes `answer_s` to answer."""
    sent = 0

    async def send(request: ScheduledRequest, due: float) -> None:
        nonlocal sent
        sent += 1
        await asyncio.sleep(answer_s)

    async def run() -> None:
        pattern = parse_pattern("sessions:think_s=0.1,requests=4,pause_s=0.1")
        users = Users(pattern, lambda user: Schedule(HOTEL, "default", user), send, rate_rps=rate_rps, seed=1)
        task = asyncio.create_task(users.run())
        await asyncio.sleep(length_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return sent


def test_users_of_a_slow_application_send_less() -> None:
    assert requests_of(0.5) < 0.6 * requests_of(0.0)


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


def test_a_mix_becomes_another_over_its_time() -> None:
    def logins(elapsed_s: float) -> float:
        schedule = Schedule(HOTEL, "default..standard", 1, horizon_s=100)
        kinds = Counter(schedule.next(elapsed_s).path for _ in range(3000))
        return kinds["/user"] / 3000

    assert logins(0) == pytest.approx(0.10, abs=0.02)
    assert logins(50) == pytest.approx(0.0525, abs=0.02)
    assert logins(1000) == pytest.approx(0.005, abs=0.005)


def test_a_mix_that_the_application_lacks_is_refused() -> None:
    assert mixes_of("default..standard", HOTEL) == ("default", "standard")
    with pytest.raises(UsageError, match='unknown workload mix "standrad"'):
        mixes_of("default..standrad", HOTEL)
    with pytest.raises(UsageError, match="may change once"):
        mixes_of("default..standard..default", HOTEL)
