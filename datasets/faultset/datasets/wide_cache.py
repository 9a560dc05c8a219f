"""Wide frames of large episodes, kept beside the dataset so that a second evaluation need not make them again.

`DATASET/.cache` is no part of any version and may be deleted at any time. A frame is found by what it was made from:
the metrics file's size and time of change, the window, the roles, the step, and `REVISION`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

FOLDER = ".cache"
REVISION = 1
"""To be raised when `wide_frame` gives other numbers."""
FEWEST_BYTES = 1 << 20
"""Smaller metrics files are read and cut as quickly as a kept frame is found."""


def kept_frame(root: Path, metrics: Path, facts: dict[str, Any], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return a wide frame from the cache of a dataset, or make it and keep it.

    Parameters
    ----------
    root
        Dataset folder; without a version in it nothing is kept.
    metrics
        File that the frame is made from.
    facts
        All else that decides what is in the frame; must hold `start_ns`, `step_ns` and `episode`.
    make
        Makes the frame.
    """
    try:
        stat = metrics.stat()
    except OSError:
        return make()
    if stat.st_size < FEWEST_BYTES or not (root / "versions").is_dir():
        return make()
    identity = json.dumps([REVISION, stat.st_size, stat.st_mtime_ns, facts], sort_keys=True)
    name = f"{facts['episode']}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.frame"
    path = root / FOLDER / name
    found = _read(path, facts)
    if found is None:
        found = make()
        # A dataset that cannot be written to is read without a cache.
        with contextlib.suppress(OSError):
            _write(path, found)
    return found


def _read(path: Path, facts: dict[str, Any]) -> pd.DataFrame | None:
    import pandas as pd

    try:
        with path.open("rb") as file:
            columns = [tuple(pair) for pair in json.loads(file.readline())]
            data = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if data.ndim != 2 or data.shape[1] != len(columns):
        return None
    times = facts["start_ns"] + facts["step_ns"] * np.arange(len(data))
    index = pd.DatetimeIndex(times, tz="UTC", name="time").as_unit("ns")
    return pd.DataFrame(data, index=index, columns=pd.MultiIndex.from_tuples(columns, names=["service", "metric"]))


def _write(path: Path, frame: pd.DataFrame) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(exist_ok=True)
        (path.parent / ".gitignore").write_text("*\n")
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps([list(pair) for pair in frame.columns]).encode() + b"\n")
            np.save(file, np.ascontiguousarray(frame.to_numpy(dtype=float)), allow_pickle=False)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
