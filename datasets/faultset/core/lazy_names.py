"""Import the public names of a package on first use."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faultset.core.errors import translate_missing_extra


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that import its public names on first use.

    The package's `__init__.py` imports these names under `if TYPE_CHECKING:`. A name whose extra is not installed
    raises UsageError.
    """

    @functools.cache
    def read_modules() -> dict[str, str]:
        tree = ast.parse(Path(str(sys.modules[package].__file__)).read_bytes())
        blocks = (statement.body for statement in tree.body if isinstance(statement, ast.If))
        imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def import_name(name: str) -> Any:
        module = None if name.startswith("__") else read_modules().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with translate_missing_extra():
            return getattr(importlib.import_module(module), name)

    def list_names() -> list[str]:
        return sorted({name for name in vars(sys.modules[package]) if name.startswith("__")} | {*read_modules()})

    return import_name, list_names
