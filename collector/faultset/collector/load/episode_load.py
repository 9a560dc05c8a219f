"""The open-loop load of one episode: its control messages, and the generator that sends requests when they are due."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faultset.collector.ipc.channel import InvalidMessage, Message, Request
from faultset.collector.load.driver import LoadDriver, LoadTarget, driver_class
from faultset.collector.load.patterns import Arrivals, LoadPattern
from faultset.collector.load.results import NONE, ResultFile
from faultset.collector.load.schedule import Schedule, ScheduledRequest
from faultset.collector.load.traffic import RegionalDriver, Traffic
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class LoadStatistics(Message):
    """Numbers of sent requests and of their outcomes."""

    sent: int
    in_flight: int
    worst_lag_ms: float
    """Largest delay of sending behind the schedule."""
    time_ns: int
    """Time of day on the machine that sends the load."""
    outcomes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BeginLoad(Request[LoadStatistics]):
    """Start sending requests."""

    mix: str
    rate_rps: float
    seed: int
    traffic: str
    """Pattern and regions, as `Traffic.to_json` writes them."""


@dataclass(frozen=True, kw_only=True)
class ChangeLoad(Request[float]):
    """Set the rate to `factor` times the planned one, from the next arrival on; the reply is the factor."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class ReadStatistics(Request[LoadStatistics]):
    """Return statistics of the load."""


@dataclass(frozen=True, kw_only=True)
class StopLoad(Request[LoadStatistics]):
    """Stop sending and abandon unanswered requests."""


class Generator:
    """Sends each request of a schedule through a driver when it is due.

    The mean rate is at factor one; the pattern changes it over time, with random numbers from `seed`.
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
        record = functools.partial(
            self._results.write,
            number=self._number,
            scheduled=int(due * 1e9) + offset_ns,
            sent=int(now * 1e9) + offset_ns,
            endpoint=request.kind,
        )
        record(latency=NONE, status=NONE, outcome="unfinished")
        task = loop.create_task(self._send(request, due, record))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    @functools.cached_property
    def _offset_ns(self) -> int:
        """Time of day minus the loop's clock, measured at the start of the load."""
        return time.time_ns() - int(asyncio.get_running_loop().time() * 1e9)

    async def _send(self, request: ScheduledRequest, due: float, record: Callable[..., None]) -> None:
        outcome, status = await self._driver.send(request)
        latency = int((asyncio.get_running_loop().time() - due) * 1e9)
        record(latency=latency, status=status, outcome=outcome)
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


TIMEOUT_S = 30.0
"""How long a client waits for a response; a request that took longer has the outcome `timeout`."""


class EpisodeLoad:
    """Sends requests to the base URL `url` from `begin` until `stop`. Needs a running event loop.

    `ended` is set when sending has ended, because the schedule is over or an error occurred.
    """

    def __init__(self, app: AppSpec, url: str, local_address: str | None, results: Path):
        self._app, self._results = app, results
        self._target = LoadTarget(url=url, local_address=local_address, timeout_s=TIMEOUT_S, options=app.load.options)
        self._driver = driver_class(app)
        self._order: BeginLoad | None = None
        self._generator: Generator | None = None
        self._sending: asyncio.Task[None] | None = None
        self._counts: LoadStatistics | None = None
        self.ended = asyncio.Event()

    def begin(self, order: BeginLoad) -> LoadStatistics:
        """Start sending; repeating the same request changes nothing.

        Raises
        ------
        InvalidMessage
            Another load is already running.
        UsageError
            The rate is not above zero, or the application has no such mix.
        DataError
            The traffic cannot be read.
        """
        if self._order is None:
            self._generator = self._build_generator(order)
            self._order = order
            self._sending = asyncio.create_task(self._generator.run())
            self._sending.add_done_callback(lambda task: None if task.cancelled() else self.ended.set())
        elif order != self._order:
            raise InvalidMessage("a load with other settings is already running; stop it first")
        return self.statistics()

    def _build_generator(self, order: BeginLoad) -> Generator:
        if order.rate_rps <= 0:
            raise UsageError(f"the rate must be above zero, but is {order.rate_rps:g}")
        traffic, app = Traffic.from_json(order.traffic), self._app
        schedule = Schedule(app, order.mix, order.seed, horizon_s=traffic.pattern.horizon_s)
        driver = self._driver(self._target)
        return Generator(
            schedule,
            ResultFile(self._results, schedule.endpoints),
            driver=RegionalDriver(driver, traffic.regions, order.seed) if traffic.regions else driver,
            rate_rps=order.rate_rps,
            pattern=traffic.pattern,
            seed=order.seed,
        )

    def change(self, request: ChangeLoad) -> float:
        return self._running_generator().change(request)

    def statistics(self, request: ReadStatistics | None = None) -> LoadStatistics:
        return self._running_generator().statistics()

    def results_from(self, offset: int) -> bytes:
        """Return the bytes of the results file from an offset on."""
        with self._results.open("rb") as file:
            file.seek(offset)
            return file.read()

    async def stop(self, request: StopLoad | None = None) -> LoadStatistics:
        """Stop sending and abandon unanswered requests; may be called twice."""
        generator, sending = self._running_generator(), self._sending
        if self._counts is None and sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            self._counts = generator.statistics()
            await generator.close()
        return self._counts or generator.statistics()

    async def end(self) -> None:
        """Stop if the load is still running; raise the error that ended it, if any."""
        if self._sending is not None:
            if self._sending.done() and not self._sending.cancelled():
                self._sending.result()
            await self.stop()

    def _running_generator(self) -> Generator:
        if self._generator is None:
            raise InvalidMessage("no load is running; start one first")
        return self._generator
