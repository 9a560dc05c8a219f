"""Which formats can be imported; each is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from faultset.core.suggestions import unknown_name
from faultset.datasets.imports.contract import Format

FORMATS: dict[str, str] = {
    "rcaeval": "faultset.datasets.imports.rcaeval:RCAEval",
    "rcabench": "faultset.datasets.imports.rcabench:RCABench",
    "nezha": "faultset.datasets.imports.nezha:Nezha",
    "petshop": "faultset.datasets.imports.petshop:PetShop",
    "openrca": "faultset.datasets.imports.openrca:OpenRCA",
    "aiopslab": "faultset.datasets.imports.aiopslab:AIOpsLab",
}
"""Name -> module and class."""


def format_named(name: str) -> Format:
    """Return a format; raise UsageError with a suggestion for a name that is not known."""
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    module, _, attribute = FORMATS[name].partition(":")
    return getattr(import_module(module), attribute)()


def recognised(path: Path) -> list[Format]:
    """Return every format that a path looks like."""
    return [found for found in map(format_named, FORMATS) if found.recognises(path)]
