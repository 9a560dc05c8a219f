"""Load plug-ins from entry points; a broken one does not affect the others.

Each kind of extension has its entry-point group (`faultset.faults`, `faultset.baselines`, ...). Built-in extensions are
registered like third-party ones.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from types import FrameType
from typing import Any, TypeVar

from faultset.core.errors import UsageError, missing_extra, unknown_name

_log = logging.getLogger(__name__)
_reported: set[Plugin | str] = set()
"""Plug-ins whose failure has been logged; "faultset" represents all built-in ones."""
T = TypeVar("T")
_REINSTALL = "the installation of faultset is incomplete or out of date: run pip install again (in a clone: -e .)"
_Folders = tuple[tuple[str, int], ...]
"""Folders of `sys.path` with the time of their last change."""
Accept = Callable[[str, Any], T]
"""Converts an entry point's name and its imported object into an extension.

Raises UsageError or ValueError with the reason if the object is not an extension of the group.
"""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """An extension of an installed distribution, not loaded yet."""

    group: str
    name: str
    value: str
    """Entry point: `module:attribute` or `module`."""
    distribution: str
    """Name and version of its distribution."""
    rival: str = ""
    """Another object of the same name, with its distribution; empty if there is none."""

    @property
    def built_in(self) -> bool:
        """Whether it is part of faultset."""
        return self.distribution.rpartition(" ")[0] == "faultset"

    def load(self, accept: Accept[T] = lambda name, loaded: loaded, *, registry: dict[str, Any] | None = None) -> T:
        """Import the object and return the result of `accept`.

        Parameters
        ----------
        accept
            See `Accept`.
        registry
            Registry that decorators in the imported module write to. Entries of a plug-in that is not accepted are
            removed again.

        Raises
        ------
        UsageError
            The plug-in cannot be imported or is not accepted. The message names its entry point, its distribution and
            the reason.
        """
        if self.rival:
            raise UsageError(
                f'two plug-ins are called "{self.name}" in {self.group}: {self.value} of {self.distribution} and '
                f"{self.rival}; uninstall one of them"
            )
        before = {**registry} if registry is not None else {}
        loaded, accepted = None, False
        try:
            # Results go to standard output; what a module prints on import must not mix with them.
            with redirect_stdout(sys.stderr), _pass_user_interrupts():
                loaded = EntryPoint(self.name, self.value, self.group).load()
                extension = accept(self.name, loaded)
            accepted = True
            return extension
        except ModuleNotFoundError as error:
            raise missing_extra(error) or self._explain_broken("loaded", error) from error
        except (UsageError, ValueError) as error:
            raise self._explain_broken("used", error) from error
        except (Exception, SystemExit) as error:  # a third party's module may raise anything on import
            raise self._explain_broken("loaded", error) from error
        finally:
            if registry is not None and not accepted:
                siblings = {name: registry[name] for name in self._siblings() & registry.keys()} if loaded else {}
                registry.clear()
                registry.update(siblings | before)

    def _siblings(self) -> set[str]:
        """Return the names of the other plug-ins in the same module; each is accepted or rejected separately."""
        module = self.value.partition(":")[0]
        others = plugins(self.group).values()
        return {other.name for other in others if other.value.partition(":")[0] == module} - {self.name}

    def _explain_broken(self, action: str, error: BaseException) -> UsageError:
        reason = str(error).strip().partition("\n")[0] or "no message"
        if not isinstance(error, UsageError):
            reason = f"{type(error).__name__}: {reason}"
        remedy = _REINSTALL if self.built_in else "repair or uninstall that distribution"
        return UsageError(
            f'the plug-in "{self.name}" of {self.distribution} (entry point {self.group}, {self.value}) cannot be '
            f"{action}: {reason}; {remedy}"
        )


def entry_points(*, group: str) -> EntryPoints:
    """Return the entry points of a group, cached until a folder of `sys.path` changes."""
    return _read_entry_points(group, _folders())


def find_distribution(name: str) -> Distribution | None:
    """Return an installed distribution or None, cached until a folder of `sys.path` changes."""
    return _read_distribution(name, _folders())


@contextmanager
def _pass_user_interrupts() -> Iterator[None]:
    """Let Ctrl-C from the user pass, but turn a KeyboardInterrupt raised by a module into a RuntimeError."""
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    watched = threading.current_thread() is threading.main_thread()
    watched = watched and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if watched:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt as error:
        if interrupted or not watched:
            raise
        raise RuntimeError("it raised KeyboardInterrupt") from error
    finally:
        if watched and signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@lru_cache(maxsize=32)
def _read_entry_points(group: str, folders: _Folders) -> EntryPoints:
    return metadata.entry_points(group=group)


@lru_cache(maxsize=256)
def _read_distribution(name: str, folders: _Folders) -> Distribution | None:
    try:
        return metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _folders() -> _Folders:
    return tuple((folder, _changed_ns(folder)) for folder in sys.path)


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=256)
def name_and_version(distribution: Distribution) -> str:
    """Return the name and version of a distribution, for messages and records."""
    return f"{distribution.name} {distribution.version}"


def plugins(group: str) -> dict[str, Plugin]:
    """Return the plug-ins of an entry-point group by name, without importing them.

    If two objects have the same name, the first is returned with the second as its `rival`.
    """
    by_name: dict[str, Plugin] = {}
    for point in entry_points(group=group):
        owner = name_and_version(point.dist) if point.dist else "an unnamed distribution"
        plugin = Plugin(group=group, name=point.name, value=point.value, distribution=owner)
        first = by_name.setdefault(point.name, plugin)
        if first.value != plugin.value:
            by_name[point.name] = replace(first, rival=f"{plugin.value} of {plugin.distribution}")
    return dict(sorted(by_name.items()))


def load_plugin(
    group: str,
    name: str,
    *,
    kind: str,
    accept: Accept[T] = lambda name, loaded: loaded,
    registry: dict[str, Any] | None = None,
) -> T:
    """Load one plug-in of a group.

    Parameters
    ----------
    group
        The entry-point group.
    name
        Name of the plug-in, usually from the user.
    kind
        Noun for such a plug-in in messages, for instance `import format`.
    accept
        See `Accept`.
    registry
        See `Plugin.load`.

    Raises
    ------
    UsageError
        The name is unknown (the message suggests similar ones), or the plug-in cannot be loaded or used.
    """
    available = plugins(group)
    if name not in available:
        raise unknown_name(kind, name, available)
    return available[name].load(accept, registry=registry)


def load_plugins(
    group: str, accept: Accept[T] = lambda name, loaded: loaded, *, registry: dict[str, Any] | None = None
) -> dict[str, T]:
    """Load all plug-ins of a group that can be loaded and are accepted, by name.

    The others are skipped. Each is reported once per process by a warning. If built-in plug-ins fail, usually because
    the installation is outdated, one warning gives their number.
    """
    loaded = {}
    stale: list[UsageError] = []
    for name, plugin in plugins(group).items():
        try:
            loaded[name] = plugin.load(accept, registry=registry)
        except UsageError as error:
            if plugin.built_in:
                stale.append(error)
            elif plugin not in _reported:
                _reported.add(plugin)
                _log.warning("%s", error)
    if stale and "faultset" not in _reported:
        _reported.add("faultset")
        _log.warning(
            "%d of the plug-ins in %s cannot be loaded; %s (first failure: %s)", len(stale), group, _REINSTALL, stale[0]
        )
    return loaded


def require_class(loaded: object, *methods: str) -> None:
    """Raise UsageError unless an object is a class with these methods and attributes."""
    missing = [name for name in methods if not hasattr(loaded, name)]
    if not isinstance(loaded, type) or missing:
        lacking = f", which lacks {', '.join(missing)}" if isinstance(loaded, type) else ""
        raise UsageError(f"it must be a class with {', '.join(methods)}, got {loaded!r}{lacking}")
