"""What the public packages offer is described: every record field by field."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference" / "python.md"
IMPORTED = re.compile(r"\bfrom (faultset(?:\.\w+)+) import ")
PACKAGES = (
    "faultset.agents",
    "faultset.baselines",
    "faultset.collector",
    "faultset.datasets",
    "faultset.datasets.training",
    "faultset.evaluators",
)


def public_classes() -> Iterator[type]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield from (one for name in module.__all__ if inspect.isclass(one := getattr(module, name)))


def undescribed(record: type) -> list[str]:
    """Return the fields of a dataclass or a model that have neither a text below them nor one in its docstring."""
    fields = {field.name for field in dataclasses.fields(record)} if dataclasses.is_dataclass(record) else set()
    fields |= set(getattr(record, "model_fields", ()))
    if not fields:
        return []
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(node, ast.ClassDef)
    lines = (ast.get_docstring(node) or "").splitlines()
    described = {name for line in lines for name in line.split(", ")}
    for field, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(following, ast.Expr):
            described.add(ast.unparse(field.target))
    own = {ast.unparse(field.target) for field in node.body if isinstance(field, ast.AnnAssign)}
    return sorted(fields & own - described)


def test_every_field_of_a_public_record_is_described() -> None:
    found = {f"{one.__module__}.{one.__name__}": undescribed(one) for one in public_classes()}
    assert len(found) > 40
    assert not {name: fields for name, fields in found.items() if fields}


def test_every_public_name_has_a_docstring() -> None:
    modules = [importlib.import_module(package) for package in PACKAGES]
    things = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    named = {name: thing for name, thing in things.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
    assert not [name for name, thing in named.items() if not thing.__doc__ or thing.__doc__.startswith(f"{name}(")]


def readers() -> list[Path]:
    """Return the pages, notebooks and examples."""
    found = [ROOT / "README.md"]
    for folder, kind in (("docs", "*.md"), ("notebooks", "*.ipynb"), ("examples", "*.py"), ("examples", "*.md")):
        found += (ROOT / folder).rglob(kind)
    return found


def imported_packages() -> set[str]:
    """Return the packages with `__all__` that pages, notebooks and examples import from."""
    named = {name for path in readers() for name in IMPORTED.findall(path.read_text("utf-8"))}
    modules = [importlib.import_module(name) for name in named]
    return {module.__name__ for module in modules if hasattr(module, "__path__") and hasattr(module, "__all__")}


def test_every_public_package_is_in_the_reference() -> None:
    listed = re.findall(r"^::: (\S+)$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    found = imported_packages()
    assert {"faultset.datasets.training", "faultset.baselines.testing"} <= found
    assert not (found | {*PACKAGES}) - {*listed}
    assert len(listed) == len({*listed})


@pytest.mark.parametrize("part", ["baselines", "evaluators"])
def test_pages_and_examples_import_only_public_names_of(part: str) -> None:
    imports = re.compile(rf"from (faultset\.{part}[.\w]*) import (\([^)]*\)|[^\n\\\"]+)")
    taken = {
        (module, name)
        for path in readers()
        for module, names in imports.findall(path.read_text("utf-8"))
        for name in re.findall(r"\w+", names)
    }
    assert len(taken) >= 4
    assert not [one for one in sorted(taken) if one[1] not in getattr(importlib.import_module(one[0]), "__all__", ())]
