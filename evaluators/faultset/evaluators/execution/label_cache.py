"""What an evaluation works out from every episode before any method runs, kept while the files stay as they are.

Labels are the truth: they are kept in the user's own folder for caches, which methods cannot read, and never beside
the dataset. What was kept is found by the stamps of the files, which no copy carries over, and the code that read them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from faultset.core.errors import DataError
from faultset.core.reading.regular_files import FileStamp
from faultset.evaluators.execution.user_cache import UserCache, size_limit_from, user_cache_folder
from faultset.evaluators.results.provenance import code_version

BYTES_VARIABLE = "FAULTSET_LABELS_BYTES"
T = TypeVar("T")
_LIMIT_BYTES = 256 << 20


def labels_folder() -> Path:
    """Return where it is kept: `faultset/labels` in the user's folder for caches."""
    return user_cache_folder() / "labels"


def cached_or_read(kind: Any, folders: Iterable[Path], names: Iterable[str], read: Callable[[], T]) -> T:
    """Return what was kept of some episodes; read and keep it where there is nothing, or a file has changed.

    Parameters
    ----------
    kind
        Type of the result, as pydantic can write and read it in JSON.
    folders
        Folders of the episodes.
    names
        Files below each of them that the result depends on.
    read
        Makes the result.
    """
    adapter: TypeAdapter[T] = TypeAdapter(kind)
    limit_bytes = size_limit_from(BYTES_VARIABLE, _LIMIT_BYTES)
    kept = UserCache(folder=labels_folder(), suffix=".json", limit_bytes=limit_bytes)
    key = _key(str(kind), folders, tuple(names)) if limit_bytes else None
    content = None if key is None else kept.find(key, limit_bytes)
    if content is not None:
        try:
            return adapter.validate_json(content)
        except ValidationError:
            pass  # somebody else's, or damaged: made again
    found = read()
    if key is not None:
        kept.keep(key, adapter.dump_json(found))
    return found


def _key(kind: str, folders: Iterable[Path], names: tuple[str, ...]) -> str | None:
    """Hash everything that a result can depend on; None where a file is missing or no regular one."""
    try:
        stamps = [
            (str(folder), name, *astuple(FileStamp.of(folder / name, folder))) for folder in folders for name in names
        ]
    except DataError:
        return None
    text = json.dumps([kind, code_version(), stamps], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
