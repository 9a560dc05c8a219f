"""The load of one episode, from its start to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from faultset.collector.ipc.channel import InvalidMessage
from faultset.collector.load.driver import LoadTarget, driver_class
from faultset.collector.load.generator import Generator
from faultset.collector.load.messages import BeginLoad, ChangeLoad, LoadStatistics, ReadStatistics, StopLoad
from faultset.collector.load.results import ResultFile
from faultset.collector.load.schedule import Schedule
from faultset.collector.load.workloads.traffic import RegionalDriver, Traffic
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError

TIMEOUT_S = 30.0
"""How long a client waits for a response; a request that took longer has the outcome `timeout`."""


class EpisodeLoad:
    """Sends requests from `begin` until `stop`. Needs a running event loop.

    Parameters
    ----------
    url
        Base URL of the application's entry.
    local_address
        Address that requests are sent from; None for any.
    results
        File for the result of each request.

    Attributes
    ----------
    ended
        Set when sending has ended, because the schedule is over or an error occurred.
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
        """Change the load to `factor` times the planned rate, from the next arrival on."""
        return self._running_generator().change(request)

    def statistics(self, request: ReadStatistics | None = None) -> LoadStatistics:
        """Return the numbers of sent requests and of their outcomes."""
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
