"""The structure of the sources: who may import whom, no import circles at any level, short modules, few in a folder."""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import networkx as nx

from tests.conftest import LONGEST

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
MODULES_IN_A_FOLDER = 20
LINES_IN_A_MODULE = 500
"""As in CONTRIBUTING.md."""
SUITES = {Path("datasets", "hostile"), Path("collector", "faults", "recorded")}
"""Folders of tests that go through many modules."""
HIDDEN_FROM_METHODS = ("truth", "versions", "dataset", "Dataset", "open_dataset")


def source_root(name: str) -> Path:
    return ROOT / SLICES[name] / "faultset" / name


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for name in SLICES for path in sorted(source_root(name).rglob("*.py"))}
BASELINES = [name for name in FILES if name.startswith("faultset.baselines.")]


@functools.cache
def text(path: Path) -> str:
    return path.read_text("utf-8")


class Parsed(NamedTuple):
    """What the tests need of a file, which takes less memory than its tree."""

    imports: tuple[str, ...]
    """The full name of everything that the file imports, wherever in it."""
    classes: tuple[str, ...]
    docstring: str | None


@functools.cache
def parse(path: Path) -> Parsed:
    tree = ast.parse(text(path))
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return Parsed(tuple(_imported_names(path, tree)), classes, ast.get_docstring(tree))


def _imported_names(path: Path, tree: ast.Module) -> Iterator[str]:
    name = module_name(path)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
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
    names = set(parse(FILES[name]).imports)
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


def test_imports_follow_the_arrows() -> None:
    wrong = {
        name: sorted(
            other for other in imported_modules(name) if other.split(".")[1] not in ALLOWED[name.split(".")[1]]
        )
        for name in FILES
    }
    assert not {name: others for name, others in wrong.items() if others}


def test_nothing_outside_a_cli_imports_a_cli() -> None:
    wrong = {
        name: [other for other in imported_modules(name) if "cli" in other.split(".")]
        for name in FILES
        if ".cli" not in name
    }
    assert not {name: others for name, others in wrong.items() if others}


def test_baselines_never_import_the_truth() -> None:
    methods = [name for name in BASELINES if name.split(".")[2:3] != ["testing"]]
    names = {name: [full.split(".") for full in parse(FILES[name]).imports] for name in methods}
    wrong = {
        name: [parts for parts in found if parts[:2] == ["faultset", "datasets"] and {*parts} & {*HIDDEN_FROM_METHODS}]
        for name, found in names.items()
    }
    assert methods
    assert not {name: found for name, found in wrong.items() if found}


def test_what_methods_share_never_imports_a_method() -> None:
    shared = [name for name in BASELINES if name.split(".")[2] != "methods"]
    wrong = {
        name: [other for other in imported_modules(name) if other.startswith("faultset.baselines.methods")]
        for name in shared
    }
    assert shared
    assert not {name: others for name, others in wrong.items() if others}


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circles(import_graph())


def test_no_packages_import_each_other_in_a_circle() -> None:
    packages = ["faultset", *[name for name in FILES if FILES[name].name == "__init__.py"]]
    found = {parent: circles(sibling_graph(import_graph(), parent)) for parent in packages}
    assert not {parent: circle for parent, circle in found.items() if circle}


def test_no_folder_is_crowded() -> None:
    scripts = [path for folder in ("benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")]
    files = [*FILES.values(), *scripts]
    modules = Counter(path.parent for path in files if path.name not in ("__init__.py", "__main__.py"))
    assert not {str(folder): count for folder, count in modules.items() if count > MODULES_IN_A_FOLDER}


def test_every_folder_of_tests_is_called_like_one_of_the_sources() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    of_sources = {path for path in folders if path.parts and path.parts[0] in SLICES} - SUITES
    assert of_sources
    assert not [path for path in of_sources if not source_root(path.parts[0]).joinpath(*path.parts[1:]).is_dir()]


def test_the_longest_tests_that_come_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []


def test_every_public_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, path in FILES.items():
        for name in parse(path).classes:
            if not name.startswith("_"):
                homes[name].append(module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_a_module_is_short() -> None:
    lines = {name: len(text(path).splitlines()) for name, path in FILES.items()}
    assert not {name: count for name, count in lines.items() if count > LINES_IN_A_MODULE}


def test_every_package_says_what_it_holds() -> None:
    inits = [path for path in FILES.values() if path.name == "__init__.py"]
    assert not [str(path) for path in inits if not parse(path).docstring]


def test_no_folder_above_a_package_is_a_package() -> None:
    for name, top in SLICES.items():
        assert not (ROOT / top / "__init__.py").exists()
        assert not (ROOT / top / "faultset" / "__init__.py").exists()
        assert (source_root(name) / "py.typed").exists()
