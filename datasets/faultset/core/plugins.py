"""Plug-ins: objects that distributions announce through entry points, loaded so that a broken one harms no other.

Every kind of extension has an entry-point group of its own (`faultset.faults`, `faultset.baselines`, ...). Built-in
extensions are announced exactly as those of third parties are.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from types import FrameType
from typing import Any, TypeVar

from faultset.core.errors import UsageError, missing_extra
from faultset.core.suggestions import unknown_name

_log = logging.getLogger(__name__)
_reported: set[Plugin] = set()
T = TypeVar("T")
_Folders = tuple[tuple[str, int], ...]
"""The folders that modules are found in, with the time of their last change."""
Accept = Callable[[str, Any], T]
"""Takes the name of an entry point and the object that was imported, and returns what the group holds.

Raises UsageError or ValueError with the reason when the object is not of that kind.
"""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """An extension that an installed distribution announces, not loaded yet."""

    group: str
    name: str
    value: str
    """The object that the entry point names, as `module:attribute` or `module`."""
    distribution: str
    """Name and version of the distribution that announces it."""
    rival: str = ""
    """Another object, and its distribution, that is announced by the same name; empty without one."""

    @property
    def built_in(self) -> bool:
        """Whether it comes with faultset itself."""
        return self.distribution.rpartition(" ")[0] == "faultset"

    def load(self, accept: Accept[T] = lambda name, loaded: loaded, *, announced: dict[str, Any] | None = None) -> T:
        """Import what the entry point names, and return what `accept` makes of it.

        Parameters
        ----------
        accept
            See `Accept`.
        announced
            The registry into which decorators in the imported module write; what they wrote is taken back when the
            plug-in is not accepted.

        Raises
        ------
        UsageError
            It cannot be imported or is not accepted; the sentence names the entry point, the distribution and the
            reason.
        """
        if self.rival:
            raise UsageError(
                f'two plug-ins are called "{self.name}" in {self.group}: {self.value} of {self.distribution} and '
                f"{self.rival}; uninstall one of them"
            )
        before = {**announced} if announced is not None else {}
        loaded, accepted = None, False
        try:
            # standard output carries results, which a program may be reading
            with redirect_stdout(sys.stderr), _own_interrupts():
                loaded = EntryPoint(self.name, self.value, self.group).load()
                made = accept(self.name, loaded)
            accepted = True
            return made
        except ModuleNotFoundError as error:
            raise missing_extra(error) or self._broken("loaded", error) from error
        except (UsageError, ValueError) as error:
            raise self._broken("used", error) from error
        except (Exception, SystemExit) as error:  # whatever a third party's module does when it is imported
            raise self._broken("loaded", error) from error
        finally:
            if announced is not None and not accepted:
                own = {name: announced[name] for name in self._siblings() & announced.keys()} if loaded else {}
                announced.clear()
                announced.update(own | before)

    def _siblings(self) -> set[str]:
        """Return the names of the other plug-ins of the same module, each of which is accepted or not by itself."""
        module = self.value.partition(":")[0]
        others = plugins(self.group).values()
        return {other.name for other in others if other.value.partition(":")[0] == module} - {self.name}

    def _broken(self, done: str, error: BaseException) -> UsageError:
        reason = str(error).strip().partition("\n")[0] or "no message"
        if not isinstance(error, UsageError):
            reason = f"{type(error).__name__}: {reason}"
        return UsageError(
            f'the plug-in "{self.name}" of {self.distribution} (entry point {self.group}, {self.value}) cannot be '
            f"{done}: {reason}; repair or uninstall that distribution"
        )


def entry_points(*, group: str) -> EntryPoints:
    """Return the entry points of a group; installed distributions are read again only when a folder has changed."""
    return _read_entry_points(group, _folders())


def find_distribution(name: str) -> Distribution | None:
    """Return an installed distribution, read again only when a folder has changed; None where there is none."""
    return _read_distribution(name, _folders())


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Turn a KeyboardInterrupt that a module raises by itself, without a Ctrl-C, into an error like any other."""
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
    """Return what sentences and records call a distribution."""
    return f"{distribution.name} {distribution.version}"


def plugins(group: str) -> dict[str, Plugin]:
    """Return what is announced in an entry-point group, by name, without importing anything.

    Of two objects that are announced by the same name, the first is returned with the other as its `rival`.
    """
    found: dict[str, Plugin] = {}
    for point in entry_points(group=group):
        owner = name_and_version(point.dist) if point.dist else "an unnamed distribution"
        plugin = Plugin(group=group, name=point.name, value=point.value, distribution=owner)
        other = found.setdefault(point.name, plugin)
        if other.value != plugin.value:
            rival = f"{plugin.value} of {plugin.distribution}"
            found[point.name] = Plugin(**{**vars(other), "rival": rival})
    return dict(sorted(found.items()))


def load_plugin(
    group: str,
    name: str,
    *,
    kind: str,
    accept: Accept[T] = lambda name, loaded: loaded,
    announced: dict[str, Any] | None = None,
) -> T:
    """Return the plug-in of that name, loaded.

    Parameters
    ----------
    group
        The entry-point group.
    name
        What the user asked for.
    kind
        What such a plug-in is called in sentences for people, for instance `import format`.
    accept
        See `Accept`.
    announced
        See `Plugin.load`.

    Raises
    ------
    UsageError
        There is none of that name (the sentence suggests the nearest), or it cannot be loaded or used.
    """
    known = plugins(group)
    if name not in known:
        raise unknown_name(kind, name, known)
    return known[name].load(accept, announced=announced)


def load_plugins(
    group: str, accept: Accept[T] = lambda name, loaded: loaded, *, announced: dict[str, Any] | None = None
) -> dict[str, T]:
    """Return every plug-in of a group that can be loaded and is accepted, by name.

    One that cannot is left out, and a warning names it once for each process; `load_plugin` raises it as an error.
    """
    loaded = {}
    for name, plugin in plugins(group).items():
        try:
            loaded[name] = plugin.load(accept, announced=announced)
        except UsageError as error:
            if plugin not in _reported:
                _reported.add(plugin)
                _log.warning("%s", error)
    return loaded


def require_class(loaded: object, *methods: str) -> None:
    """Raise UsageError when a loaded object is not a class with these methods and attributes."""
    missing = [name for name in methods if not hasattr(loaded, name)]
    if not isinstance(loaded, type) or missing:
        lacking = f", which lacks {', '.join(missing)}" if isinstance(loaded, type) else ""
        raise UsageError(f"it must be a class with {', '.join(methods)}; found {loaded!r}{lacking}")
