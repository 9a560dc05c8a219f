"""Command lines as words, without a shell: what only a shell would understand is refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.core.errors import UsageError
from faultset.core.reading.regular_files import read_regular

LARGEST_LINE = 20_000
LARGEST_FILE_BYTES = 2**20

_FOR_A_SHELL = re.compile(r"[;|&<>()]+")


def split_line(line: str) -> list[str]:
    """Return the words of a line, with quotes and backslashes as in a shell.

    >>> split_line("kubectl patch svc geo -p '{\\"spec\\": {}}'")
    ['kubectl', 'patch', 'svc', 'geo', '-p', '{"spec": {}}']

    Raises
    ------
    CommandRefused
        The line is too long, a quote is not closed, or it has characters that only a shell understands: pipes,
        redirections, lists of commands, substitutions.
    """
    if len(line) > LARGEST_LINE:
        raise CommandRefused(f"a command has at most {LARGEST_LINE:,} characters; found {len(line):,}")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        raise CommandRefused(f"a quote is not closed in {_short(line)}; close it") from None
    for word in words:
        if _FOR_A_SHELL.fullmatch(word) or "`" in word or "\0" in word:
            raise CommandRefused(
                f"{word!r} is for a shell, and there is none: give one command a line, in quotes what is data"
            )
    return words


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


def _short(line: str) -> str:
    return repr(line if len(line) < 60 else f"{line[:57]}...")
