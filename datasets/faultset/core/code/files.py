"""The files that a module's code lies in: its package, or itself, with what it imports of the same origin."""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

from faultset.core.plugins import Plugin, find_distribution

OWN = "faultset"
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.M)
_SKIPPED = ("__pycache__", ".git", ".venv")


def distribution_of(module: str, plugin: Plugin | None) -> metadata.Distribution | None:
    """Return the distribution that a module belongs to: the one that announces it, else the one that installed it."""
    top = module.partition(".")[0]
    name = None
    if plugin is not None and plugin.value.partition(":")[0].partition(".")[0] == top:
        name = plugin.distribution.rpartition(" ")[0]
    elif top == OWN:
        name = OWN
    elif _is_shared(Path(str(sys.modules[module].__file__))):
        name = next(iter(_owners().get(top, ())), None)
    if name is None:
        return None
    return find_distribution(name)


@functools.cache
def _owners() -> dict[str, list[str]]:
    return {name: list(owners) for name, owners in metadata.packages_distributions().items()}


def files_of(module: ModuleType, distribution: metadata.Distribution | None, within: str) -> Iterator[tuple[str, Path]]:
    """Yield name and place of the files that count, each once."""
    path = Path(str(module.__file__))
    top = module.__name__.partition(".")[0]
    if top == OWN:
        yield from _closure(module.__name__, within or OWN)
        return
    root = _import_root(module, path)
    for unit in units_of(module, distribution):
        yield from files_below(unit, root) if unit.is_dir() else [(unit.name, unit)]


def units_of(module: ModuleType, distribution: metadata.Distribution | None) -> Iterator[Path]:
    """Yield the package or file that a module belongs to, then those beside it that it imports, directly or not."""
    path = Path(str(module.__file__))
    root = _import_root(module, path)
    beside = _beside(root, distribution)
    waiting, seen = [path if root == path.parent else root / module.__name__.partition(".")[0]], set()
    while waiting:
        unit = waiting.pop()
        if unit in seen:
            continue
        seen.add(unit)
        yield unit
        files = [file for _, file in files_below(unit, root)] if unit.is_dir() else [unit]
        for file in files:
            if file.suffix == ".py":
                waiting += [one for imported, _ in _imports(file) if (one := beside(imported.partition(".")[0]))]


def _import_root(module: ModuleType, path: Path) -> Path:
    """Return the folder that must be on the path for the module to be found; a script's own folder."""
    if module.__name__ == "__main__":
        return path.parent
    depth = module.__name__.count(".") + (path.name == "__init__.py")
    return path.parents[depth]


def _is_shared(path: Path) -> bool:
    """Whether a path lies where many distributions are installed together."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return any(part in ("site-packages", "dist-packages") for part in path.parts) or any(
        path.is_relative_to(folder) for folder in installed
    )


def _beside(root: Path, distribution: metadata.Distribution | None) -> Callable[[str], Path | None]:
    """Return what finds modules and packages that belong together with those in a folder."""
    own: set[str] | None = None
    if _is_shared(root):
        files = (distribution.files or ()) if distribution is not None else ()
        own = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}

    def find(top: str) -> Path | None:
        if not top or top == OWN or (own is not None and top not in own):
            return None
        folder, file = root / top, root / f"{top}.py"
        if (folder / "__init__.py").is_file():
            return folder
        return file if file.is_file() else None

    return find


@functools.cache
def _own_file(name: str) -> str | None:
    """Return the file of a module of faultset; None for what is no module."""
    relative = name.replace(".", "/").removeprefix(f"{OWN}/")
    for folder in sys.modules[OWN].__path__:
        for file in (f"{folder}/{relative}.py", f"{folder}/{relative}/__init__.py"):
            if os.path.isfile(file):
                return file
    return None


def _closure(module: str, within: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a module of faultset and of those that it imports, directly or not."""
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        file = None if name in seen else _own_file(name)
        seen.add(name)
        if file is None:
            continue
        yield f"{name.replace('.', '/')}.py", Path(file)
        for imported, names in _imports(Path(file)):
            reached = (imported, *(f"{imported}.{part}" for part in names))
            waiting += [one for one in reached if one == within or one.startswith(f"{within}.")]


def _imports(file: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the modules that a file imports, with the names it takes from each; relative ones are left out."""
    try:
        return _imports_at(str(file), file.stat().st_mtime_ns)
    except OSError:
        return ()


@functools.lru_cache(maxsize=4096)
def _imports_at(path: str, changed_ns: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for source, names, modules in _IMPORT.findall(Path(path).read_text(encoding="utf-8", errors="replace")):
        if source and not source.startswith("."):
            found.append((source, tuple(re.findall(r"\w+", names))))
        for module in modules.split(",") if modules else ():
            words = module.split()
            if words:
                found.append((words[0], ()))
    return tuple(found)


def files_below(folder: Path, root: Path) -> list[tuple[str, Path]]:
    """Return every file below a folder but caches, named relative to the root; links are not followed."""
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in _SKIPPED)
        for name in names:
            path = Path(where, name)
            if not name.endswith((".pyc", ".pyo")) and path.is_file():
                found.append((path.relative_to(root).as_posix(), path))
    return found
