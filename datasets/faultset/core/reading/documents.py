"""JSON that somebody else has written: read with limits, checked against a type, and told apart in one sentence."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from faultset.core.errors import DataError, FaultsetError
from faultset.core.printable import printable, quoted
from faultset.core.reading.regular_files import read_regular

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""For the attribute `__pydantic_config__` of dataclasses that are read from files."""
LIMIT_BYTES = 8 << 20
_RESTORE = "restore the file"
T = TypeVar("T")


def parse_json(content: bytes | str, origin: str, *, error: type[FaultsetError] = DataError) -> Any:
    """Return what a JSON text holds: nested at most about two hundred deep, without NaN, infinities and repeated keys.

    Parameters
    ----------
    content
        The text, as bytes in UTF-8.
    origin
        Names it in the error.
    error
        Class of the error.
    """
    try:
        found = from_json(content, allow_inf_nan=False)
    except ValueError as problem:
        reason = printable(str(problem).partition("\n")[0][:200])
        raise error(f"{printable(origin)} is no valid JSON ({reason}); {_RESTORE}") from None
    twice = _repeated_key(content)
    if twice is not None:
        raise error(f"{printable(origin)} should hold each key once, it holds {quoted(twice)} twice; {_RESTORE}")
    return found


def _repeated_key(content: bytes | str) -> str | None:
    """Return a key that stands twice in an object of a JSON text; None if there is none."""
    repeated: list[str] = []

    def remember(pairs: list[tuple[str, None]]) -> None:
        if len(pairs) != len(dict(pairs)):
            repeated.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)

    text = content if isinstance(content, str) else content.decode()
    nothing = len  # numbers are of no interest, and may be longer than Python makes integers of
    json.loads(text, object_pairs_hook=remember, parse_int=nothing, parse_float=nothing)
    return repeated[0] if repeated else None


def parse_object(content: bytes | str, origin: str, *, error: type[FaultsetError] = DataError) -> dict[str, Any]:
    """Return a JSON text that holds an object; see `parse_json`."""
    found = parse_json(content, origin, error=error)
    if not isinstance(found, dict):
        raise error(f"{printable(origin)} should hold an object, it holds {quoted(found)}; {_RESTORE}")
    return found


def checked(value: Any, kind: type[T], origin: str, *, error: type[FaultsetError] = DataError) -> T:
    """Return parsed JSON as a value of a type.

    Parameters
    ----------
    value
        What `parse_json` gave.
    kind
        A type that pydantic knows, for instance a dataclass with `STRICT`.
    origin
        Names the value in the error, for instance the path of its file.
    """
    try:
        return _adapter(kind).validate_json(to_json(value))
    except ValidationError as problem:
        raise error(f"{printable(origin)}: {validation_sentence(problem)}; {_RESTORE}") from None


def read_document(
    path: Path,
    kind: type[T],
    *,
    limit_bytes: int = LIMIT_BYTES,
    below: Path | None = None,
    error: type[FaultsetError] = DataError,
) -> T:
    """Read a JSON file as a value of a type; see `read_regular`, `parse_json` and `checked`."""
    content = read_regular(path, limit_bytes=limit_bytes, below=below, error=error)
    return checked(parse_json(content, str(path), error=error), kind, str(path), error=error)


def json_lines(content: bytes, origin: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text with one on each line; lines that a crash has cut short are left out.

    Raises
    ------
    DataError
        Another line is no JSON object.
    """
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            yield parse_object(line, f"line {number} of {origin}")
        except DataError as error:
            if "EOF while parsing" not in str(error):
                raise


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def validation_sentence(problem: ValidationError) -> str:
    """Say what the first thing is that is wrong."""
    first = problem.errors(include_url=False, include_context=False)[0]
    place = ".".join(printable(str(part)[:60]) for part in first["loc"]) or "it"
    if first["type"] == "missing":
        return f"the field {place} is missing"
    if first["type"] == "extra_forbidden":
        return f"the field {place} is not known"
    wanted = first["msg"].partition("\n")[0].removeprefix("Value error, ")
    wanted = wanted.replace("Input should", "should").replace("String should", "should")
    return f"{place} {printable(wanted[:200])}, found {quoted(first['input'])}"
