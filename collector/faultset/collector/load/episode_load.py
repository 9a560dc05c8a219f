"""The load of one episode from its beginning, which may be ordered later, to its end."""

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
"""How long a client waits for an answer; a request that took longer has the outcome `timeout`."""


class EpisodeLoad:
    """Sends requests from `begin` on until it is stopped. Needs a running event loop.

    Parameters
    ----------
    url
        Base URL of the application's entry.
    local_address
        From which requests are sent; any without.
    results
        File for what came of each request.

    Attributes
    ----------
    ended
        Set once nothing more is sent because the schedule has ended or something has failed.
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
        """Begin to send; the same order once more changes nothing.

        Raises
        ------
        InvalidMessage
            Another load runs already.
        UsageError
            The rate is not above zero, or the application has no such mix.
        DataError
            The traffic cannot be read.
        """
        if self._order is None:
            self._generator = self._made(order)
            self._order = order
            self._sending = asyncio.create_task(self._generator.run())
            self._sending.add_done_callback(lambda task: None if task.cancelled() else self.ended.set())
        elif order != self._order:
            raise InvalidMessage("another load has begun already; stop it first")
        return self.statistics()

    def _made(self, order: BeginLoad) -> Generator:
        if order.rate_rps <= 0:
            raise UsageError(f"the rate must be above zero; found {order.rate_rps:g}")
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
        return self._begun().change(request)

    def statistics(self, request: ReadStatistics | None = None) -> LoadStatistics:
        """Return how many requests were sent, and how they ended."""
        return self._begun().statistics()

    def results_from(self, offset: int) -> bytes:
        """Return what the file of results holds from a place on."""
        with self._results.open("rb") as file:
            file.seek(offset)
            return file.read()

    async def stop(self, request: StopLoad | None = None) -> LoadStatistics:
        """Stop sending and abandon unanswered requests; may be called twice."""
        generator, sending = self._begun(), self._sending
        if self._counts is None and sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            self._counts = generator.statistics()
            await generator.close()
        return self._counts or generator.statistics()

    async def end(self) -> None:
        """Stop, if still running, and raise the error that ended the load."""
        if self._sending is not None:
            if self._sending.done() and not self._sending.cancelled():
                self._sending.result()
            await self.stop()

    def _begun(self) -> Generator:
        if self._generator is None:
            raise InvalidMessage("no load has begun yet")
        return self._generator
