"""Who may import whom: datasets <- collector, datasets <- baselines <- evaluators; nobody a `cli`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "datasets": {"datasets"},
    "collector": {"collector", "datasets"},
    "baselines": {"baselines", "datasets"},
    "evaluators": {"evaluators", "baselines", "datasets"},
}
FILES = [
    pytest.param(package, path, id=path.relative_to(ROOT / package / "faultset").as_posix())
    for package in ALLOWED
    for path in sorted((ROOT / package / "faultset").rglob("*.py"))
]


def imported(path: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, wherever in it."""
    package = path.relative_to(path.parents[len(path.parts) - 1 - path.parts.index("faultset")]).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> list[list[str]]:
    return [name.split(".")[1:] for name in imported(path) if name.startswith("faultset.")]


@pytest.mark.parametrize(("package", "path"), FILES)
def test_imports_follow_the_arrows(package, path):
    wrong = sorted({".".join(parts) for parts in ours(path) if parts[0] not in ALLOWED[package]})
    assert not wrong, f"{package} must not import {wrong}"


@pytest.mark.parametrize(("package", "path"), FILES)
def test_nothing_outside_a_cli_imports_a_cli(package, path):
    if "cli" in path.with_suffix("").parts:
        foreign = [parts for parts in ours(path) if "cli" in parts and parts[0] != package]
    else:
        foreign = [parts for parts in ours(path) if "cli" in parts]
    assert not foreign


@pytest.mark.parametrize("path", [param.values[1] for param in FILES if param.values[0] == "baselines"], ids=str)
def test_baselines_never_import_the_truth(path):
    forbidden = ("truth", "versions", "Dataset", "open_dataset")
    wrong = [parts for parts in ours(path) if parts[0] == "datasets" and parts[1:2] and parts[1] in forbidden]
    assert not wrong


def test_the_walk_sees_relative_and_inner_imports(tmp_path):
    file = tmp_path / "faultset" / "baselines" / "inner" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text("from ..other import a\ndef f():\n    import faultset.datasets.truth\n")
    assert set(imported(file)) == {
        "faultset.baselines.other",
        "faultset.baselines.other.a",
        "faultset.datasets.truth",
    }


def test_no_folder_above_a_package_is_a_package():
    for package in ALLOWED:
        assert not (ROOT / package / "__init__.py").exists()
        assert not (ROOT / package / "faultset" / "__init__.py").exists()
        assert (ROOT / package / "faultset" / package / "py.typed").exists()
