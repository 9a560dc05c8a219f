"""Files that a store's server has open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from faultset.core.errors import PlatformError


def open_file_sizes(pid: int, endings: tuple[str, ...]) -> list[int]:
    """Return the bytes of the files with these endings that a process has open; it may close some meanwhile.

    Raises
    ------
    PlatformError
        The process is gone, or of another user.
    """
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError as error:
        raise PlatformError(f"the store's server cannot be looked at ({error}); see its log") from error
    sizes = []
    for link in links:
        with suppress(FileNotFoundError):
            target = os.readlink(link)
            if target.endswith(endings):
                sizes.append(os.stat(target).st_size)
    return sizes
