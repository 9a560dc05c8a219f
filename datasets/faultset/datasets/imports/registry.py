"""Formats that can be imported, found through the entry-point group `faultset.importers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faultset.core.errors import UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins, require_class
from faultset.datasets.imports.contract import ImportFormat
from faultset.datasets.imports.guarded import GuardedFormat

GROUP = "faultset.importers"


def format_names() -> list[str]:
    """Return the names of all formats, without loading any."""
    return list(plugins(GROUP))


def format_named(name: str) -> ImportFormat:
    """Return a format; raise UsageError for a name that is not known or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="format", accept=_made)


def recognised(path: Path) -> list[ImportFormat]:
    """Return every format that a path looks like."""
    return [found for found in load_plugins(GROUP, _made).values() if found.recognises(path)]


def _made(name: str, loaded: Any) -> ImportFormat:
    require_class(loaded, "recognises", "cases", "load", "data_issues")
    made: ImportFormat = loaded()
    if made.name != name:
        raise UsageError(f'the format calls itself "{made.name}", and both names must be the same')
    return GuardedFormat(made)
