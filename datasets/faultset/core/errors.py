"""Errors that a person using faultset can cause or meet.

FaultsetError                 one clear sentence: what was wanted, what was found, what to do
├── UsageError       exit 2   a wrong or impossible request
├── DataError        exit 3   a dataset that is missing, damaged or of another schema
│   └── DiskFullError         a disk without space
└── PlatformError    exit 4   the place where applications run does not do what is needed

Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import faultset
from faultset.core.printable import printable

EXTRAS = {
    "evaluate": ("cachetools", "cloudpickle", "dask", "distributed", "fsspec", "jinja2", "networkx", "sklearn"),
    "inspect": ("inspect_ai",),
    "kubernetes": ("kubernetes",),
    "mcp": ("anyio", "mcp", "uvicorn"),
    "neural": ("jax", "optax"),
    "sql": ("duckdb",),
    "stores": ("asyncpg",),
}
"""Extra -> the packages that only it brings, as they are imported."""
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


class FaultsetError(Exception):
    """Root of the errors that are shown as one sentence instead of a traceback."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        # Names and reasons come from anywhere: nothing but one line of text may reach a terminal.
        return printable(" ".join(super().__str__().splitlines()))


class UsageError(FaultsetError):
    """A request that cannot be meant: unknown name, impossible length, contradicting options."""

    exit_code = 2


class DataError(FaultsetError):
    """A dataset, version, episode or file that is missing, damaged or not readable by this release."""

    exit_code = 3


class DiskFullError(DataError):
    """A disk without space: trying the next episode or case does not help."""


class PlatformError(FaultsetError):
    """A platform that cannot run the application, or an application that does not become healthy."""

    exit_code = 4


def missing_extra(error: ModuleNotFoundError) -> UsageError | None:
    """Return the error for a user who has not installed an extra; None where the missing module is another one."""
    package = (error.name or "").partition(".")[0]
    return next((needs_extra("this", extra) for extra, packages in EXTRAS.items() if package in packages), None)


@contextmanager
def translate_missing_extra() -> Iterator[None]:
    """Turn the import error of a package that an extra brings into one UsageError that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        raise missing from error


def needs_extra(what: str, extra: str) -> UsageError:
    """Return the error for something that an extra brings, for instance "this" or "tool query"."""
    return UsageError(f'{what} needs the extra "{extra}"; {how_to_install(extra)}')


def how_to_install(extra: str) -> str:
    """Return the words that say how to install an extra."""
    return f"run: pip install 'faultset[{extra}]', or in a clone pip install '.[{extra}]'"


def in_one_sentence(error: BaseException) -> str:
    """Say what an exception is; with the file and line where it was raised when it is none of ours.

    The place is in a plug-in's code, if there is any on the way.
    """
    if isinstance(error, FaultsetError):
        return str(error)
    reason = str(error).strip().partition("\n")[0]
    words = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return words
    place = _place(frames)
    return f"{words} ({place.filename}, line {place.lineno})"


def _place(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary:
    """Return the innermost frame in the package that was called from ours, or the innermost at all."""
    outside = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(p) for p in faultset.__path__)]
    foreign = [frame for frame in outside if _package(frame.filename) != _STANDARD_LIBRARY] or outside
    own = [frame for frame in foreign if _package(frame.filename) == _package(foreign[0].filename)]
    return (own or frames)[-1]


def _package(filename: str) -> Path:
    path = Path(filename)
    for folder in path.parents:
        if folder.parent.name in ("site-packages", "dist-packages"):
            return folder
    return _STANDARD_LIBRARY if path.is_relative_to(_STANDARD_LIBRARY) else path.parent
