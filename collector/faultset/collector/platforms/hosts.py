"""Hosts: the machine or the cluster on which a platform's episodes run, found by the platform's name.

A platform is announced through the entry-point group `faultset.platforms`; the entry is a class that has the
attributes and methods of `PlatformHost` and takes its settings as keyword arguments.
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

LEAST_SETTLING_S = 5.0
READING_S = 10.0
"""About what reading the telemetry of an episode takes on a cluster."""


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Lengths of an episode's phases in seconds.

    The view is baseline plus fault; the reference window is the first part of the view, in which no fault can be.
    """

    warmup_s: float
    """Load before the view begins."""
    baseline_s: float
    """Healthy part of the view, on average: the onset is drawn around its end."""
    fault_s: float
    """Faulty part of the view, on average."""
    cooldown_s: float
    """Time after the recovery for telemetry that is late; what is there already is read in its last seconds."""

    @property
    def settling_s(self) -> float:
        """Part of the cool-down, under load, before telemetry is read."""
        return max(min(self.cooldown_s, LEAST_SETTLING_S), self.cooldown_s - READING_S)

    @property
    def view_s(self) -> float:
        """Length of the view, which is the same in every episode of a campaign."""
        return self.baseline_s + self.fault_s

    @property
    def reference_s(self) -> float:
        """Length of the window at the beginning of the view in which no fault can be."""
        return 0.8 * self.baseline_s


QUICK = Phases(warmup_s=8.0, baseline_s=45.0, fault_s=45.0, cooldown_s=5.0)
STANDARD = Phases(warmup_s=30.0, baseline_s=180.0, fault_s=180.0, cooldown_s=5.0)
LONG = Phases(warmup_s=60.0, baseline_s=1500.0, fault_s=1800.0, cooldown_s=5.0)
"""An hour, for faults that grow over minutes."""


@dataclass(frozen=True)
class Requirement:
    """One thing that was looked at.

    Attributes
    ----------
    check
        What was looked at.
    ok
        Whether it is as it should be.
    found
        What there is; where something is not needed, also what is lost without.
    remedy
        How to fix it; empty where nothing is wrong.
    needed
        Whether episodes cannot run without.
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
    """Return the rows for which episodes cannot run."""
    return [row for row in rows if row.needed and not row.ok]


GROUP = "faultset.platforms"


class PlatformHost(Protocol):
    """A machine or a cluster on which episodes can run."""

    profiles: ClassVar[Mapping[str, Phases]]
    """Lengths of the phases that a user can choose by name; `quick` and `standard` at least."""
    runs_code_of_folders: ClassVar[bool]
    """Whether services find the code of an application that is named by its folder on this machine."""
    runs_deployed_apps: ClassVar[bool]
    """Whether applications that somebody else has deployed can be used in place."""
    deploys_operators: ClassVar[bool]
    """Whether applications with an operator and a kind of their own can be deployed."""
    original_store_kinds: ClassVar[frozenset[str]]
    """Kinds of stores that can be their own servers rather than Redis in their place."""

    @property
    def settings(self) -> dict[str, Any]:
        """What another process needs to open the same host, as plain values that survive JSON."""
        ...

    def requirements(self) -> list[Requirement]:
        """Look at everything that episodes need here; raises nothing."""
        ...

    def check(self) -> list[str]:
        """Look at what must be there before a campaign begins, as quickly as possible.

        Returns
        -------
        list of str
            Sentences on what will be used, for the user.

        Raises
        ------
        PlatformError
            Episodes cannot run; says what to do.
        """
        ...

    def episode_capacity(self) -> int:
        """Return how many episodes run at a time without disturbing each other; 1 at least."""
        ...

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return those of the capabilities that faults need which are not there, with the reason."""
        ...

    def original_servers(self, drivers: Collection[str]) -> dict[str, str]:
        """Return name and version of the server that each of some drivers of original stores would start here.

        Raises
        ------
        PlatformError
            A server is not installed; says how to install it.
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
            For working files; an empty folder that is removed after the episode.
        episode
            Id of the episode, which marks what the platform makes.
        seed
            Seed of everything random that the platform does.
        step_s
            Wanted interval of metrics, in seconds.
        """
        ...

    def await_removal(self, episodes: Collection[str]) -> None:
        """Wait until all that episodes which were torn down have left to be removed is gone.

        Raises
        ------
        PlatformError
            Something is not removed; says what, and why.
        """
        ...

    def undo_abandoned(self, journal: Path) -> None:
        """Undo and remove what an episode left whose collector is dead; raise PlatformError when that fails."""
        ...

    def remove_orphans(self) -> list[str]:
        """Remove what dead collectors of any machine left; return names."""
        ...


@runtime_checkable
class TelemetryInstaller(Protocol):
    """A host to which the telemetry servers that episodes need can be added."""

    def install_telemetry(self) -> str:
        """Install the servers; return a sentence on what was installed."""
        ...

    def remove_telemetry(self) -> list[str]:
        """Remove the servers that `install_telemetry` made; return names."""
        ...


def platform_names() -> tuple[str, ...]:
    """Return the names of all platforms that are installed."""
    return tuple(plugins(GROUP))


def load_host_class(platform: str) -> type[PlatformHost]:
    """Return the class of a platform's hosts.

    Raises
    ------
    UsageError
        There is no platform of that name, or its plug-in cannot be loaded.
    """
    return load_plugin(GROUP, platform, kind="platform", accept=_accepted)


def _accepted(name: str, loaded: Any) -> type[PlatformHost]:
    require_class(
        loaded,
        "profiles",
        "runs_code_of_folders",
        "runs_deployed_apps",
        "deploys_operators",
        "original_store_kinds",
        "settings",
        "requirements",
        "check",
        "episode_capacity",
        "unsupported_needs",
        "original_servers",
        "create_platform",
        "await_removal",
        "undo_abandoned",
        "remove_orphans",
    )
    return loaded


def open_host(platform: str, settings: Mapping[str, Any] | None = None) -> PlatformHost:
    """Return the host on which episodes of a platform run.

    Parameters
    ----------
    settings
        Keyword arguments of the host's class; plain values.

    Raises
    ------
    UsageError
        There is no platform of that name, or it has no such setting.
    """
    check_settings(platform, settings or ())
    return load_host_class(platform)(**(settings or {}))


def check_settings(platform: str, names: Iterable[str]) -> None:
    """Raise UsageError when the hosts of a platform have no settings of these names, or there is no such platform."""
    known = inspect.signature(load_host_class(platform)).parameters
    for name in names:
        if name not in known:
            option = name.replace("_", "-")
            raise UsageError(
                f"platform {platform} has no setting --{option}; leave it out, or choose another --platform"
            )
