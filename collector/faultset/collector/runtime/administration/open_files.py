"""Files that a store's server has open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_file_sizes(pid: int, endings: tuple[str, ...]) -> list[int]:
    """Return the bytes of the files with these endings that a process has open; it may close some meanwhile."""
    sizes = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target = os.readlink(link)
            if target.endswith(endings):
                sizes.append(os.stat(target).st_size)
    return sizes
