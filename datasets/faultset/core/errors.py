"""Errors that users see as one line instead of a traceback, and suggestions for misspelled names.

FaultsetError                 its message says what is wrong, what was expected and what to do
├── UsageError       exit 2   a wrong or impossible request
├── DataError        exit 3   a dataset that is missing, damaged or has a different schema
│   └── DiskFullError         no space left on a disk
└── PlatformError    exit 4   a platform that fails or lacks a capability

Every other exception is a bug and keeps its traceback. `tests/test_error_messages.py` checks the format of the
messages.
"""

from __future__ import annotations

import importlib.util
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import faultset
from faultset.core.printable import printable

EXTRAS = {
    "evaluate": (
        "cachetools",
        "cloudpickle",
        "dask",
        "distributed",
        "fsspec",
        "jinja2",
        "networkx",
        "scipy",
        "sklearn",
    ),
    "forecasters": ("chronos", "torch"),
    "inspect": ("inspect_ai",),
    "kubernetes": ("kubernetes",),
    "mcp": ("anyio", "mcp", "uvicorn"),
    "neural": ("jax", "optax"),
    "serve": ("promql_parser",),
    "sql": ("duckdb",),
    "stores": ("asyncpg",),
}
"""Extra -> import names of the packages that only this extra installs."""
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


class FaultsetError(Exception):
    """Base class of all errors for users."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        # Messages quote file names and other external text, which may contain line breaks and terminal codes.
        return printable(" ".join(super().__str__().splitlines()))


class UsageError(FaultsetError):
    """A wrong request: an unknown name, an impossible value, conflicting options."""

    exit_code = 2


class DataError(FaultsetError):
    """A dataset, version, episode or file that is missing, damaged or unreadable by this release."""

    exit_code = 3


class DiskFullError(DataError):
    """A full disk; the next episode or case would fail as well."""


class PlatformError(FaultsetError):
    """A platform that cannot run the application, or an application that does not become healthy."""

    exit_code = 4


def missing_extra(error: ModuleNotFoundError) -> UsageError | None:
    """Return the error for an extra that is not installed; None if no extra provides the missing module."""
    package = (error.name or "").partition(".")[0]
    return next((needs_extra("this", extra) for extra, packages in EXTRAS.items() if package in packages), None)


@contextmanager
def translate_missing_extra() -> Iterator[None]:
    """Replace the import error of a package from an extra with a UsageError that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        raise missing from error


def is_installed(extra: str) -> bool:
    """Return whether the packages of an extra are installed."""
    return all(importlib.util.find_spec(package) for package in EXTRAS[extra])


def needs_extra(feature: str, extra: str) -> UsageError:
    """Return the error for a feature, such as "tool query", whose extra is not installed."""
    return UsageError(f'{feature} needs the extra "{extra}"; {how_to_install(extra)}')


def how_to_install(extra: str) -> str:
    """Return the instruction to install an extra."""
    return f"run: pip install 'faultset[{extra}]', or in a clone pip install '.[{extra}]'"


def in_one_sentence(error: BaseException) -> str:
    """Describe an exception in one line; for a bug, with the file and line that raised it.

    If code of a plug-in is in the traceback, its innermost line is named.
    """
    if isinstance(error, FaultsetError):
        return str(error)
    reason = str(error).strip().partition("\n")[0]
    text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    frame = _blame(frames)
    return f"{text} ({frame.filename}, line {frame.lineno})"


def _blame(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary:
    """Return the innermost frame of the first package that faultset called, else the innermost frame."""
    outside = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(p) for p in faultset.__path__)]
    foreign = [frame for frame in outside if _package_folder(frame.filename) != _STANDARD_LIBRARY] or outside
    called = [frame for frame in foreign if _package_folder(frame.filename) == _package_folder(foreign[0].filename)]
    return (called or frames)[-1]


def _package_folder(filename: str) -> Path:
    path = Path(filename)
    for folder in path.parents:
        if folder.parent.name in ("site-packages", "dist-packages"):
            return folder
    return _STANDARD_LIBRARY if path.is_relative_to(_STANDARD_LIBRARY) else path.parent


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return the remedy for an unknown name: similar names, or else up to 12 of the existing ones.

    >>> suggest("hotle", ["hotel", "social"])
    'did you mean "hotel"?'
    >>> suggest("x", ["hotel", "social"])
    'choose one of hotel, social'
    """
    import difflib

    names = sorted(set(candidates))
    folded = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f'"{folded[match]}"' for match in close) + "?"
    if not names:
        return "there are none to choose from"
    if len(names) <= 12:
        return "choose one of " + ", ".join(names)
    return f"choose one of {', '.join(names[:12])} and {len(names) - 12} more"


def unknown_name(kind: str, name: str, names: Iterable[str]) -> UsageError:
    """Return the error for a name that does not exist.

    >>> str(unknown_name("app", "hotle", ["hotel"]))
    'unknown app "hotle"; did you mean "hotel"?'
    """
    return UsageError(f'unknown {kind} "{name}"; {suggest(name, names)}')
