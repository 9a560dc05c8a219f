"""Check the output folder of results before the work starts, and report write errors in one sentence."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faultset.core.errors import DataError, UsageError
from faultset.core.files import is_disk_full
from faultset.core.printable import printable

RESULTS_FILE, DETECTIONS_FILE, ALARMS_FILE = "results.parquet", "detections.parquet", "alarms.parquet"
FILES = (RESULTS_FILE, "leaderboard.json", "leaderboard.md", "report.html")
"""Files of every evaluation."""
RECORDING_FILES = (DETECTIONS_FILE, ALARMS_FILE)
"""Further files of evaluations on recordings."""


def check_writable(folder: Path) -> None:
    """Create a folder if it is missing and check that files can be written to it.

    Raises
    ------
    UsageError
        The folder is not writable.
    DataError
        The disk is full.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # a unique name, because two evaluations may test the same folder at the same time
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable.") as file:
            # write content, because a full disk still accepts empty files
            Path(file.name).write_bytes(bytes(4096))


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert errors while writing into a folder to one sentence.

    Raises
    ------
    UsageError
        The folder is not writable.
    DataError
        The disk is full.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if is_disk_full(error) or getattr(error, "errno", None) == errno.EFBIG:
            raise DataError(
                f"no space left on the disk of {printable(folder)}; free some or choose another --out, then run the "
                "same command again"
            ) from error
        if isinstance(error, ValueError) and "null byte" not in str(error) and "surrogates" not in str(error):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"results cannot be written to {printable(folder)} ({reason}); choose another --out"
        ) from error
