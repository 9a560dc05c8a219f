"""Count source lines, files, imports and long functions; prints one table.

    python scripts/code_size.py
    python scripts/code_size.py --list collector    # long and wide functions below one folder

Lines include blank ones; parameters exclude `self` and `cls`; overloads count like other functions.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("collector", "datasets", "baselines", "evaluators")
LONG_LINES = 50
MANY_PARAMETERS = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


def list_modules(folders: tuple[str, ...]) -> list[Path]:
    """Return all Python files below the given folders of the repository."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def count_lines(paths: list[Path]) -> int:
    """Return the number of lines of all files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def count_import_lines(tree: ast.Module) -> int:
    """Return how many lines the import statements of one module take."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def iterate_functions(trees: list[ast.Module]) -> Iterator[Function]:
    """Yield every function and method of the given modules."""
    for tree in trees:
        yield from (node for node in ast.walk(tree) if isinstance(node, Function))


def count_function_lines(function: Function) -> int:
    """Return the number of lines from `def` to the end of the body."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def count_parameters(function: Function) -> int:
    """Return the number of parameters without `self` and `cls`."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return sum(name not in ("self", "cls") for name in names)


def measure() -> list[tuple[str, str]]:
    """Return all measures as pairs of a name and a printed value."""
    sources, tests = list_modules(SOURCES), list_modules(("tests",))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources]
    lines = count_lines(sources)
    imports = sum(map(count_import_lines, trees))
    functions = list(iterate_functions(trees))
    long = sum(count_function_lines(function) > LONG_LINES for function in functions)
    wide = sum(count_parameters(function) > MANY_PARAMETERS for function in functions)
    return [
        ("source lines", f"{lines:,}"),
        ("source files", f"{len(sources):,}"),
        ("import lines, share", f"{imports / lines:.1%}"),
        ("test lines", f"{count_lines(tests):,}"),
        (f"functions over {LONG_LINES} lines", str(long)),
        (f"functions over {MANY_PARAMETERS} parameters", str(wide)),
    ]


def list_functions(folders: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each function that is long or has many parameters."""
    for path in list_modules(folders):
        for function in iterate_functions([ast.parse(path.read_text(encoding="utf-8"))]):
            lines, parameters = count_function_lines(function), count_parameters(function)
            if lines > LONG_LINES or parameters > MANY_PARAMETERS:
                location = f"{path.relative_to(ROOT)}:{function.lineno}"
                yield f"{location} {function.name}: {lines} lines, {parameters} parameters"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="*", metavar="FOLDER", help="list long functions below these folders")
    arguments = parser.parse_args()
    if arguments.list is not None:
        print(*list_functions(tuple(arguments.list) or SOURCES), sep="\n")
    else:
        for name, value in measure():
            print(f"{name:32}{value:>10}")
