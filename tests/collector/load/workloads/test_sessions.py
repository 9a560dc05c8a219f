"""Users who wait for answers before they ask again."""

from __future__ import annotations

import asyncio

from faultset.collector.apps import load_app
from faultset.collector.load.schedule import Schedule, ScheduledRequest
from faultset.collector.load.workloads.patterns import parse_pattern
from faultset.collector.load.workloads.sessions import Users

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
