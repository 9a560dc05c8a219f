"""What can be asked of the telemetry process, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faultset.collector.ipc.channel import Message, Request

TABLES = ("metrics", "spans")


@dataclass(frozen=True, kw_only=True)
class ScrapeTarget(Message):
    """A pod that the telemetry process knows; `address` leads to its metrics, if it has any."""

    pod: str
    service: str | None
    container: str | None
    address: tuple[str, int] | None


@dataclass(frozen=True, kw_only=True)
class ConfigureTelemetry(Request[None]):
    """Take over the full list of pods."""

    targets: tuple[ScrapeTarget, ...]


@dataclass(frozen=True, kw_only=True)
class StateSample(Message):
    """One sample of the state of an object under the name of kube-state-metrics; `kind` is counter or gauge."""

    metric: str
    service: str | None
    pod: str | None
    container: str | None
    labels: dict[str, str]
    kind: str
    value: float


@dataclass(frozen=True, kw_only=True)
class ReplaceState(Request[None]):
    """Replace the samples of the state of objects, which are repeated at every scrape."""

    samples: tuple[StateSample, ...]


@dataclass(frozen=True, kw_only=True)
class WriteSnapshot(Request[dict[str, int]]):
    """Write the rows of `[start_ns, end_ns)` as `<table>.arrow` in a folder; answered by their number for each table.

    Attributes
    ----------
    folder
        None for the process's own.
    """

    start_ns: int
    end_ns: int
    folder: Path | None = None
    tables: tuple[str, ...] = TABLES


@dataclass(frozen=True, kw_only=True)
class TelemetryHealth(Message):
    """What has arrived so far, and how late the scraper was at worst."""

    spans: int
    samples: int
    scrapes: int
    scrape_failures: dict[str, int]
    last_scrape_ns: int | None
    worst_lag_ms: float


@dataclass(frozen=True, kw_only=True)
class ReadHealth(Request[TelemetryHealth]):
    """Return how telemetry fares.

    Attributes
    ----------
    forget_lag
        Begin again with the worst lag, for instance when the load starts.
    """

    forget_lag: bool = False
