"""The structure of the sources: who may import whom, no import circles at any level, short modules, few in a folder."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
SLICES = {"core": "datasets", "datasets": "datasets", "collector": "collector", "baselines": "baselines"}
SLICES |= {"agents": "evaluators", "evaluators": "evaluators"}
ALLOWED = {
    "core": {"core"},
    "datasets": {"core", "datasets"},
    "collector": {"core", "datasets", "collector"},
    "baselines": {"core", "datasets", "baselines"},
    "agents": {"core", "datasets", "agents"},
    "evaluators": {"core", "datasets", "baselines", "agents", "evaluators"},
}
MODULES_IN_A_FOLDER = 15
LINES_IN_A_MODULE = 320
"""What "about 300" in the guide for contributors means at most."""
HIDDEN_FROM_METHODS = ("truth", "versions", "dataset", "Dataset", "open_dataset")


def source_root(name: str) -> Path:
    return ROOT / SLICES[name] / "faultset" / name


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    parts = parts[parts.index("faultset") :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for name in SLICES for path in sorted(source_root(name).rglob("*.py"))}


def imported_names(path: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, wherever in it."""
    name = module_name(path)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@functools.cache
def imported_modules(name: str) -> set[str]:
    """Return the modules of ours that a module imports, whether by name or by what is in them."""
    found = set()
    names = set(imported_names(FILES[name]))
    for full in names:
        while full and full not in FILES:
            full = full.rpartition(".")[0]
        if full and full != name:
            found.add(full)
    # `from package import module` names the package too, which is no import of what the package's own file holds
    return {one for one in found if not any(other.startswith(one + ".") for other in found) or one in _used(names)}


def _used(names: set[str]) -> set[str]:
    return {full.rpartition(".")[0] for full in names if full not in FILES}


@functools.cache
def import_graph() -> nx.DiGraph:
    return nx.DiGraph((name, other) for name in FILES for other in imported_modules(name))


def circles(graph: nx.DiGraph) -> list[list[str]]:
    return sorted(sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1)


def sibling_graph(graph: nx.DiGraph, parent: str) -> nx.DiGraph:
    """Return the imports between what lies directly in one package, each with all that is below it."""
    depth = parent.count(".") + 1
    below = [(one, two) for one, two in graph.edges if one.startswith(parent + ".") and two.startswith(parent + ".")]
    children = [(one.split(".")[depth], two.split(".")[depth]) for one, two in below]
    return nx.DiGraph((one, two) for one, two in children if one != two)


@pytest.mark.parametrize("name", FILES)
def test_imports_follow_the_arrows(name: str) -> None:
    slices = {other.split(".")[1] for other in imported_modules(name)}
    assert slices <= ALLOWED[name.split(".")[1]]


@pytest.mark.parametrize("name", [name for name in FILES if ".cli" not in name])
def test_nothing_outside_a_cli_imports_a_cli(name: str) -> None:
    assert not [other for other in imported_modules(name) if "cli" in other.split(".")]


@pytest.mark.parametrize(
    "name", [name for name in FILES if name.startswith("faultset.baselines.") and name.split(".")[2:3] != ["testing"]]
)
def test_baselines_never_import_the_truth(name: str) -> None:
    names = [full.split(".") for full in imported_names(FILES[name])]
    assert not [parts for parts in names if parts[:2] == ["faultset", "datasets"] and {*parts} & {*HIDDEN_FROM_METHODS}]


@pytest.mark.parametrize(
    "name", [name for name in FILES if name.startswith("faultset.baselines.") and name.split(".")[2] != "methods"]
)
def test_what_methods_share_never_imports_a_method(name: str) -> None:
    assert not [other for other in imported_modules(name) if other.startswith("faultset.baselines.methods")]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circles(import_graph())


@pytest.mark.parametrize("parent", ["faultset", *[name for name in FILES if FILES[name].name == "__init__.py"]])
def test_no_packages_import_each_other_in_a_circle(parent: str) -> None:
    assert not circles(sibling_graph(import_graph(), parent))


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES.values()}), ids=lambda path: path.name)
def test_no_folder_is_crowded(folder: Path) -> None:
    modules = [path for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    assert len(modules) <= MODULES_IN_A_FOLDER


def test_every_folder_of_tests_is_called_like_one_of_the_sources() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    of_sources = {path for path in folders if path.parts and path.parts[0] in SLICES} - {Path("datasets", "hostile")}
    assert of_sources
    assert not [path for path in of_sources if not source_root(path.parts[0]).joinpath(*path.parts[1:]).is_dir()]


def test_every_public_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, path in FILES.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


@pytest.mark.parametrize("name", FILES)
def test_a_module_is_short(name: str) -> None:
    assert len(FILES[name].read_text("utf-8").splitlines()) <= LINES_IN_A_MODULE


def test_every_package_says_what_it_holds() -> None:
    inits = [path for path in FILES.values() if path.name == "__init__.py"]
    assert not [str(path) for path in inits if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]


def test_no_folder_above_a_package_is_a_package() -> None:
    for name, top in SLICES.items():
        assert not (ROOT / top / "__init__.py").exists()
        assert not (ROOT / top / "faultset" / "__init__.py").exists()
        assert (source_root(name) / "py.typed").exists()
