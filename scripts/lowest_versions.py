"""Compare leaderboards of the sample with the lowest and the newest versions that pyproject.toml allows.

`python scripts/lowest_versions.py` creates an environment for each in a temporary folder and evaluates datasets/sample
in both, which takes 3 to 8 minutes on two cores. It prints the differences and exits with 1 if there are any. Run it
after changing a lower limit.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IGNORED = {"libraries", "seconds", "fit_seconds", "peak_bytes", "source"}
"""Keys of a leaderboard that may differ: costs, versions, the folder of the data."""
TOLERANCE = 1e-9


def differences(lowest: Any, newest: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each difference between two leaderboards; ignored keys are skipped."""
    if isinstance(lowest, dict) and isinstance(newest, dict):
        for key in sorted((lowest.keys() | newest.keys()) - IGNORED):
            yield from differences(lowest.get(key), newest.get(key), f"{path}/{key}")
    elif isinstance(lowest, list) and isinstance(newest, list) and len(lowest) == len(newest):
        for number, (old, new) in enumerate(zip(lowest, newest, strict=True)):
            name = old.get("baseline", number) if isinstance(old, dict) else number
            yield from differences(old, new, f"{path}/{name}")
    elif isinstance(lowest, float) and isinstance(newest, float):
        if not math.isclose(lowest, newest, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{path}: {lowest} with the lowest versions, {newest} with the newest"
    elif lowest != newest:
        yield f"{path}: {lowest!r} with the lowest versions, {newest!r} with the newest"


def evaluate(folder: Path, resolution: str) -> dict[str, Any]:
    """Install faultset into a folder with a resolution strategy of uv, and return the leaderboard of the sample."""
    folder.mkdir()
    tools = folder / "tools"
    venv.create(tools, with_pip=True)
    subprocess.run([tools / "bin/pip", "install", "--quiet", "uv"], check=True)
    uv, python = tools / "bin/uv", folder / "bin/python"
    subprocess.run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], check=True)
    requirement = f"{ROOT}[evaluate]"
    command = [uv, "pip", "install", "--quiet", "--python", python, "--resolution", resolution, requirement]
    subprocess.run(command, check=True)
    # without its cache, which would let one environment reuse the other's answers
    shutil.copytree(ROOT / "datasets" / "sample", folder / "sample", ignore=shutil.ignore_patterns(".cache"))
    options = ["--baselines", "all", "--out", "results", "--workers", "1", "--quiet"]
    command = [folder / "bin/evaluate", "./sample", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    return json.loads((folder / "results" / "leaderboard.json").read_text())


def main() -> int:
    """Compare both leaderboards and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        lowest, newest = (evaluate(Path(folder) / name, name) for name in ("lowest-direct", "highest"))
    lines = list(differences(lowest, newest))
    versions = ", ".join(f"{name} {version}" for name, version in lowest["libraries"].items())
    print("\n".join(lines) or f"The leaderboards are equal; the lowest versions are {versions}.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
