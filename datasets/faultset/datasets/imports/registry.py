"""Formats that can be imported, found through the entry-point group `faultset.importers`."""

from __future__ import annotations

from pathlib import Path

from faultset.core.plugins import load_plugin, load_plugins, plugins
from faultset.datasets.imports.contract import ImportFormat

GROUP = "faultset.importers"


def format_names() -> list[str]:
    """Return the names of all formats, without loading any."""
    return list(plugins(GROUP))


def format_named(name: str) -> ImportFormat:
    """Return a format; raise UsageError for a name that is not known or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="format")()


def recognised(path: Path) -> list[ImportFormat]:
    """Return every format that a path looks like."""
    return [found for found in (made() for made in load_plugins(GROUP).values()) if found.recognises(path)]
