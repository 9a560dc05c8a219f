"""Which files of a folder a format reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.printable import printable

_MOST_FILES = 1_000_000


def files_below(path: Path, wanted: Callable[[Path], bool], what: str) -> list[Path]:
    """Return the file itself, or all files below a folder that are wanted, sorted; links to folders are not followed.

    Raises
    ------
    DataError
        There is none.
    """
    if not path.exists():
        raise DataError(f"there is nothing at {printable(path)}; give {what}")
    if not path.is_dir():
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        found += [file for name in names if wanted(file := Path(folder) / name)]
        if len(found) > _MOST_FILES:
            raise DataError(f"{printable(path)} holds more than {_MOST_FILES:,} files; give a smaller folder")
    if not found:
        raise DataError(f"{printable(path)} holds no runs; give {what}")
    return sorted(found)
