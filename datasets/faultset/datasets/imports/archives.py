"""Foreign data that is still packed: unpacked once into a folder that goes away with the process."""

from __future__ import annotations

import atexit
import functools
import lzma
import os
import re
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.printable import printable, quoted
from faultset.datasets.format.storage import translate_disk_full

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
_PEEKED = 4000
_LEVELS = ("*", "*/*", "*/*/*", "*/*/*/*", "*/*/*/*/*")
_BATCH = 1000
_DEEPEST, _LONGEST = 100, 255
_SMALL_BYTES = 1 << 30
_LARGEST_RATIO = 500
"""Text of telemetry is packed to a fiftieth at best; more than this is a claim."""
_ENCRYPTED = 1
_DAMAGE = (
    OSError,
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    RuntimeError,
    ValueError,
    OverflowError,
    struct.error,
)
"""What the readers of archives raise for damage; NotImplementedError for an unknown method is a RuntimeError."""


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
    """Return the first names in an archive, or below a folder five levels deep; none when it cannot be read."""
    if path.is_dir():
        found = (entry for pattern in _LEVELS for entry in path.glob(pattern))
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
    except _DAMAGE:
        return []
    return names


def missing_of(layout: Sequence[tuple[str, str]], names: Sequence[str]) -> list[str]:
    """Return what of a format's layout none of the names matches."""
    return [part for part, pattern in layout if not any(re.search(pattern, name) for name in names)]


@functools.cache
def _unpacked(path: Path, _changed_ns: int, size: int) -> Path:
    temporary = Path(tempfile.mkdtemp(prefix="faultset-unpacked-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    # Some formats read names of folders above a case: they must be the same in every import.
    folder = temporary / _without_suffix(path.name)
    try:
        folder.mkdir()
        with translate_disk_full(folder):
            limit = min(max(_SMALL_BYTES, _LARGEST_RATIO * size), int(0.9 * shutil.disk_usage(folder).free))
            if path.name.lower().endswith(".zip"):
                with zipfile.ZipFile(path) as archive:
                    members = archive.infolist()
                    if any(member.flag_bits & _ENCRYPTED for member in members):
                        raise DataError(f"{path} is encrypted; unpack it and give the folder")
                    total = sum(member.file_size for member in members)
                    _check_members(path, [member.filename for member in members], total, limit)
                    archive.extractall(folder)
            else:
                with tarfile.open(path) as archive:
                    total = 0
                    for members in _batches(archive):
                        total += sum(member.size for member in members)
                        _check_members(path, [member.name for member in members], total, limit)
                        archive.extractall(folder, members, filter="data")
    except _DAMAGE as error:
        reason = printable((str(error).splitlines() or [type(error).__name__])[0][:200])
        raise DataError(f"{path} cannot be unpacked ({reason.rstrip(':( ')}); restore the file") from error
    return folder


def _without_suffix(name: str) -> str:
    suffix = max((one for one in SUFFIXES if name.lower().endswith(one)), key=len)
    return name[: -len(suffix)] or name


def _batches(archive: tarfile.TarFile) -> Iterator[list[tarfile.TarInfo]]:
    """Yield the members of an archive a few at a time, so that limits hold before everything was read."""
    members = iter(archive)
    while batch := list(islice(members, _BATCH)):
        yield batch


def _check_members(path: Path, names: Sequence[str], total_bytes: int, limit_bytes: int) -> None:
    if total_bytes > limit_bytes:
        raise DataError(
            f"{path} unpacks to more than {limit_bytes:,} bytes, which is more than its size allows or the disk "
            "for temporary files holds; unpack it and give the folder"
        )
    for name in names:
        parts = name.split("/")
        if len(parts) > _DEEPEST or any(len(os.fsencode(part)) > _LONGEST for part in parts):
            raise DataError(
                f"{path} holds {quoted(name)}, which is more than {_DEEPEST} folders deep or has a name of more than "
                f"{_LONGEST} bytes; unpack it and give the folder"
            )
