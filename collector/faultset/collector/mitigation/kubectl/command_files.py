"""Files of commands."""

from __future__ import annotations

from pathlib import Path

from faultset.core.errors import UsageError
from faultset.core.reading.regular_files import read_regular

LARGEST_FILE_BYTES = 2**20


def read_command_lines(path: Path) -> list[tuple[int, str]]:
    r"""Return the commands in a file, each with the number of its line.

    Empty lines and those that begin with `#` are left out; a line that ends with a backslash goes on in the next.

    Raises
    ------
    UsageError
        The file cannot be read, is too large, is not UTF-8, or has no command.
    """
    text = _text_of(path)
    made: list[tuple[int, str]] = []
    begun, number_of_first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        number_of_first = number_of_first or number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        made.append((number_of_first, (begun + line).strip()))
        begun, number_of_first = "", 0
    if begun:
        raise UsageError(f"{path}, line {number_of_first}: the command ends with a backslash; write the rest of it")
    if not made:
        raise UsageError(
            f"{path} has no command; write one a line, for instance: kubectl rollout restart deployment/geo"
        )
    return made


def _text_of(path: Path) -> str:
    try:
        return read_regular(path, limit_bytes=LARGEST_FILE_BYTES, error=UsageError).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} must be text in UTF-8; save it so") from None
