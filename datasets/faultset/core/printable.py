"""Make external text and values safe and short enough for a terminal."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def printable(text: str | os.PathLike[str]) -> str:
    """Return a text with control characters and lone surrogates written as escape codes.

    >>> printable("geo\\x1b[2J")
    'geo\\\\x1b[2J'
    """
    text = os.fspath(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, shortened and printable; if it is empty, the name of its class.

    >>> first_line(ValueError("row 7 is short\\nsee above")), first_line(EOFError())
    ('row 7 is short', 'EOFError')
    """
    return printable((str(error).splitlines() or [type(error).__name__])[0][:160])


def quoted(value: object) -> str:
    """Return a value in at most 42 characters, to be quoted in a sentence.

    >>> quoted("x" * 100)
    '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."'
    """
    if isinstance(value, str):
        return f'"{printable(value if len(value) <= 40 else value[:39] + "...")}"'
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return printable(repr(value)[:40])


def brief(text: str, width: int = 80) -> str:
    """Return the first words of a text in one line of at most `width` characters.

    >>> brief("the host was busy\\nall the time", 24)
    'the host was busy ...'
    """
    return textwrap.shorten(text, width, placeholder=" ...")


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural except for 1.

    >>> [count_text(number, "more method") for number in (0, 1, 1200)]
    ['0 more methods', '1 more method', '1,200 more methods']
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def describe_choices(names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name.

    >>> describe_choices(["on", "off"]), describe_choices([])
    ('expected one of on, off', 'because there are none')
    """
    choices = ", ".join(names)
    return f"expected one of {choices}" if choices else "because there are none"


def list_counts(**numbers: int) -> str:
    """Return the nonzero numbers with their nouns; if all are 0, only the first.

    >>> list_counts(episode=2, recording=1), list_counts(episode=0, recording=3), list_counts(episode=0, recording=0)
    ('2 episodes and 1 recording', '3 recordings', '0 episodes')
    """
    texts = [count_text(number, noun) for noun, number in numbers.items() if number]
    return " and ".join(texts) or count_text(0, next(iter(numbers)))


def size_text(size: float) -> str:
    """Return an estimated number of bytes as text, in kB, MB or GB.

    >>> [size_text(size) for size in (400, 68_800_000, 3_400_000_000)]
    ['0.4 kB', '69 MB', '3.4 GB']
    """
    factor, unit = next((row for row in _SIZES if size >= row[0]), _SIZES[-1])
    amount = size / factor
    return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"


def with_texts(record: Any, change: Callable[[str], str], *, keep: tuple[type, ...] = ()) -> Any:
    """Return a copy of nested dataclasses, mappings and lists with `change` applied to every string.

    Parameters
    ----------
    keep
        Classes whose objects are not copied.
    """
    if isinstance(record, str):
        return change(record)
    if isinstance(record, keep):
        return record
    if isinstance(record, Mapping):
        return {with_texts(k, change, keep=keep): with_texts(v, change, keep=keep) for k, v in record.items()}
    if isinstance(record, tuple | list):
        values = [with_texts(value, change, keep=keep) for value in record]
        return type(record)(*values) if hasattr(record, "_fields") else type(record)(values)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        fields = [field.name for field in dataclasses.fields(record) if field.init]
        changed = {name: with_texts(getattr(record, name), change, keep=keep) for name in fields}
        return dataclasses.replace(record, **changed)
    return record
