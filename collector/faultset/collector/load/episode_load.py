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
from faultset.collector.load.driver import LoadTarget, driver_class
from faultset.collector.load.patterns import Arrivals
from faultset.collector.load.results import NONE, ResultFile
from faultset.collector.load.schedule import Schedule, ScheduledRequest
from faultset.collector.load.traffic import RegionalDriver, Traffic
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError

TIMEOUT_S = 30.0
"""How long a client waits for a response; a request that took longer has the outcome `timeout`."""


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


class EpisodeLoad:
    """Sends requests to the base URL `url` from `begin` until `stop`, without waiting for responses.

    It needs a running event loop. `ended` is set when sending has ended, because the schedule is over or an error
    occurred.
    """

    def __init__(self, app: AppSpec, url: str, local_address: str | None, results: Path):
        self._app, self._path = app, results
        self._target = LoadTarget(url=url, local_address=local_address, timeout_s=TIMEOUT_S, options=app.load.options)
        self._driver_class = driver_class(app)
        self._order: BeginLoad | None = None
        self._sending: asyncio.Task[None] | None = None
        self._final_counts: LoadStatistics | None = None
        self._factor, self._sent, self._worst_lag_s = 1.0, 0, 0.0
        self._outcomes: Counter[str] = Counter()
        self._in_flight: set[asyncio.Task[None]] = set()
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
            if order.rate_rps <= 0:
                raise UsageError(f"the rate must be above zero, but is {order.rate_rps:g}")
            traffic = Traffic.from_json(order.traffic)
            schedule = Schedule(self._app, order.mix, order.seed, horizon_s=traffic.pattern.horizon_s)
            driver = self._driver_class(self._target)
            self._driver = RegionalDriver(driver, traffic.regions, order.seed) if traffic.regions else driver
            self._results = ResultFile(self._path, schedule.endpoints)
            self._order = order
            arrivals = Arrivals(traffic.pattern, order.seed)
            self._sending = asyncio.create_task(self._send_all(schedule, arrivals, order.rate_rps))
            self._sending.add_done_callback(lambda task: None if task.cancelled() else self.ended.set())
        elif order != self._order:
            raise InvalidMessage("a load with other settings is already running; stop it first")
        return self.statistics()

    async def _send_all(self, schedule: Schedule, arrivals: Arrivals, rate_rps: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            request = schedule.next(arrivals.elapsed_s)
            due += arrivals.after(request.gap, rate_rps * self._factor)
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            self._send_due(request, due)

    def _send_due(self, request: ScheduledRequest, due: float) -> None:
        loop = asyncio.get_running_loop()
        self._sent += 1
        now, offset_ns = loop.time(), self._offset_ns
        self._worst_lag_s = max(self._worst_lag_s, now - due)
        record = functools.partial(
            self._results.write,
            number=self._sent,
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
        self._require_begun()
        if request.factor <= 0:
            raise ValueError(f"the load factor must be above zero, got {request.factor:g}")
        self._factor = request.factor
        return request.factor

    def statistics(self, request: ReadStatistics | None = None) -> LoadStatistics:
        """Return counts of requests and outcomes, and the longest delay between due time and sending."""
        self._require_begun()
        return LoadStatistics(
            sent=self._sent,
            in_flight=len(self._in_flight),
            worst_lag_ms=round(1e3 * self._worst_lag_s, 3),
            time_ns=time.time_ns(),
            outcomes=dict(self._outcomes),
        )

    def results_from(self, offset: int) -> bytes:
        """Return the bytes of the results file from an offset on."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read()

    async def stop(self, request: StopLoad | None = None) -> LoadStatistics:
        """Stop sending and abandon unanswered requests, whose outcome remains `unfinished`; may be called twice."""
        self._require_begun()
        if self._final_counts is None and self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            self._final_counts = self.statistics()
            for task in tuple(self._in_flight):
                task.cancel()
            await asyncio.gather(*self._in_flight, return_exceptions=True)
            await self._driver.close()
            self._results.close()
        return self._final_counts or self.statistics()

    async def end(self) -> None:
        """Stop if the load is still running; raise the error that ended it, if any."""
        if self._sending is not None:
            if self._sending.done() and not self._sending.cancelled():
                self._sending.result()
            await self.stop()

    def _require_begun(self) -> None:
        if self._order is None:
            raise InvalidMessage("no load is running; start one first")
