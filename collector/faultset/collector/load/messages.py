"""Messages that control the load, over its socket or, in a pod, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field

from faultset.collector.ipc.channel import Message, Request


@dataclass(frozen=True, kw_only=True)
class LoadStatistics(Message):
    """Numbers of sent requests and of their outcomes.

    Attributes
    ----------
    worst_lag_ms
        Largest delay of sending behind the schedule.
    time_ns
        Time of day on the machine that sends the load.
    """

    sent: int
    in_flight: int
    worst_lag_ms: float
    time_ns: int
    outcomes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BeginLoad(Request[LoadStatistics]):
    """Start sending requests.

    Attributes
    ----------
    traffic
        Pattern and regions, as `Traffic.to_json` writes them.
    """

    mix: str
    rate_rps: float
    seed: int
    traffic: str


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
