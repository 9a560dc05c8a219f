"""Evaluate one dataset with two checkouts and print where their `leaderboard.json` differ.

    python scripts/compare_leaderboards.py ../before . datasets/sample
    python scripts/compare_leaderboards.py ../before . datasets/core-2 -- --tasks localization --baselines named

Each checkout needs a `.venv` with faultset. Exits with 1 if a value differs. Code hashes, library versions, the version
of the format, and measured times and memory are ignored.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IGNORED = ("code", "method_codes", "libraries", "leaderboard_version")
"""Fields of the leaderboard."""
MEASURED = ("seconds", "fit_seconds", "peak_bytes")
"""Fields of its entries."""


def evaluate_with(checkout: Path, dataset: Path, options: list[str], out: Path) -> dict[str, Any]:
    """Evaluate the dataset with the interpreter of a checkout; return the leaderboard."""
    program = checkout.resolve() / ".venv" / "bin" / "evaluate"
    subprocess.run([program, dataset.resolve(), "--out", out, *options], check=True, stdout=subprocess.DEVNULL)
    return json.loads((out / "leaderboard.json").read_text("utf-8"))


def index_by_name(items: list[Any]) -> dict[str, Any] | None:
    """Return the items of a list by name, or None if they have no unique names."""
    for key in ("baseline", "name"):
        if items and all(isinstance(item, dict) and key in item for item in items):
            names = ["/".join(str(item.get(field, "")) for field in (key, "protocol", "threshold")) for item in items]
            if len({*names}) == len(items):
                return dict(zip(names, items, strict=True))
    return None


def list_differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the path and both values of each difference."""
    if isinstance(before, list) and isinstance(after, list):
        before, after = index_by_name(before) or before, index_by_name(after) or after
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}, key=str):
            if key not in (MEASURED if path else IGNORED):
                yield from list_differences(before.get(key), after.get(key), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from list_differences(old, new, f"{path}/{number}")
    elif before != after:
        yield f"{path}: {str(before)[:80]} -> {str(after)[:80]}"


def main() -> None:
    """Compare two checkouts according to the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("before", "after", "dataset"):
        parser.add_argument(name, type=Path)
    parser.add_argument("options", nargs="*", help="options of evaluate, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        boards = [
            evaluate_with(checkout, arguments.dataset, arguments.options, Path(folder, str(number)))
            for number, checkout in enumerate((arguments.before, arguments.after))
        ]
    differences = list(list_differences(boards[0], boards[1]))
    print("\n".join(differences[:200]))
    print(f"{len(differences)} values differ")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
