"""Formats that can be imported, found through the entry-point group `faultset.importers`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins, require_class
from faultset.datasets.imports.archives import missing_of, names_in
from faultset.datasets.imports.contract import ImportFormat

GROUP = "faultset.importers"
_log = logging.getLogger(__name__)


def format_names() -> list[str]:
    """Return the names of all formats, without loading any."""
    return list(plugins(GROUP))


def format_named(name: str) -> ImportFormat:
    """Return a format; raise UsageError for a name that is not known or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="format", accept=_made)


def recognised(path: Path) -> list[ImportFormat]:
    """Return every format that a path looks like."""
    return [importer for importer in load_plugins(GROUP, _made).values() if is_recognised(importer, path)]


def is_recognised(importer: ImportFormat, path: Path) -> bool:
    """Return whether a format recognises a path; what cannot be looked at is not recognised."""
    try:
        return importer.recognises(path)
    except Exception:
        _log.debug("%s", path, exc_info=True)
        return False


@contextmanager
def reading(importer: ImportFormat, origin: str) -> Iterator[None]:
    """Turn whatever a format did not foresee in its data into one sentence that names the origin."""
    try:
        yield
    except FaultsetError:
        raise
    except Exception as error:
        _log.debug("%s", origin, exc_info=True)
        reason = (str(error).splitlines() or [""])[0][:200]
        raise DataError(
            f"{origin} cannot be read as {importer.title} data ({type(error).__name__}: {reason}); restore its files"
        ) from error


def describe_nearest(path: Path) -> str:
    """Return a sentence on the format that a path looks most like, with what it lacks; empty for none."""
    folder = path.resolve()
    # The name of a case is often that of its folder.
    names = [f"{folder.parent.name}/{folder.name}/{name}" for name in names_in(path)]
    nearest: ImportFormat | None = None
    share, missing = 0.0, list[str]()
    for importer in load_plugins(GROUP, _made).values():
        absent = missing_of(importer.layout, names)
        matched = 1 - len(absent) / max(1, len(importer.layout))
        if matched > share:
            nearest, share, missing = importer, matched, absent
    if nearest is None:
        return ""
    present = " and ".join(part for part, _ in nearest.layout if part not in missing)
    lack = f"lacks {' and '.join(missing)}" if missing else "does not have them together in one folder"
    return f"It looks most like {nearest.title} data: it has {present} and {lack}."


def _made(name: str, loaded: Any) -> ImportFormat:
    require_class(loaded, "layout", "recognises", "cases", "load")
    made: ImportFormat = loaded()
    if made.name != name:
        raise UsageError(f'the format calls itself "{made.name}", and both names must be the same')
    return made
