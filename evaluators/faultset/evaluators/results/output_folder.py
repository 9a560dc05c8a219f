"""The folder that results are written to: tried before the work, and every error of it as one sentence."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faultset.core.errors import DataError, UsageError
from faultset.core.files import is_disk_full
from faultset.core.printable import printable


def check_writable(folder: Path) -> None:
    """Make sure that files can be written into a folder, which is made where it is missing.

    Raises
    ------
    UsageError
        They cannot.
    DataError
        The disk is full.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # of a name of its own: two evaluations may try the same folder at once
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable.") as file:
            # not empty: a full disk still has room for a name
            Path(file.name).write_bytes(bytes(4096))


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn the errors of writing into a folder into one sentence that names it.

    Raises
    ------
    UsageError
        The folder cannot be written to.
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
