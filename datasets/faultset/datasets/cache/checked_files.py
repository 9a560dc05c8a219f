"""Which files of a dataset were looked at before, so that they are read once only.

What was found out about a file counts while its stamp stays as it was. No archive and no copy carries a stamp over, so
what somebody ships beside a dataset is never believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.reading.documents import checked, parse_json
from faultset.core.reading.regular_files import FileStamp, read_regular
from faultset.datasets.cache.folder import cached_path, keep_file

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
