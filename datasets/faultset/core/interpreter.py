"""Python processes of our own import what this process would, never what happens to lie where they start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SAFE_PATH = "-P"
"""Option without which `-m` imports from the working folder first: a `random.py` of anybody's."""


def interpreter(*arguments: str) -> list[str]:
    """Return the command of an interpreter like this one."""
    return [sys.executable, SAFE_PATH, *arguments]


def import_path() -> str:
    """Return where this process imports from, as a value of PYTHONPATH; in a notebook that holds its folder."""
    folders = [entry or str(Path.cwd()) for entry in sys.path]
    return os.pathsep.join(folder for folder in folders if Path(folder).exists())
