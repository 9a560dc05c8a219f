"""Write tables of public names: `python scripts/name_tables.py docs/reference/python.md docs/reference/names.md`.

A table with one line per name is put before each `::: package`, so that the page is readable in a clone. One line per
package is put after the marker `<!-- all names -->`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from pathlib import Path
from types import ModuleType

_TABLE = re.compile(r"(?:<!-- names -->\n.*?<!-- end of names -->\n\n)?^::: (\S+)$", re.DOTALL | re.MULTILINE)
_REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
_ALL = re.compile(r"<!-- all names -->\n.*?<!-- end of all names -->", re.DOTALL)


def public_names(module: ModuleType) -> list[str]:
    """Return the public names of a module: `__all__`, or the classes and functions that it defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [n for n, v in public.items() if callable(v) and getattr(v, "__module__", "") == module.__name__]


def name_table(package: str) -> str:
    """Return a Markdown table of the public names of a package with the first sentence of their docstrings."""
    module = importlib.import_module(package)
    lines = [f"From `{package}`:", "", "| name | description |", "|---|---|"]
    lines += [f"| `{name}` | {_first_sentence(getattr(module, name))} |" for name in public_names(module)]
    return "\n".join(lines)


def _first_sentence(thing: object) -> str:
    values = typing.get_args(thing)
    if values:
        return f"One of {', '.join(map(repr, values))}.".replace("'", '"')
    if isinstance(thing, int | float | str):
        return f"The constant {thing!r}."
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def all_names() -> str:
    """Return a Markdown table with one line per package and module in the reference."""
    lines = ["| import from | names |", "|---|---|"]
    for package in re.findall(r"^::: (\S+)$", _REFERENCE.read_text("utf-8"), re.MULTILINE):
        names = ", ".join(f"`{name}`" for name in public_names(importlib.import_module(package)))
        lines.append(f"| `{package}` | {names} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """Return a document with updated tables."""
    text = _ALL.sub(lambda _: f"<!-- all names -->\n{all_names()}\n<!-- end of all names -->", text)
    return _TABLE.sub(
        lambda match: f"<!-- names -->\n{name_table(match[1])}\n<!-- end of names -->\n\n::: {match[1]}", text
    )


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
