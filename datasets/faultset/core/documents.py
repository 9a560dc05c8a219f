"""Read JSON and YAML from untrusted files, with limits, type checks and one-line errors."""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.core.printable import printable, quoted
from faultset.core.regular_files import read_regular

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""Value of `__pydantic_config__` in dataclasses that are read from files."""
LIMIT_BYTES = 8 << 20
_RESTORE = "restore the file"
T = TypeVar("T")


def parse_json(content: bytes | str, origin: str) -> Any:
    """Parse JSON; refuse NaN, infinities, repeated keys and more than about 200 levels.

    Parameters
    ----------
    content
        JSON as text or as UTF-8 bytes.
    origin
        Name of the text in errors.
    """
    try:
        value = from_json(content, allow_inf_nan=False)
    except ValueError as problem:
        reason = str(problem).partition("\n")[0][:200]
        raise DataError(f"{origin} is not valid JSON ({reason}); {_RESTORE}") from None
    repeated = _find_repeated_key(content)
    if repeated is not None:
        raise DataError(f"{origin} must hold each key once, but holds {quoted(repeated)} twice; {_RESTORE}")
    return value


def _find_repeated_key(content: bytes | str) -> str | None:
    """Return a key that occurs twice in an object of a JSON text, or None; `from_json` silently keeps the last."""
    repeated: list[str] = []

    def remember(pairs: list[tuple[str, None]]) -> None:
        if len(pairs) != len(dict(pairs)):
            repeated.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)

    text = content if isinstance(content, str) else content.decode()
    # Numbers do not matter here, and int() refuses numbers with thousands of digits.
    json.loads(text, object_pairs_hook=remember, parse_int=len, parse_float=len)
    return repeated[0] if repeated else None


def parse_object(content: bytes | str, origin: str) -> dict[str, Any]:
    """Parse JSON that must be an object; see `parse_json`."""
    value = parse_json(content, origin)
    if not isinstance(value, dict):
        raise DataError(f"{origin} must hold an object, but holds {quoted(value)}; {_RESTORE}")
    return value


def check_type(value: Any, kind: type[T], origin: str, *, error: type[FaultsetError] = DataError) -> T:
    """Convert parsed JSON into a value of a type.

    Parameters
    ----------
    value
        Result of `parse_json`.
    kind
        A type that pydantic supports, for instance a dataclass with `STRICT`.
    origin
        Name of the value in errors, for instance the path of its file.
    """
    try:
        return _adapter(kind).validate_json(to_json(value))
    except ValidationError as problem:
        remedy = "correct it" if error is UsageError else _RESTORE  # a file that users write themselves
        raise error(f"{origin}: {validation_sentence(problem)}; {remedy}") from None


def read_document(path: Path, kind: type[T], *, limit_bytes: int = LIMIT_BYTES, below: Path | None = None) -> T:
    """Read a JSON file into a value of a type; see `read_regular`, `parse_json` and `check_type`."""
    content = read_regular(path, limit_bytes=limit_bytes, below=below)
    return check_type(parse_json(content, str(path)), kind, str(path))


def json_lines(content: bytes, origin: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text with one object per line; skip blank lines and lines that a crash has truncated.

    Raises
    ------
    DataError
        A complete line is not a JSON object.
    """
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            yield parse_object(line, f"line {number} of {origin}")
        except DataError:
            if not _is_truncated(line):
                raise


def _is_truncated(line: bytes) -> bool:
    """Return whether a line is blank or only the beginning of a JSON text."""
    try:
        from_json(line)
    except ValueError:
        with contextlib.suppress(ValueError):
            from_json(line, allow_partial=True)
            return True
        return not line.strip()
    return False


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def validation_sentence(problem: ValidationError) -> str:
    """Describe the first problem in one sentence."""
    first = problem.errors(include_url=False, include_context=False)[0]
    field = ".".join(printable(str(key)[:60]) for key in first["loc"]) or "it"
    if first["type"] == "missing":
        return f"the field {field} is missing"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"the field {field} is unknown"
    expectation = first["msg"].partition("\n")[0].removeprefix("Value error, ")
    expectation = expectation.replace("Input should", "must").replace("String should", "must")
    return f"{field} {printable(expectation[:200])}, got {quoted(first['input'])}"


MAX_LEVELS = 64
MAX_VALUES = 200_000
_YAML_LIMIT_BYTES = 1 << 20


def read_yaml_text(path: Path, kind: str) -> str:
    """Read a file that a user names, possibly through a link; raise UsageError if it cannot be read.

    Parameters
    ----------
    kind
        Noun for the file in messages.
    """
    name = f"{kind} {path}"
    try:
        return read_regular(path.resolve(strict=True), limit_bytes=_YAML_LIMIT_BYTES, error=UsageError).decode("utf-8")
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
    import yaml

    try:
        return pickle.loads(_parse_yaml(text))
    except (_Refused, yaml.YAMLError, ValueError, RecursionError, OverflowError) as problem:
        reason = " ".join(str(problem).split())[:300]
    if "nesting depth" in reason:  # libyaml has a different limit, which may be reached first
        reason = f"it is nested deeper than {MAX_LEVELS} levels"
    raise UsageError(f"{origin} is not YAML that faultset reads: {reason}; correct it")


class _Refused(Exception):
    """The text is valid YAML, but exceeds a limit or repeats a key."""


@functools.lru_cache(maxsize=32)
def _parse_yaml(text: str) -> bytes:
    """Return the pickled value, so that each of the many readers of the same text gets a copy."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _check_events(text, loader)
    return pickle.dumps(yaml.load(text, Loader=loader))


@dataclass
class _OpenValue:
    anchor: str | None
    values_before: int
    keys: set[str] | None
    """Keys so far; None for a sequence."""
    expects_key: bool = True


def _check_events(text: str, loader: Any) -> None:
    """Check limits and repeated keys on the stream of events, before a recursive constructor sees the text.

    Constructors silently keep the last of two identical keys.
    """
    import yaml

    sizes: dict[str | None, int] = {}
    open_values: list[_OpenValue] = []
    total = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionEndEvent):
            closed = open_values.pop()
            if closed.anchor is not None:
                sizes[closed.anchor] = total - closed.values_before
        if not isinstance(event, yaml.NodeEvent):
            continue
        line = f"line {event.start_mark.line + 1}" if event.start_mark else "a line"
        parent = open_values[-1] if open_values else None
        if parent is not None and parent.keys is not None:
            if parent.expects_key and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
                if event.value in parent.keys:
                    raise _Refused(f'{line} repeats the key "{event.value[:60]}"')
                parent.keys.add(event.value)
            parent.expects_key = not parent.expects_key
        if isinstance(event, yaml.AliasEvent):
            if any(value.anchor == event.anchor for value in open_values):
                raise _Refused(f"{line} repeats a value inside itself")
            total += sizes.get(event.anchor, 1)
        else:
            if isinstance(event, yaml.CollectionStartEvent):
                keys = set[str]() if isinstance(event, yaml.MappingStartEvent) else None
                open_values.append(_OpenValue(event.anchor, total, keys))
                if len(open_values) > MAX_LEVELS:
                    raise _Refused(f"{line} is nested deeper than {MAX_LEVELS} levels")
            elif event.anchor is not None:
                sizes[event.anchor] = 1
            total += 1
        if total > MAX_VALUES:
            raise _Refused(f"it has more than {MAX_VALUES:,} values")
