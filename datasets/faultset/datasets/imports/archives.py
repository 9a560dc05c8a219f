"""Foreign data that is still packed: unpacked once into a folder that goes away with the process."""

from __future__ import annotations

import atexit
import functools
import shutil
import tarfile
import tempfile
import zipfile
from itertools import islice
from pathlib import Path

from faultset.core.errors import DataError
from faultset.datasets.format.storage import disk_full_named

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
_PEEKED = 4000


def is_archive(path: Path) -> bool:
    """Say whether a path is a file that is named like an archive."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def unpacked(path: Path) -> Path:
    """Return a folder as it is, and for an archive a temporary folder with what it holds.

    The folder is removed when this process ends; processes that it started may read it until then.

    Raises
    ------
    DataError
        When the file is no archive, is damaged, or does not fit on the disk.
    """
    if path.is_dir():
        return path
    if not is_archive(path):
        raise DataError(f"{path} is neither a folder nor an archive; give one that ends in {', '.join(SUFFIXES)}")
    state = path.stat()
    return _unpacked(path.resolve(), state.st_mtime_ns, state.st_size)


def names_in(path: Path) -> list[str]:
    """Return the first names in an archive, or below a folder three levels deep; none when it cannot be read."""
    if path.is_dir():
        found = (entry for pattern in ("*", "*/*", "*/*/*") for entry in path.glob(pattern))
        return [entry.relative_to(path).as_posix() for entry in islice(found, _PEEKED)]
    if not is_archive(path):
        return []
    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return archive.namelist()[:_PEEKED]
        names: list[str] = []
        with tarfile.open(path) as archive:
            for member in archive:
                names.append(member.name)
                if len(names) >= _PEEKED:
                    break
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError):
        return []
    return names


@functools.cache
def _unpacked(path: Path, _changed_ns: int, _size: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="faultset-unpacked-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with disk_full_named(folder):
            if path.name.lower().endswith(".zip"):
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(folder)
            else:
                with tarfile.open(path) as archive:
                    archive.extractall(folder, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path} cannot be unpacked ({error}); restore the file") from error
    return folder
