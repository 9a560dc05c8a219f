"""Names of a package that are imported when somebody asks for them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from faultset.core.errors import translate_missing_extra


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a `__getattr__` and a `__dir__` for a package, so that importing it, or asking for --help, costs nothing.

    `dir` and `help` list the public names, and nothing that the package needs for itself. A name whose extra is not
    installed raises UsageError.

    Parameters
    ----------
    package
        Name of the package.
    homes
        Public name -> the module that has it.
    """

    def imported(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with translate_missing_extra():
            return getattr(importlib.import_module(homes[name]), name)

    def listed() -> list[str]:
        return sorted({name for name in vars(sys.modules[package]) if name.startswith("__")} | {*homes})

    return imported, listed
