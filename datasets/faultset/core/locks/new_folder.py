"""A folder that appears when everything is in it, and not before."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.locks.folder_lock import LOCK, locked
from faultset.core.printable import printable


@contextmanager
def new_folder(out: Path, activity: str) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when the block ends without an error, and is removed otherwise.

    Parameters
    ----------
    out
        Folder to make; it must not exist, or be empty.
    activity
        What this process is doing there, for whoever finds the folder locked.

    Raises
    ------
    DataError
        There is something at `out`, or another process is writing it.
    """
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise DataError(f"{printable(out)} exists and is not empty; give a new folder")
    scratch = out.with_name(f".{out.name}.incomplete")
    scratch.mkdir(parents=True, exist_ok=True)
    if scratch.is_symlink() or (any(scratch.iterdir()) and not (scratch / LOCK).is_file()):
        raise DataError(
            f"{printable(scratch)} is in the way and was not made by faultset; remove it, or give another folder"
        )
    folder = scratch / out.name
    try:
        with locked(scratch, activity):
            # what a process that was killed has left
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                yield folder
                if out.exists():
                    out.rmdir()
                folder.rename(out)
            finally:
                # after an error the lock file stays, and is this process's own
                shutil.rmtree(folder, ignore_errors=True)
                (scratch / LOCK).unlink(missing_ok=True)
    finally:
        with contextlib.suppress(OSError):
            scratch.rmdir()
