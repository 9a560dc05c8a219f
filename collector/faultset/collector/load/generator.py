"""Sends requests when the schedule says so, never waiting for an answer first."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import aiohttp

from faultset.collector.load.results import NONE, ResultFile
from faultset.collector.load.schedule import Arrival, Schedule
from faultset.collector.runtime.http.connections import Connections

TIMEOUT_S = 30.0
"""How long a client waits for an answer; a request that took longer has the outcome `timeout`."""


_KEYWORDS = {"query": "params", "form": "data", "json": "json"}


def _carried(arrival: Arrival) -> dict[str, Any]:
    """Return how the parameters of a request are sent."""
    return {_KEYWORDS[arrival.body]: arrival.parameters}


@dataclass(frozen=True, kw_only=True)
class _Sent:
    number: int
    arrival: Arrival
    scheduled: int
    sent: int
    due: float


class Generator:
    """Open-loop load against one base URL.

    Parameters
    ----------
    rate_rps:
        Mean number of requests per second at factor one.
    local:
        Address from which to send; any without.
    """

    def __init__(
        self,
        schedule: Schedule,
        results: ResultFile,
        *,
        target: str,
        rate_rps: float,
        local: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ):
        self._schedule, self._results = schedule, results
        self._target = target.rstrip("/")
        self._rate_rps = rate_rps
        self._connections = Connections(
            local=local, resolver=None, timeout=aiohttp.ClientTimeout(total=timeout_s, connect=None)
        )
        self._factor = 1.0
        self._number = 0
        self._worst_lag_s = 0.0
        self._outcomes: Counter[str] = Counter()
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        due, offset_ns = loop.time(), time.time_ns() - int(loop.time() * 1e9)
        while True:
            arrival = self._schedule.next()
            due += arrival.gap / (self._rate_rps * self._factor)
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            self._number += 1
            now = loop.time()
            self._worst_lag_s = max(self._worst_lag_s, now - due)
            sent = _Sent(
                number=self._number,
                arrival=arrival,
                scheduled=int(due * 1e9) + offset_ns,
                sent=int(now * 1e9) + offset_ns,
                due=due,
            )
            self._record(sent, NONE, NONE, "unfinished")
            task = loop.create_task(self._send(sent))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _record(self, sent: _Sent, latency: int, status: int, outcome: str) -> None:
        self._results.write(
            number=sent.number,
            scheduled=sent.scheduled,
            sent=sent.sent,
            endpoint=sent.arrival.kind,
            latency=latency,
            status=status,
            outcome=outcome,
        )

    async def _send(self, sent: _Sent) -> None:
        status, outcome = await self._ask(sent.arrival)
        latency = int((asyncio.get_running_loop().time() - sent.due) * 1e9)
        self._record(sent, latency, status, outcome)
        self._outcomes[outcome] += 1

    async def _ask(self, arrival: Arrival) -> tuple[int, str]:
        url = f"{self._target}{arrival.path}"
        try:
            async with (
                self._connections.session() as session,
                session.request(arrival.method, url, **_carried(arrival)) as response,
            ):
                await response.read()
                return response.status, "ok" if response.status < 400 else "http_error"
        except TimeoutError:
            return NONE, "timeout"
        except (aiohttp.ClientError, OSError):
            return NONE, "refused"

    def step(self, factor: float) -> float:
        """Change the load to `factor` times the planned rate, from the next arrival on."""
        if factor <= 0:
            raise ValueError(f"a load factor is above zero; found {factor:g}")
        self._factor = factor
        return factor

    def stats(self) -> dict[str, float]:
        """Return how many requests were sent, how they ended, and how late the latest was sent."""
        return {
            "sent": self._number,
            "in_flight": len(self._under_way),
            "worst_lag_ms": round(1e3 * self._worst_lag_s, 3),
            **self._outcomes,
        }

    async def close(self) -> None:
        """Give up what has no answer yet; its records say `unfinished`."""
        for task in tuple(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._connections.close()
        self._results.close()
