"""Read untrusted YAML: plain values only, with limits on depth and size."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import yaml

from faultset.core.errors import UsageError
from faultset.core.reading.regular_files import read_regular

MAX_LEVELS = 64
MAX_VALUES = 200_000
LIMIT_BYTES = 1 << 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml_text(path: Path, kind: str) -> str:
    """Read a file that a user names, possibly through a link; raise UsageError if it cannot be read.

    Parameters
    ----------
    kind
        Noun for the file in messages.
    """
    name = f"{kind} {path}"
    try:
        return read_regular(path.resolve(strict=True), limit_bytes=LIMIT_BYTES, error=UsageError).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{name} must be UTF-8 text; save it in that encoding") from None
    except (OSError, RuntimeError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "its links form a loop"
        raise UsageError(f"{name} cannot be read ({reason}); give another path") from None


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML into plain values.

    Parameters
    ----------
    origin
        Name of the text in errors.

    Raises
    ------
    UsageError
        The text is not YAML, repeats a key, is nested too deeply, or has too many values once aliases are expanded.
    """
    try:
        return pickle.loads(_parse(text))
    except (_Refused, yaml.YAMLError, ValueError, RecursionError, OverflowError) as problem:
        reason = " ".join(str(problem).split())[:300]
    if "nesting depth" in reason:  # libyaml has a different limit, which may be reached first
        reason = f"it is nested deeper than {MAX_LEVELS} levels"
    raise UsageError(f"{origin} is not YAML that faultset reads: {reason}; correct it")


class _Refused(Exception):
    """The text is valid YAML, but exceeds a limit or repeats a key."""


@functools.lru_cache(maxsize=32)
def _parse(text: str) -> bytes:
    """Return the pickled value, so that each of the many readers of the same text gets a copy."""
    _check_size(text)
    return pickle.dumps(yaml.load(text, Loader=_LOADER))


def _check_size(text: str) -> None:
    """Check the limits on the stream of events, before a recursive constructor sees the text."""
    sizes: dict[str | None, int] = {}
    open_values: list[tuple[str | None, int]] = []
    keys = _Keys()
    total = 0
    for event in yaml.parse(text, Loader=_LOADER):
        key = keys.find_repeated(event)
        if key is not None:
            raise _Refused(f'{_line(event)} repeats the key "{key[:60]}"')
        if isinstance(event, yaml.CollectionStartEvent):
            open_values.append((event.anchor, total))
            if len(open_values) > MAX_LEVELS:
                raise _Refused(f"{_line(event)} is nested deeper than {MAX_LEVELS} levels")
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_values.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_values):
                raise _Refused(f"{_line(event)} repeats a value inside itself")
            total += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if total > MAX_VALUES:
            raise _Refused(f"it has more than {MAX_VALUES:,} values")


class _Keys:
    """Track the keys of nested mappings, because constructors silently keep the last of two identical keys."""

    def __init__(self) -> None:
        self._open: list[tuple[set[str] | None, bool]] = []
        """Per open collection: its keys so far (None for a sequence), and whether a key comes next."""

    def find_repeated(self, event: yaml.Event) -> str | None:
        """Process the next event; return the key that it repeats, or None."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            return None
        if not isinstance(event, yaml.NodeEvent):
            return None
        repeated = None
        keys, is_key = self._open[-1] if self._open else (None, False)
        if keys is not None:
            self._open[-1] = keys, not is_key
            if is_key and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
                repeated = event.value if event.value in keys else None
                keys.add(event.value)
        if isinstance(event, yaml.MappingStartEvent):
            self._open.append((set(), True))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open.append((None, False))
        return repeated


def _line(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1}" if event.start_mark else "a line"
