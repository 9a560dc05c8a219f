"""Write the tables of baselines into a page: `python scripts/baseline_tables.py docs/reference/baselines.md`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from faultset.baselines.api.registry import BaselineSpec, list_baselines

KINDS = ("named", "method", "own", "rule", "control")


def baseline_table(task: str, letters: dict[str, str]) -> str:
    """Return the built-in methods of a task by kind and name; `letters` abbreviates the data that authors saw."""
    specs = [s for s in list_baselines().values() if s.task == task and s.factory.__module__.startswith("faultset.")]
    specs.sort(key=lambda spec: (KINDS.index(spec.kind), spec.name))
    rows = [f"| {' | '.join(_cells(spec, letters))} |" for spec in specs]
    return "\n".join(["| name | title | kind | reads | seen | source |", "|---|---|---|---|---|---|", *rows])


def _cells(spec: BaselineSpec, letters: dict[str, str]) -> tuple[str, ...]:
    reads = ", ".join((*spec.tables, *sorted(spec.needs))) or "nothing"
    seen = "".join(letters[data] for data in spec.developed_on or ())
    source = "" if spec.paper.startswith("None") else spec.paper
    return f"`{spec.name}`", spec.title, spec.kind, reads, seen, source


def updated(text: str) -> str:
    """Return the page with its tables as the methods are registered."""
    letters = {data: letter for letter, data in re.findall(r"^\| ([A-Z]) \| (.+) \|$", text, re.MULTILINE)}
    return re.sub(
        r"<!-- baselines: (\w+) -->.*?<!-- end -->",
        lambda match: f"<!-- baselines: {match[1]} -->\n\n{baseline_table(match[1], letters)}\n\n<!-- end -->",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
