"""Options for running one episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from faultset.collector.episodes.host_pressure import CpuPressure
from faultset.collector.episodes.records import SYSTEM_CLOCK, EpisodeClock
from faultset.collector.episodes.state_machine import Phase
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.sources.recorder import SourceRecorder


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions:
    """Options for running one episode; a plan describes what to run."""

    sources: SourceRecorder | None = None
    """Sources that the campaign adds."""
    report: Callable[[Phase], None] = lambda phase: None
    """Called with each new phase and its expected end (ns)."""
    interrupted: Callable[[], bool] = lambda: False
    """Called several times a second; once it returns True, the episode undoes its changes and ends."""
    parallel: int = 1
    """Maximum number of concurrent episodes of the campaign."""
    pressure: CpuPressure = field(default_factory=CpuPressure)
    """Measures CPU shortage, by default on this machine."""
    repairs: Sequence[RepairOrder] = ()
    """Repairs to try on the fault; an episode with repairs is not written."""
    clock: EpisodeClock = SYSTEM_CLOCK
    """Clock of the episode."""
    store_servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Server that runs each store, for the context."""
