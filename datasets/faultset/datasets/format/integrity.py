"""Whether a version's files still are what it recorded.

A file that was hashed is not hashed again while its size and its time of change stay as they were; `verify` always
reads everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faultset.datasets.format.cache_folder import cached_path, keep_file
from faultset.datasets.format.summaries import sha256_of

Seen = tuple[int, int, str]
"""Bytes, time of change in nanoseconds, and SHA-256 of a file."""
_NAME = "content.json"


def differing_files(root: Path, expected: Mapping[Path, str], threads: int) -> list[Path]:
    """Return the files of a dataset folder whose SHA-256 is not the expected one."""
    known = _known(root)
    unseen, wrong = {}, []
    for path, checksum in expected.items():
        stat = path.stat()
        size, changed_ns, digest = known.get(_key(root, path), (-1, -1, ""))
        if (size, changed_ns) != (stat.st_size, stat.st_mtime_ns):
            unseen[path] = (stat.st_size, stat.st_mtime_ns)
        elif digest != checksum:
            wrong.append(path)
    with ThreadPoolExecutor(threads) as pool:
        digests = list(pool.map(sha256_of, unseen))
    found = {path: (*stamp, digest) for (path, stamp), digest in zip(unseen.items(), digests, strict=True)}
    if found:
        remember(root, found)
    return wrong + [path for path, (*_, digest) in found.items() if digest != expected[path]]


def remember(root: Path, files: Mapping[Path, Seen]) -> None:
    """Keep what was found out about files below a dataset folder."""
    known = _known(root) | {_key(root, path): seen for path, seen in files.items()}
    text = json.dumps(known, sort_keys=True).encode()
    keep_file(cached_path(root, _NAME), lambda file: file.write(text))


def _known(root: Path) -> dict[str, Seen]:
    try:
        content = json.loads(cached_path(root, _NAME).read_bytes())
        return {name: (int(size), int(changed_ns), str(digest)) for name, (size, changed_ns, digest) in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _key(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
