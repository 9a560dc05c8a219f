"""Plug-ins: objects that distributions announce through entry points, loaded so that a broken one harms no other.

Every kind of extension has an entry-point group of its own (`faultset.faults`, `faultset.baselines`, ...). Built-in
extensions are announced exactly as those of third parties are.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from faultset.core.errors import UsageError
from faultset.core.extras import missing_extra
from faultset.core.suggestions import unknown_name

_log = logging.getLogger(__name__)
_reported: set[Plugin] = set()


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """An extension that an installed distribution announces, not loaded yet."""

    group: str
    name: str
    value: str
    """The object that the entry point names, as `module:attribute` or `module`."""
    distribution: str
    """Name and version of the distribution that announces it."""

    @property
    def built_in(self) -> bool:
        """Whether it comes with faultset itself."""
        return self.distribution.rpartition(" ")[0] == "faultset"

    def load(self) -> Any:
        """Import what the entry point names.

        Raises
        ------
        UsageError
            It cannot be imported; the sentence names the entry point, the distribution and the reason.
        """
        try:
            return EntryPoint(self.name, self.value, self.group).load()
        except UsageError:
            raise
        except Exception as error:  # whatever a third party's module does when it is imported
            if isinstance(error, ModuleNotFoundError) and (missing := missing_extra(error)):
                raise missing from error
            reason = str(error).strip().partition("\n")[0] or "no message"
            raise UsageError(
                f'the plug-in "{self.name}" of {self.distribution} (entry point {self.group}, {self.value}) cannot be '
                f"loaded: {type(error).__name__}: {reason}; repair or uninstall that distribution"
            ) from error


def plugins(group: str) -> dict[str, Plugin]:
    """Return what is announced in an entry-point group, by name, without importing anything.

    Raises
    ------
    UsageError
        Two distributions announce the same name for different objects.
    """
    found: dict[str, Plugin] = {}
    for point in entry_points(group=group):
        owner = f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed distribution"
        plugin = Plugin(group=group, name=point.name, value=point.value, distribution=owner)
        other = found.setdefault(point.name, plugin)
        if other.value != plugin.value:
            raise UsageError(
                f'two plug-ins are called "{point.name}" in {group}: {other.value} of {other.distribution} and '
                f"{plugin.value} of {plugin.distribution}; uninstall one of them"
            )
    return dict(sorted(found.items()))


def load_plugin(group: str, name: str, *, kind: str) -> Any:
    """Return the plug-in of that name, loaded.

    Parameters
    ----------
    group
        The entry-point group.
    name
        What the user asked for.
    kind
        What such a plug-in is called in sentences for people, for instance `import format`.

    Raises
    ------
    UsageError
        There is none of that name (the sentence suggests the nearest), or it cannot be loaded.
    """
    known = plugins(group)
    if name not in known:
        raise unknown_name(kind, name, known)
    return known[name].load()


def load_plugins(group: str) -> dict[str, Any]:
    """Return every plug-in of a group that can be loaded, by name.

    One that cannot is left out, and a warning names it once for each process; `load_plugin` raises it as an error.
    """
    loaded = {}
    for name, plugin in plugins(group).items():
        try:
            loaded[name] = plugin.load()
        except UsageError as error:
            if plugin not in _reported:
                _reported.add(plugin)
                _log.warning("%s", error)
    return loaded
