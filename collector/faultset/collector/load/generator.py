"""The open-loop generator, which sends requests when they are due without waiting for responses."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from dataclasses import dataclass

from faultset.collector.load.driver import LoadDriver
from faultset.collector.load.messages import ChangeLoad, LoadStatistics, ReadStatistics
from faultset.collector.load.results import NONE, ResultFile
from faultset.collector.load.schedule import Schedule, ScheduledRequest
from faultset.collector.load.workloads.patterns import Arrivals, LoadPattern


@dataclass(frozen=True, kw_only=True)
class _SentRequest:
    number: int
    request: ScheduledRequest
    scheduled: int
    sent: int
    due: float


class Generator:
    """Sends each request of a schedule through a driver when it is due.

    Parameters
    ----------
    rate_rps
        Mean number of requests per second at factor one.
    pattern
        How the rate changes over time.
    seed
        Seed of the pattern; the schedule has a separate one.
    """

    def __init__(
        self,
        schedule: Schedule,
        results: ResultFile,
        *,
        driver: LoadDriver,
        rate_rps: float,
        pattern: LoadPattern,
        seed: int,
    ):
        self._schedule, self._results = schedule, results
        self._driver = driver
        self._rate_rps = rate_rps
        self._factor = 1.0
        self._number = 0
        self._worst_lag_s = 0.0
        self._outcomes: Counter[str] = Counter()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._arrivals = Arrivals(pattern, seed)

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            request = self._schedule.next(self._arrivals.elapsed_s)
            due += self._arrivals.after(request.gap, self._rate_rps * self._factor)
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            self._send_due(request, due)

    def _send_due(self, request: ScheduledRequest, due: float) -> None:
        loop = asyncio.get_running_loop()
        self._number += 1
        now, offset_ns = loop.time(), self._offset_ns
        self._worst_lag_s = max(self._worst_lag_s, now - due)
        sent = _SentRequest(
            number=self._number,
            request=request,
            scheduled=int(due * 1e9) + offset_ns,
            sent=int(now * 1e9) + offset_ns,
            due=due,
        )
        self._record(sent, NONE, NONE, "unfinished")
        task = loop.create_task(self._send(sent))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    @functools.cached_property
    def _offset_ns(self) -> int:
        """Time of day minus the loop's clock, measured at the start of the load."""
        return time.time_ns() - int(asyncio.get_running_loop().time() * 1e9)

    def _record(self, sent: _SentRequest, latency: int, status: int, outcome: str) -> None:
        self._results.write(
            number=sent.number,
            scheduled=sent.scheduled,
            sent=sent.sent,
            endpoint=sent.request.kind,
            latency=latency,
            status=status,
            outcome=outcome,
        )

    async def _send(self, sent: _SentRequest) -> None:
        outcome, status = await self._driver.send(sent.request)
        latency = int((asyncio.get_running_loop().time() - sent.due) * 1e9)
        self._record(sent, latency, status, outcome)
        self._outcomes[outcome] += 1

    def change(self, request: ChangeLoad) -> float:
        """Change the load to `factor` times the planned rate, from the next arrival on."""
        if request.factor <= 0:
            raise ValueError(f"the load factor must be above zero, got {request.factor:g}")
        self._factor = request.factor
        return request.factor

    def statistics(self, request: ReadStatistics | None = None) -> LoadStatistics:
        """Return counts of requests and outcomes, and the longest delay between due time and sending."""
        return LoadStatistics(
            sent=self._number,
            in_flight=len(self._in_flight),
            worst_lag_ms=round(1e3 * self._worst_lag_s, 3),
            time_ns=time.time_ns(),
            outcomes=dict(self._outcomes),
        )

    async def close(self) -> None:
        """Abandon unanswered requests; their outcome remains `unfinished`."""
        for task in tuple(self._in_flight):
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)
        await self._driver.close()
        self._results.close()
