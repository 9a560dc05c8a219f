"""Hosts: the machine or cluster on which a platform runs episodes, looked up by the platform's name.

A platform registers its host class in the entry-point group `faultset.platforms`. The class implements `PlatformHost`
and takes its settings as keyword arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError
from faultset.core.plugins import load_plugin, plugins, require_class

MIN_SETTLING_S = 5.0
READING_S = 10.0
"""Approximate time to read an episode's telemetry on a cluster."""


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Lengths of an episode's phases in seconds.

    The view covers the baseline and the fault. The reference window is the start of the view, before any possible
    fault.
    """

    warmup_s: float
    """Time under load before the view."""
    baseline_s: float
    """Mean length of the view before the fault; the onset is drawn around its end."""
    fault_s: float
    """Mean length of the view after the onset."""
    cooldown_s: float
    """Time after the recovery for late telemetry; reading starts at most `READING_S` before its end."""

    @property
    def settling_s(self) -> float:
        """Part of the cool-down that passes before telemetry is read."""
        return max(min(self.cooldown_s, MIN_SETTLING_S), self.cooldown_s - READING_S)

    @property
    def view_s(self) -> float:
        """Length of the view, the same in all episodes of a campaign."""
        return self.baseline_s + self.fault_s

    @property
    def reference_s(self) -> float:
        """Length of the reference window, which ends before any possible fault."""
        return 0.8 * self.baseline_s


QUICK = Phases(warmup_s=8.0, baseline_s=45.0, fault_s=45.0, cooldown_s=5.0)
STANDARD = Phases(warmup_s=30.0, baseline_s=180.0, fault_s=180.0, cooldown_s=5.0)
LONG = Phases(warmup_s=60.0, baseline_s=1500.0, fault_s=1800.0, cooldown_s=5.0)
"""About an hour, for faults that develop over minutes."""


@dataclass(frozen=True)
class Requirement:
    """The result of one check of a host.

    Attributes
    ----------
    check
        What was checked.
    ok
        Whether the requirement is met.
    found
        The observed state; for an unmet optional requirement also the consequence.
    remedy
        How to meet it; empty if `ok`.
    needed
        Whether episodes cannot run without it.
    """

    check: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True

    def __post_init__(self) -> None:
        if self.ok:
            object.__setattr__(self, "remedy", "")


def unmet(rows: Iterable[Requirement]) -> list[Requirement]:
    """Return the unmet requirements that prevent episodes from running."""
    return [row for row in rows if row.needed and not row.ok]


GROUP = "faultset.platforms"


class PlatformHost(Protocol):
    """A machine or cluster on which episodes can run; the defaults are for one that keeps nothing after an episode."""

    profiles: ClassVar[Mapping[str, Phases]]
    """Phases by profile name; at least `quick` and `standard`."""
    runs_code_of_folders: ClassVar[bool]
    """Whether services can import application code from a folder on this machine."""
    runs_deployed_apps: ClassVar[bool]
    """Whether applications that are already running there can be used."""
    deploys_operators: ClassVar[bool]
    """Whether applications with an operator and a custom resource can be deployed."""
    original_store_kinds: ClassVar[frozenset[str]]
    """Store kinds that can run their original server instead of Redis."""

    @property
    def settings(self) -> dict[str, Any]:
        """JSON values from which another process can create the same host."""
        ...

    def requirements(self) -> list[Requirement]:
        """Check everything that episodes need; never raises."""
        ...

    def check(self) -> list[str]:
        """Check quickly whether a campaign can start.

        Returns
        -------
        list of str
            Sentences for the user about the resources that the campaign will use.

        Raises
        ------
        PlatformError
            Episodes cannot run; the message says what to do.
        """
        ...

    def episode_capacity(self) -> int:
        """Return how many episodes can run concurrently without disturbing each other; at least 1."""
        ...

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return the needed capabilities that the host lacks, with the reason; none by default."""
        return {}

    def original_servers(self, drivers: Collection[str]) -> dict[str, str]:
        """Return the name and version of the server that each original store driver would start.

        Raises
        ------
        PlatformError
            A server is not installed; the message says how to install it.
        UsageError
            A Python package is missing.
        """
        ...

    def create_platform(
        self, app: AppSpec, folder: Path, journal: Journal, *, episode: str, seed: int, step_s: float
    ) -> EpisodePlatform:
        """Return a platform for one episode, ready to deploy.

        Parameters
        ----------
        folder
            Empty folder for working files; removed after the episode.
        episode
            Id of the episode, recorded in the objects that the platform creates.
        seed
            Seed of all random choices of the platform.
        step_s
            Interval of metrics in seconds.
        """
        ...

    def await_removal(self, episodes: Collection[str]) -> None:
        """Wait until everything left by torn-down episodes is removed.

        Raises
        ------
        PlatformError
            Something still exists; the message names it and the reason.
        """

    def undo_abandoned(self, journal: Path) -> None:
        """Clean up after an episode whose collector has died; raise PlatformError if that fails.

        Undoes the changes in the journal and removes the objects of the episode.
        """

    def remove_orphans(self) -> list[str]:
        """Remove objects left by dead collectors on any machine; return their names."""
        return []


@runtime_checkable
class TelemetryInstaller(Protocol):
    """A host that can install the telemetry servers that episodes need."""

    def install_telemetry(self) -> str:
        """Install the servers; return a sentence about them."""
        ...

    def remove_telemetry(self) -> list[str]:
        """Remove the servers that `install_telemetry` installed; return their names."""
        ...


def platform_names() -> tuple[str, ...]:
    """Return the names of all installed platforms."""
    return tuple(plugins(GROUP))


def load_host_class(platform: str) -> type[PlatformHost]:
    """Return the host class of a platform.

    Raises
    ------
    UsageError
        No platform has that name, or its plug-in cannot be loaded.
    """
    return load_plugin(GROUP, platform, kind="platform", accept=_check_host_class)


def _check_host_class(name: str, loaded: Any) -> type[PlatformHost]:
    methods = (member for member in vars(PlatformHost) if not member.startswith("_"))
    require_class(loaded, *PlatformHost.__annotations__, *methods)
    return loaded


def open_host(platform: str, settings: Mapping[str, Any] | None = None) -> PlatformHost:
    """Return the host of a platform.

    Parameters
    ----------
    settings
        Keyword arguments of the host class, as JSON values.

    Raises
    ------
    UsageError
        No platform has that name, or the platform lacks one of the settings.
    """
    check_settings(platform, settings or ())
    return load_host_class(platform)(**(settings or {}))


def check_settings(platform: str, names: Iterable[str]) -> None:
    """Raise UsageError if a platform does not exist or lacks a setting."""
    parameters = inspect.signature(load_host_class(platform)).parameters
    for name in names:
        if name not in parameters:
            option = name.replace("_", "-")
            raise UsageError(f"platform {platform} does not support --{option}; omit it or choose another --platform")
