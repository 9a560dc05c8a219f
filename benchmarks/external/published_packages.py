"""Install published packages in a separate environment, and report comparisons with them."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path


def install(folder: Path, packages: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, str]:
    """Install every package separately; return pip's error, or "", for each.

    Parameters
    ----------
    packages
        For each name, the requirements of successive pip calls.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    errors: dict[str, str] = {}
    for name, steps in packages.items():
        errors[name] = ""
        for requirements in steps:
            done = subprocess.run(
                [python, "-m", "pip", "install", "-q", *requirements], capture_output=True, text=True, check=False
            )
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
                errors[name] = lines[-1]
                break
    return errors


def show_comparisons(
    installed: Mapping[str, str],
    comparisons: Mapping[str, Mapping[str, str]],
    *,
    notes: Mapping[str, str],
    as_json: bool,
) -> None:
    """Print the installed packages, and a line for each case of each comparison.

    Parameters
    ----------
    notes
        Explanations of some comparisons; not part of the JSON output.
    """
    if as_json:
        json.dump({"packages": installed, "comparisons": comparisons}, sys.stdout, indent=1)
        return
    for package, message in installed.items():
        print(f"{package:32} {'not installed: ' + message if message else 'installed'}")
    for name, lines in comparisons.items():
        print(f"\n{name}" + (f" ({notes[name]})" if name in notes else ""))
        width = max(map(len, lines), default=0)
        for case, line in lines.items():
            print(f"  {case:{width}} {line}")
