"""Read JSON from untrusted files, with size limits, type checks and one-line errors."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.core.printable import printable, quoted
from faultset.core.reading.regular_files import read_regular

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
