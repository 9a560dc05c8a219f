"""Write the table of public names into a page: `python scripts/name_tables.py docs/reference/python.md`."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

_REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
_ALL = re.compile(r"<!-- all names -->\n.*?<!-- end of all names -->", re.DOTALL)


def public_names(module: ModuleType) -> list[str]:
    """Return what a module offers: its `__all__`, or the classes and functions that it defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [n for n, v in own.items() if callable(v) and getattr(v, "__module__", "") == module.__name__]


def all_names() -> str:
    """Return a Markdown table with one line for each package and module in the reference."""
    lines = ["| import from | names |", "|---|---|"]
    for package in re.findall(r"^::: (\S+)$", _REFERENCE.read_text("utf-8"), re.MULTILINE):
        names = ", ".join(f"`{name}`" for name in public_names(importlib.import_module(package)))
        lines.append(f"| `{package}` | {names} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """Return a document with a new table of names."""
    return _ALL.sub(lambda _: f"<!-- all names -->\n{all_names()}\n<!-- end of all names -->", text)


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
