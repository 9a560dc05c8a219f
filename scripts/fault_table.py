"""Write the table of faults between the marks of a document: `python scripts/fault_table.py docs/faults.md`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from faultset.collector.faults.registry import faults

_BEGIN, _END = "<!-- faults: begin -->", "<!-- faults: end -->"


def fault_table() -> str:
    """Return a Markdown table of the built-in faults, sorted by name."""
    lines = ["| fault | what it does | level, type | gray | how strongly |", "|---|---|---|---|---|"]
    for name, spec in sorted(faults().items()):
        if not spec.inject.__module__.startswith("faultset.collector."):
            continue
        also = f"; `--schedule` {', '.join(spec.schedules)}" if spec.schedules else ""
        dormant = f"; dormant: {spec.dormant_reason}" if spec.dormant_reason else ""
        strength = (spec.intensity or "there or not") + also + dormant
        gray = "gray" if spec.gray else ""
        lines.append(f"| `{name}` | {spec.summary} | {spec.system_level}, {spec.fault_type} | {gray} | {strength} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """Return a document with an updated table between its marks."""
    pattern = f"{re.escape(_BEGIN)}.*{re.escape(_END)}"
    return re.sub(pattern, lambda match: f"{_BEGIN}\n{fault_table()}\n{_END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
