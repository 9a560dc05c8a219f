"""Import formats of the entry-point group `faultset.importers`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins, require_class
from faultset.datasets.imports.archives import list_missing, list_names
from faultset.datasets.imports.contract import ImportFormat

GROUP = "faultset.importers"
_log = logging.getLogger(__name__)


def format_names() -> list[str]:
    """Return the names of all formats without loading them."""
    return list(plugins(GROUP))


def load_format(name: str) -> ImportFormat:
    """Return a format; raise UsageError for an unknown name or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="format", accept=_build)


def find_formats(path: Path) -> list[ImportFormat]:
    """Return all formats that recognise a path."""
    return [importer for importer in load_plugins(GROUP, _build).values() if is_recognised(importer, path)]


def is_recognised(importer: ImportFormat, path: Path) -> bool:
    """Return whether a format recognises a path; False if it raises an error."""
    try:
        return importer.recognises(path)
    except Exception:
        _log.debug("%s", path, exc_info=True)
        return False


@contextmanager
def reading(importer: ImportFormat, origin: str) -> Iterator[None]:
    """Translate unexpected errors raised by a format into a DataError that names the origin."""
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
    """Return a sentence on the most similar format and what the path lacks; empty if none is similar."""
    folder = path.resolve()
    # Cases are often named after their folder.
    names = [f"{folder.parent.name}/{folder.name}/{name}" for name in list_names(path)]
    nearest: ImportFormat | None = None
    share, missing = 0.0, list[str]()
    for importer in load_plugins(GROUP, _build).values():
        absent = list_missing(importer.layout, names)
        matched_share = 1 - len(absent) / max(1, len(importer.layout))
        if matched_share > share:
            nearest, share, missing = importer, matched_share, absent
    if nearest is None:
        return ""
    present = " and ".join(item for item, _ in nearest.layout if item not in missing)
    lack = f"lacks {' and '.join(missing)}" if missing else "does not have them together in one folder"
    return f"It looks most like {nearest.title} data: it has {present} and {lack}."


def _build(name: str, plugin: Any) -> ImportFormat:
    require_class(plugin, "layout", "recognises", "cases", "load")
    importer: ImportFormat = plugin()
    if importer.name != name:
        raise UsageError(
            f'its attribute `name` is "{importer.name}", but must be the name of its entry point, "{name}"'
        )
    return importer
