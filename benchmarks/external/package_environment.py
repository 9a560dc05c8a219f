"""An environment of its own for published packages that benchmarks compare with."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path


def install(folder: Path, packages: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, str]:
    """Install every package, each on its own; what pip said where it failed, "" where it did not.

    Parameters
    ----------
    packages
        For each name the requirements of pip, one call after the other.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    found: dict[str, str] = {}
    for name, steps in packages.items():
        found[name] = ""
        for requirements in steps:
            done = subprocess.run(
                [python, "-m", "pip", "install", "-q", *requirements], capture_output=True, text=True, check=False
            )
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
                found[name] = lines[-1]
                break
    return found
