"""The cache in a dataset folder, for instance for the results of file checks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from faultset.core.documents import check_type, parse_json
from faultset.core.errors import DataError
from faultset.core.files import replacing
from faultset.core.regular_files import FileStamp, read_regular

if TYPE_CHECKING:
    pass


FOLDER = ".cache"


def cached_path(root: Path, name: str) -> Path:
    return root / FOLDER / name


def make_cache(path: Path) -> None:
    """Create the parent folder of a cached file or folder, and make git ignore it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    gitignore = path.parent / ".gitignore"
    if not gitignore.exists():
        gitignore.write_text("*\n")


def store_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file of the cache atomically; do nothing if it cannot be written, as in a read-only dataset."""
    with contextlib.suppress(OSError):
        if path.parent.is_symlink():
            return
        if not path.parent.is_dir():
            make_cache(path)
        with replacing(path, durable=False) as temporary, temporary.open("wb") as file:
            write(file)


_NAME = "content.json"
_LIMIT_BYTES = 256 << 20
_Records = dict[str, tuple[int, int, int, int, str, str]]


@dataclass(frozen=True, kw_only=True)
class CheckedFile:
    """Result of hashing and checking a file."""

    stamp: FileStamp
    """State of the file when it was read."""
    sha256: str
    check_name: str = ""
    """Name of the content check that it passed; empty if it was only hashed."""


def store_checked_files(root: Path, files: Mapping[str, CheckedFile]) -> None:
    """Add results to the cache, keyed by the file's path below the dataset folder."""
    merged = {**read_checked_files(root), **files}
    records = {name: (*astuple(entry.stamp), entry.sha256, entry.check_name) for name, entry in merged.items()}
    text = json.dumps(records, sort_keys=True).encode()
    store_file(cached_path(root, _NAME), lambda file: file.write(text))


def read_checked_files(root: Path) -> dict[str, CheckedFile]:
    """Return the cached results, keyed by the file's path below the dataset folder."""
    path = cached_path(root, _NAME)
    try:
        content = parse_json(read_regular(path, limit_bytes=_LIMIT_BYTES, below=root), str(path))
        records = check_type(content, _Records, str(path))
    except DataError:
        return {}
    return {
        name: CheckedFile(stamp=FileStamp(*stamp), sha256=digest, check_name=check_name)
        for name, (*stamp, digest, check_name) in records.items()
    }
