"""Write the tables of faults between the marks of a page: `python scripts/fault_table.py docs/concepts/faults.md`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from faultset.collector.faults.registry import faults

_BEGIN, _END = "<!-- faults: begin -->", "<!-- faults: end -->"


def fault_table() -> str:
    """Return the built-in faults by level and type as a Markdown table, followed by the gray and the dormant ones."""
    builtin = {
        n: spec for n, spec in sorted(faults().items()) if spec.inject.__module__.startswith("faultset.collector.")
    }
    groups: dict[tuple[str, str], list[str]] = {}
    for name, spec in builtin.items():
        groups.setdefault((spec.system_level, spec.fault_type), []).append(f"`{name}`")
    lines = ["| level | type | faults |", "|---|---|---|"]
    lines += [f"| {level} | {kind} | {', '.join(names)} |" for (level, kind), names in sorted(groups.items())]
    gray = ", ".join(f"`{name}`" for name, spec in builtin.items() if spec.gray)
    lines += ["", f"**Gray faults:** {gray}.", "", "| dormant fault | why clients do not notice it |", "|---|---|"]
    lines += [f"| `{name}` | {spec.dormant_reason} |" for name, spec in builtin.items() if spec.dormant_reason]
    return "\n".join(lines)


def replace_table(text: str) -> str:
    """Return a document with a new table between its marks."""
    pattern = f"{re.escape(_BEGIN)}.*{re.escape(_END)}"
    return re.sub(pattern, lambda match: f"{_BEGIN}\n{fault_table()}\n{_END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(replace_table(document.read_text(encoding="utf-8")), encoding="utf-8")
