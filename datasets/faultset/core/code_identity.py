"""Identify code by a hash of its files."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from faultset.core.plugins import Plugin, find_distribution, name_and_version

PROJECT = "faultset"
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.M)
_SKIPPED_FOLDERS = ("__pycache__", ".git", ".venv")


def find_module_distribution(module: str, plugin: Plugin | None) -> metadata.Distribution | None:
    """Return the distribution of a plug-in if the module belongs to it, else the one that installed the module."""
    top = module.partition(".")[0]
    name = None
    if plugin is not None and plugin.value.partition(":")[0].partition(".")[0] == top:
        name = plugin.distribution.rpartition(" ")[0]
    elif top == PROJECT:
        name = PROJECT
    elif _is_shared(Path(str(sys.modules[module].__file__))):
        name = next(iter(_read_owners().get(top, ())), None)
    if name is None:
        return None
    return find_distribution(name)


_read_owners = functools.cache(metadata.packages_distributions)


def list_identity_files(
    module: ModuleType, distribution: metadata.Distribution | None, within: str
) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of every file that belongs to the identity of a module."""
    path = Path(str(module.__file__))
    top = module.__name__.partition(".")[0]
    if top == PROJECT:
        yield from _list_imported_files(module.__name__, within or PROJECT)
        return
    root = _find_import_root(module, path)
    for unit in list_units(module, distribution):
        yield from files_below(unit, root) if unit.is_dir() else [(unit.name, unit)]


def list_units(module: ModuleType, distribution: metadata.Distribution | None) -> Iterator[Path]:
    """Yield the package or file of a module, then the neighbouring modules that it imports, directly or indirectly."""
    path = Path(str(module.__file__))
    root = _find_import_root(module, path)
    find_neighbour = _build_neighbour_finder(root, distribution)
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
                neighbours = (find_neighbour(name.partition(".")[0]) for name, _ in _read_imports(file))
                waiting += [neighbour for neighbour in neighbours if neighbour is not None]


def _find_import_root(module: ModuleType, path: Path) -> Path:
    """Return the folder of `sys.path` that a module was imported from; for a script, its folder."""
    if module.__name__ == "__main__":
        return path.parent
    depth = module.__name__.count(".") + (path.name == "__init__.py")
    return path.parents[depth]


def _is_shared(path: Path) -> bool:
    """Return whether a path is in a folder that distributions share, such as site-packages."""
    shared_folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts) or any(
        path.is_relative_to(folder) for folder in shared_folders
    )


def _build_neighbour_finder(root: Path, distribution: metadata.Distribution | None) -> Callable[[str], Path | None]:
    """Return a function that finds a top-level module in a folder; in a shared one, only the distribution's modules."""
    allowed: set[str] | None = None
    if _is_shared(root):
        files = (distribution.files or ()) if distribution is not None else ()
        allowed = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}

    def find(top: str) -> Path | None:
        if not top or top == PROJECT or (allowed is not None and top not in allowed):
            return None
        folder, file = root / top, root / f"{top}.py"
        if (folder / "__init__.py").is_file():
            return folder
        return file if file.is_file() else None

    return find


@functools.cache
def _find_source_file(name: str) -> str | None:
    """Return the file of a module of faultset, or None if the module does not exist."""
    relative = name.replace(".", "/").removeprefix(f"{PROJECT}/")
    for folder in sys.modules[PROJECT].__path__:
        for file in (f"{folder}/{relative}.py", f"{folder}/{relative}/__init__.py"):
            if os.path.isfile(file):
                return file
    return None


def _list_imported_files(module: str, within: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a module of faultset and of its direct and indirect imports."""
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        file = None if name in seen else _find_source_file(name)
        seen.add(name)
        if file is None:
            continue
        yield f"{name.replace('.', '/')}.py", Path(file)
        for imported, names in _read_imports(Path(file)):
            candidates = (imported, *(f"{imported}.{attribute}" for attribute in names))
            waiting += [module for module in candidates if module == within or module.startswith(f"{within}.")]


def _read_imports(file: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the modules that a file imports by absolute name, each with the imported attributes."""
    try:
        return _read_imports_at(str(file), file.stat().st_mtime_ns)
    except OSError:
        return ()


@functools.lru_cache(maxsize=4096)
def _read_imports_at(path: str, changed_ns: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    imports = []
    for source, names, modules in _IMPORT.findall(Path(path).read_text(encoding="utf-8", errors="replace")):
        if source and not source.startswith("."):
            imports.append((source, tuple(re.findall(r"\w+", names))))
        for module in modules.split(",") if modules else ():
            words = module.split()
            if words:
                imports.append((words[0], ()))
    return tuple(imports)


def files_below(folder: Path, root: Path) -> list[tuple[str, Path]]:
    """Return the files below a folder, except caches, with names relative to `root`; links are not followed."""
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        for name in names:
            path = Path(parent, name)
            if not name.endswith((".pyc", ".pyo")) and path.is_file():
                files.append((path.relative_to(root).as_posix(), path))
    return files


UNINSTALLED = "no distribution"


@dataclass(frozen=True, kw_only=True)
class CodeIdentity:
    """Identity of a piece of code, independent of its path."""

    distribution: str
    """Name and version of its distribution, or `UNINSTALLED`."""
    digest: str
    """The first 12 hexadecimal digits of the SHA-256 of its files."""

    def __str__(self) -> str:
        return f"{self.distribution} sha256:{self.digest}"

    @property
    def built_in(self) -> bool:
        """Whether the code is part of faultset."""
        return self.distribution.rpartition(" ")[0] == PROJECT


def code_identity(code_object: Any, plugin: Plugin | None = None, *, within: str = "") -> CodeIdentity:
    """Identify the code of a module, class, function or object.

    The identity of an extension covers its package or file and the neighbouring modules that it imports. The identity
    of faultset's code covers the module and its imports from faultset.

    Parameters
    ----------
    code_object
        A module, a class, a function, a `functools.partial` of one, or an instance of a class.
    plugin
        The plug-in that registers it, if any.
    within
        For code of faultset: the package whose imports are followed.
    """
    module = code_object if isinstance(code_object, ModuleType) else sys.modules.get(_get_module_name(code_object))
    path = getattr(module, "__file__", None)
    arguments = _describe_arguments(code_object)
    if module is None or path is None or not os.path.isfile(path):
        source = _read_source_or_bytecode(code_object)
        return CodeIdentity(distribution=UNINSTALLED, digest=_compute_digest([("", source), ("arguments", arguments)]))
    distribution = find_module_distribution(module.__name__, plugin)
    files = dict(list_identity_files(module, distribution, within))
    content = [(name, _hash_content(path)) for name, path in sorted(files.items())]
    owner = name_and_version(distribution) if distribution is not None else UNINSTALLED
    return CodeIdentity(distribution=owner, digest=_compute_digest([*content, ("arguments", arguments)]))


def plugin_identity(plugin: Plugin, *, within: str = "") -> CodeIdentity:
    """Import the module of a plug-in and identify its code."""
    return code_identity(importlib.import_module(plugin.value.partition(":")[0]), plugin, within=within)


def code_paths(code_object: Any, plugin: Plugin | None = None) -> tuple[Path, ...]:
    """Return the packages and files of an extension; none if it was not defined in a file."""
    module = sys.modules.get(_get_module_name(code_object))
    path = getattr(module, "__file__", None)
    if module is None or path is None or not os.path.isfile(path):
        return ()
    return tuple(list_units(module, find_module_distribution(module.__name__, plugin)))


def path_identity(path: Path) -> CodeIdentity:
    """Identify a file or folder outside of any distribution by its content."""
    path = Path(path)
    files = files_below(path, path.parent) if path.is_dir() else [(path.name, path)]
    # the name of the file or folder itself is not part of its identity
    content = [(name.partition("/")[2], _hash_content(file)) for name, file in sorted(files)]
    return CodeIdentity(distribution=UNINSTALLED, digest=_compute_digest(content))


def own_digest() -> str:
    """Hash every installed file of faultset, in its current state."""
    folders = [Path(folder) for folder in sys.modules[PROJECT].__path__]
    files = [file for folder in folders if folder.is_dir() for file in files_below(folder, folder.parent)]
    return _compute_digest((name, _hash_content(path)) for name, path in sorted(files))


def _get_module_name(code_object: Any) -> str:
    if isinstance(code_object, functools.partial):
        return _get_module_name(code_object.func)
    name = getattr(code_object, "__module__", None)
    return name if isinstance(name, str) else type(code_object).__module__


def _describe_arguments(code_object: Any) -> bytes:
    if not isinstance(code_object, functools.partial):
        return b""
    return repr((code_object.args, sorted(code_object.keywords.items()))).encode() + _describe_arguments(
        code_object.func
    )


def _compute_digest(content: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for name, data in content:
        if data or name:
            total.update(f"{name}\0{len(data)}\0".encode())
            total.update(data)
    return total.hexdigest()[:12]


def _hash_content(path: Path) -> bytes:
    """Return the hash of a file's content, cached until the file changes."""
    try:
        stat = path.stat()
        return _hash_content_at(str(path), stat.st_mtime_ns, stat.st_size)
    except OSError:
        return b"unreadable"


@functools.lru_cache(maxsize=4096)
def _hash_content_at(path: str, changed_ns: int, size: int) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _read_source_or_bytecode(code_object: Any) -> bytes:
    """Return the source, or otherwise the byte code, of code without a file, such as a class defined in a notebook."""
    code_object = code_object.func if isinstance(code_object, functools.partial) else code_object
    try:
        return inspect.getsource(code_object).encode()
    except (OSError, TypeError):
        return repr(list(_list_bytecode(code_object))).encode()


def _list_bytecode(code_object: Any) -> Iterator[tuple[Any, ...]]:
    members = vars(code_object).values() if isinstance(code_object, type) else [code_object]
    for member in members:
        code = getattr(member, "__code__", None)
        if isinstance(code, CodeType):
            yield _simplify_code(code)


def _simplify_code(code: CodeType) -> tuple[Any, ...]:
    constants = [_simplify_code(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return code.co_code.hex(), code.co_names, constants
