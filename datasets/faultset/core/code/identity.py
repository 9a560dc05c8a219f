"""Which code an extension is: its distribution, and a hash of the content of its files.

A version alone does not say which code ran: a checkout is edited, and so is a module beside a script. Names of files
count relative to where their package lies, so that the same release has the same hash wherever it is installed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from faultset.core.code.files import OWN, distribution_of, files_below, files_of, units_of
from faultset.core.plugins import Plugin, name_and_version

UNINSTALLED = "no distribution"


@dataclass(frozen=True, kw_only=True)
class CodeIdentity:
    """What a piece of code is, independent of where it lies."""

    distribution: str
    """Name and version of the distribution that it belongs to, or `UNINSTALLED`."""
    digest: str
    """The first 12 hexadecimal digits of the SHA-256 of its files."""

    def __str__(self) -> str:
        return f"{self.distribution} sha256:{self.digest}"

    @property
    def built_in(self) -> bool:
        """Whether it comes with faultset itself."""
        return self.distribution.rpartition(" ")[0] == OWN


def code_identity(thing: Any, plugin: Plugin | None = None, *, within: str = "") -> CodeIdentity:
    """Identify the code of a module, class, function or object.

    Of an installed extension the whole package counts. Of a module in no package count the file and what it imports
    from modules beside it; of faultset's own code the module and what it imports of faultset.

    Parameters
    ----------
    thing
        A module, a class, a function, a `functools.partial` of one, or an instance of a class.
    plugin
        The entry point that announces it, where there is one.
    within
        Only imports of this package are followed, for code of faultset.
    """
    module = thing if isinstance(thing, ModuleType) else sys.modules.get(_module_name(thing))
    path = getattr(module, "__file__", None)
    bound = _arguments(thing)
    if module is None or path is None or not os.path.isfile(path):
        return CodeIdentity(distribution=UNINSTALLED, digest=_digest([("", _own_text(thing)), ("arguments", bound)]))
    distribution = distribution_of(module.__name__, plugin)
    files = dict(files_of(module, distribution, within))
    content = [(name, _content(path)) for name, path in sorted(files.items())]
    owner = name_and_version(distribution) if distribution is not None else UNINSTALLED
    return CodeIdentity(distribution=owner, digest=_digest([*content, ("arguments", bound)]))


def plugin_identity(plugin: Plugin, *, within: str = "") -> CodeIdentity:
    """Identify the code that an entry point names, by its module; imports that module."""
    import importlib

    return code_identity(importlib.import_module(plugin.value.partition(":")[0]), plugin, within=within)


def code_places(thing: Any, plugin: Plugin | None = None) -> tuple[Path, ...]:
    """Return the packages and files that the code of an extension lies in; none for what no file holds."""
    module = sys.modules.get(_module_name(thing))
    path = getattr(module, "__file__", None)
    if module is None or path is None or not os.path.isfile(path):
        return ()
    return tuple(units_of(module, distribution_of(module.__name__, plugin)))


def path_identity(path: Path) -> CodeIdentity:
    """Identify a file, or a folder with everything in it, that belongs to no distribution."""
    path = Path(path)
    files = files_below(path, path.parent) if path.is_dir() else [(path.name, path)]
    # the name of the file or folder is where it lies, not what it is
    content = [(name.partition("/")[2], _content(file)) for name, file in sorted(files)]
    return CodeIdentity(distribution=UNINSTALLED, digest=_digest(content))


def own_digest() -> str:
    """Hash every file of faultset that is installed here; of a checkout, as it is at this moment."""
    folders = [Path(folder) for folder in sys.modules[OWN].__path__]
    files = [one for folder in folders if folder.is_dir() for one in files_below(folder, folder.parent)]
    return _digest((name, _content(path)) for name, path in sorted(files))


def _module_name(thing: Any) -> str:
    if isinstance(thing, functools.partial):
        return _module_name(thing.func)
    name = getattr(thing, "__module__", None)
    return name if isinstance(name, str) else type(thing).__module__


def _arguments(thing: Any) -> bytes:
    if not isinstance(thing, functools.partial):
        return b""
    return repr((thing.args, sorted(thing.keywords.items()))).encode() + _arguments(thing.func)


def _digest(content: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for name, data in content:
        if data or name:
            total.update(f"{name}\0{len(data)}\0".encode())
            total.update(data)
    return total.hexdigest()[:12]


def _content(path: Path) -> bytes:
    """Return the hash of a file's content, read again only when the file has changed."""
    try:
        stat = path.stat()
        return _content_at(str(path), stat.st_mtime_ns, stat.st_size)
    except OSError:
        return b"unreadable"


@functools.lru_cache(maxsize=4096)
def _content_at(path: str, changed_ns: int, size: int) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _own_text(thing: Any) -> bytes:
    """Return the source of what no file holds, such as a class of a notebook; its byte code where there is none."""
    thing = thing.func if isinstance(thing, functools.partial) else thing
    try:
        return inspect.getsource(thing).encode()
    except (OSError, TypeError):
        return repr(list(_codes(thing))).encode()


def _codes(thing: Any) -> Iterator[tuple[Any, ...]]:
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    for member in members:
        code = getattr(member, "__code__", None)
        if isinstance(code, CodeType):
            yield _plain_code(code)


def _plain_code(code: CodeType) -> tuple[Any, ...]:
    constants = [_plain_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return code.co_code.hex(), code.co_names, constants
