"""The cache of a dataset folder: what was found out about files that have not changed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO

from faultset.core.errors import DataError
from faultset.core.files import replacing
from faultset.core.reading.documents import checked, parse_json
from faultset.core.reading.regular_files import FileStamp, read_regular

FOLDER = ".cache"


def cached_path(root: Path, name: str) -> Path:
    """Say where a file is kept for a dataset folder."""
    return root / FOLDER / name


def keep_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a kept file, whole or not at all; a dataset that cannot be written to is used without."""
    with contextlib.suppress(OSError):
        if path.parent.is_symlink():
            return
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            (path.parent / ".gitignore").write_text("*\n")
        with replacing(path, durable=False) as temporary, temporary.open("wb") as file:
            write(file)


_NAME = "content.json"
_LIMIT_BYTES = 256 << 20
_Records = dict[str, tuple[int, int, int, int, str, str]]


@dataclass(frozen=True, kw_only=True)
class CheckedFile:
    """What was found out about a file."""

    stamp: FileStamp
    """State of the file at that time."""
    sha256: str
    checked_for: str = ""
    """What its content was checked for; empty when it was only hashed."""


def remember(root: Path, files: Mapping[str, CheckedFile]) -> None:
    """Keep what was found out about files, by their path below a dataset folder."""
    known = {**known_files(root), **files}
    records = {name: (*astuple(seen.stamp), seen.sha256, seen.checked_for) for name, seen in known.items()}
    text = json.dumps(records, sort_keys=True).encode()
    keep_file(cached_path(root, _NAME), lambda file: file.write(text))


def known_files(root: Path) -> dict[str, CheckedFile]:
    """Return what is known of files, by their path below a dataset folder."""
    path = cached_path(root, _NAME)
    try:
        content = parse_json(read_regular(path, limit_bytes=_LIMIT_BYTES, below=root), str(path))
        records = checked(content, _Records, str(path))
    except DataError:
        return {}
    return {
        name: CheckedFile(stamp=FileStamp(*stamp), sha256=digest, checked_for=checked_for)
        for name, (*stamp, digest, checked_for) in records.items()
    }
