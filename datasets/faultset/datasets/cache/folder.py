"""What is kept beside a dataset to save time: part of no version, and may be deleted at any moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from faultset.core.files import replacing

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
