"""Archives of foreign data, unpacked once into a temporary folder of the process."""

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
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.printable import first_line, quoted
from faultset.datasets.format.storage import translate_disk_full

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
_MAX_NAMES = 4000
_LEVELS = ("*", "*/*", "*/*/*", "*/*/*/*", "*/*/*/*/*")
_BATCH_SIZE = 1000
_MAX_DEPTH, _MAX_NAME_BYTES = 100, 255
_SMALL_BYTES = 1 << 30
_LARGEST_RATIO = 500
"""Largest credible ratio of unpacked to packed size; telemetry reaches at most 50."""
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
"""Errors that archive readers raise for damage; RuntimeError covers unknown compression methods."""


def is_archive(path: Path) -> bool:
    """Return whether a path is a file with the suffix of an archive."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def unpack(path: Path) -> Path:
    """Return the folder itself, or a temporary folder with the content of an archive; raise DataError for other files.

    The temporary folder is removed when this process ends. Child processes may read it until then.
    """
    if path.is_dir():
        return path
    if not is_archive(path):
        raise DataError(
            f"{path} is neither a folder nor an archive; give a folder or a file that ends in {', '.join(SUFFIXES)}"
        )
    state = path.stat()
    return _unpack_archive(path.resolve(), state.st_mtime_ns, state.st_size)


def list_names(path: Path) -> list[str]:
    """Return the first 4,000 names in an archive or up to five levels below a folder; empty if unreadable."""
    if path.is_dir():
        entries = (entry for pattern in _LEVELS for entry in path.glob(pattern))
        return [entry.relative_to(path).as_posix() for entry in islice(entries, _MAX_NAMES)]
    if not is_archive(path):
        return []
    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return archive.namelist()[:_MAX_NAMES]
        names: list[str] = []
        with tarfile.open(path) as archive:
            for member in archive:
                names.append(member.name)
                if len(names) >= _MAX_NAMES:
                    break
    except _DAMAGE:
        return []
    return names


def list_missing(layout: Sequence[tuple[str, str]], names: Sequence[str]) -> list[str]:
    """Return the items of a format's layout that none of the names match."""
    return [item for item, pattern in layout if not any(re.search(pattern, name) for name in names)]


@functools.cache
def _unpack_archive(path: Path, _changed_ns: int, size: int) -> Path:
    temporary = Path(tempfile.mkdtemp(prefix="faultset-unpacked-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    # Some formats read the names of folders above a case, so these must be the same in every import.
    folder = temporary / _remove_suffix(path.name)
    try:
        folder.mkdir()
        with translate_disk_full(folder):
            limit = min(max(_SMALL_BYTES, _LARGEST_RATIO * size), int(0.9 * shutil.disk_usage(folder).free))
            extract = _extract_zip if path.name.lower().endswith(".zip") else _extract_tar
            extract(path, folder, limit)
    except _DAMAGE as error:
        reason = first_line(error)
        raise DataError(f"{path} cannot be unpacked ({reason.rstrip(':( ')}); restore the file") from error
    return folder


def _extract_zip(path: Path, folder: Path, limit_bytes: int) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.flag_bits & _ENCRYPTED for member in members):
            raise DataError(f"{path} is encrypted; unpack it and give the folder")
        total = sum(member.file_size for member in members)
        _check_members(path, [member.filename for member in members], total, limit_bytes)
        archive.extractall(folder)


def _extract_tar(path: Path, folder: Path, limit_bytes: int) -> None:
    """Extract a few members at a time, so that limits hold before everything is read."""
    with tarfile.open(path) as archive:
        total, members = 0, iter(archive)
        while batch := list(islice(members, _BATCH_SIZE)):
            total += sum(member.size for member in batch)
            _check_members(path, [member.name for member in batch], total, limit_bytes)
            archive.extractall(folder, batch, filter="data")


def _remove_suffix(name: str) -> str:
    suffix = max((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len)
    return name[: -len(suffix)] or name


def _check_members(path: Path, names: Sequence[str], total_bytes: int, limit_bytes: int) -> None:
    if total_bytes > limit_bytes:
        raise DataError(
            f"{path} unpacks to more than {limit_bytes:,} bytes, the limit set by its size and the free disk space; "
            "unpack it and give the folder"
        )
    for name in names:
        levels = name.split("/")
        if len(levels) > _MAX_DEPTH or any(len(os.fsencode(level)) > _MAX_NAME_BYTES for level in levels):
            raise DataError(
                f"{path} holds {quoted(name)}; names must be at most {_MAX_DEPTH} folders deep and "
                f"{_MAX_NAME_BYTES} bytes long. Unpack it and give the folder"
            )
