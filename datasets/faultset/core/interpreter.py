"""Python processes of our own import what this process would, never what happens to lie where they start."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def python_command(*arguments: str) -> list[str]:
    """Return the command of an interpreter like this one."""
    # Without -P it would import from the working folder first: a random.py of anybody's.
    return [sys.executable, "-P", *arguments]


def import_path() -> str:
    """Return where this process imports from, as a value of PYTHONPATH; in a notebook that holds its folder."""
    folders = [entry or str(Path.cwd()) for entry in sys.path]
    return os.pathsep.join(folder for folder in folders if Path(folder).exists())
