"""Caches in a dataset folder: results of file checks, and wide frames of metrics."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from faultset.core.documents import check_type, parse_json
from faultset.core.errors import DataError
from faultset.core.files import replacing
from faultset.core.regular_files import FileStamp, read_regular, stat_regular_file
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import table_file

if TYPE_CHECKING:
    import pandas as pd


FOLDER = ".cache"


def cached_path(root: Path, name: str) -> Path:
    """Return the path of a file in the cache of a dataset folder."""
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


REVISION = 4
"""Increment this when `wide_frame` returns different numbers."""
MIN_CACHED_BYTES = 1 << 20
"""Frames of smaller metrics files are not cached, because computing them is as fast as reading them."""


def frame_facts(context: EpisodeContext, step_s: float, roles: frozenset[str] | None) -> dict[str, Any]:
    """Return everything that determines the wide frame of an episode, except the samples."""
    return {
        "episode": context.episode,
        "start_ns": context.view_start_ns,
        "end_ns": context.view_end_ns,
        "step_ns": round(step_s * 1e9),
        "roles": None if roles is None else sorted(roles),
        "metric_roles": [dict(row) for row in context.metric_roles],
    }


def cached_frame(episode: Path, facts: dict[str, Any], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return a wide frame from the cache of a dataset, or compute and cache it.

    Parameters
    ----------
    episode
        Episode folder; nothing is cached if its dataset has no version.
    facts
        Result of `frame_facts`.
    make
        Function that computes the frame.
    """
    path = _build_path(episode, facts)
    if path is None or not (episode.parent.parent / "versions").is_dir():
        return make()
    frame = _read_frame(path, facts)
    if frame is None:
        frame = make()
        _store_frame(path, frame)
    return frame


def cache_frame(episode: Path, facts: dict[str, Any], make: Callable[[], pd.DataFrame]) -> None:
    """Compute and cache a frame of an episode that was just written."""
    path = _build_path(episode, facts)
    if path is not None:
        _store_frame(path, make())


def _build_path(episode: Path, facts: dict[str, Any]) -> Path | None:
    """Return the cache file of a frame, or None if the metrics are missing or too small."""
    try:
        stamp = FileStamp.of(episode / table_file("metrics"), episode)
    except DataError:
        return None
    if stamp.bytes < MIN_CACHED_BYTES:
        return None
    identity = json.dumps([REVISION, *astuple(stamp), facts], sort_keys=True)
    name = f"{facts['episode']}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.frame"
    return cached_path(episode.parent.parent, name)


def _read_frame(path: Path, facts: dict[str, Any]) -> pd.DataFrame | None:
    import pandas as pd

    try:
        if path.parent.is_symlink():
            return None
        stat_regular_file(path)
        with path.open("rb") as file:
            columns = _parse_columns(file.readline())
            data = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, DataError, RecursionError, TypeError):
        return None
    if data.ndim != 2 or data.shape[1] != len(columns):
        return None
    times = facts["start_ns"] + facts["step_ns"] * np.arange(len(data))
    index = pd.DatetimeIndex(times, tz="UTC", name="time").as_unit("ns")
    return pd.DataFrame(data, index=index, columns=columns)


@lru_cache(maxsize=16)
def _parse_columns(header: bytes) -> pd.MultiIndex:
    """Parse the names of the columns; most episodes of a system share them."""
    import pandas as pd

    return pd.MultiIndex.from_tuples([tuple(pair) for pair in json.loads(header)], names=["service", "metric"])


def _store_frame(path: Path, frame: pd.DataFrame) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(json.dumps([list(pair) for pair in frame.columns]).encode() + b"\n")
        np.save(file, np.ascontiguousarray(frame.to_numpy(dtype=float)), allow_pickle=False)

    store_file(path, write)
