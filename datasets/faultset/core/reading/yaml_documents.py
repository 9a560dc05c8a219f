"""YAML that somebody else has written: plain values only, with limits on depth and size."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import yaml

from faultset.core.errors import FaultsetError, UsageError
from faultset.core.printable import printable
from faultset.core.reading.regular_files import read_regular

MOST_LEVELS = 64
MOST_VALUES = 200_000
LIMIT_BYTES = 1 << 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml_text(path: Path, what: str) -> str:
    """Return the text of a file that a user names, which may be a link to it; raise UsageError when it is none.

    Parameters
    ----------
    what
        What kind of file it is, for the message.
    """
    name = f"{what} {printable(path)}"
    try:
        return read_regular(path.resolve(strict=True), limit_bytes=LIMIT_BYTES, error=UsageError).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text; save it as such") from None
    except (OSError, RuntimeError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is a circle of links"
        raise UsageError(f"{name} cannot be read ({reason}); name another") from None


def parse_yaml(text: str, origin: str, *, error: type[FaultsetError] = UsageError) -> Any:
    """Return the plain value that a YAML text holds.

    Parameters
    ----------
    origin
        Names the text in the error.
    error
        Class of the error.

    Raises
    ------
    FaultsetError
        It is no YAML, is nested too deep, or has too many values when its aliases are written out.
    """
    origin = printable(origin)
    try:
        return pickle.loads(_parsed(text))
    except (_Unwanted, yaml.YAMLError, ValueError, RecursionError, OverflowError) as problem:
        reason = printable(" ".join(str(problem).split())[:300])
    if "nesting depth" in reason:  # parsers have limits of their own, and may reach them first
        reason = f"it is nested deeper than {MOST_LEVELS} levels"
    raise error(f"{origin} is not YAML that faultset reads: {reason}; correct it")


class _Unwanted(Exception):
    """The text is YAML, but not of the kind that is read."""


@functools.lru_cache(maxsize=32)
def _parsed(text: str) -> bytes:
    """Return the value as bytes, of which every reader gets a copy: the same few texts are read many times."""
    _check_size(text)
    return pickle.dumps(yaml.load(text, Loader=_LOADER))


def _check_size(text: str) -> None:
    """Walk over the text without building anything: builders of nested values are recursive, some in C."""
    sizes: dict[str | None, int] = {}
    open_values: list[tuple[str | None, int]] = []
    keys = _Keys()
    total = 0
    for event in yaml.parse(text, Loader=_LOADER):
        twice = keys.repeated(event)
        if twice is not None:
            raise _Unwanted(f'{_line(event)} has the key "{printable(twice[:60])}" a second time')
        if isinstance(event, yaml.CollectionStartEvent):
            open_values.append((event.anchor, total))
            if len(open_values) > MOST_LEVELS:
                raise _Unwanted(f"{_line(event)} is nested deeper than {MOST_LEVELS} levels")
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_values.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_values):
                raise _Unwanted(f"{_line(event)} repeats a value inside itself")
            total += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if total > MOST_VALUES:
            raise _Unwanted(f"it has more than {MOST_VALUES:,} values")


class _Keys:
    """Follows the keys of nested mappings: builders take the last of two equal ones and say nothing."""

    def __init__(self) -> None:
        self._open: list[tuple[set[str] | None, bool]] = []
        """For each open value: the keys so far, None in a sequence; and whether a key comes next."""

    def repeated(self, event: yaml.Event) -> str | None:
        """Take the next event of the text; return the key that it repeats."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            return None
        if not isinstance(event, yaml.NodeEvent):
            return None
        twice = None
        keys, is_key = self._open[-1] if self._open else (None, False)
        if keys is not None:
            self._open[-1] = keys, not is_key
            if is_key and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
                twice = event.value if event.value in keys else None
                keys.add(event.value)
        if isinstance(event, yaml.MappingStartEvent):
            self._open.append((set(), True))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open.append((None, False))
        return twice


def _line(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1}" if event.start_mark else "a line"
