"""Command lines as words, without a shell: what only a shell would understand is told apart, and never carried out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from faultset.datasets.kubectl.errors import CommandError, ShellSyntaxError

LONGEST_LINE = 20_000
"""Most characters of a command line."""

_PART = re.compile(
    r"""(?P<blank>[ \t\r\n]+)|(?P<operator>[|&;<>()]+)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|"""
    r"""\\(?P<escaped>.)|(?P<plain>[^ \t\r\n|&;<>()'"\\]+)""",
    re.DOTALL,
)
_SUBSTITUTION = re.compile(r"`|\$\(")


class Token(NamedTuple):
    """A word of a command line, or an operator between words, as `|` or `>`."""

    text: str
    is_operator: bool = False


def tokens(line: str) -> list[Token]:
    """Return the words and the operators of a line, with quotes and backslashes as in a shell.

    Raises
    ------
    CommandError
        The line is too long, or a quote is not closed.
    ShellSyntaxError
        It has substitutions, or the character NUL.

    Examples
    --------
    >>> [token.text for token in tokens("kubectl get pods | grep 'a|b'") if not token.is_operator]
    ['kubectl', 'get', 'pods', 'grep', 'a|b']
    """
    if len(line) > LONGEST_LINE:
        raise CommandError(f"a command has at most {LONGEST_LINE:,} characters; found {len(line):,}")
    if "\0" in line:
        raise needs_shell("\0")
    return list(_tokens(line))


def split_line(line: str) -> list[str]:
    """Return the words of a line that is one command.

    >>> split_line("kubectl patch svc geo -p '{\\"spec\\": {}}'")
    ['kubectl', 'patch', 'svc', 'geo', '-p', '{"spec": {}}']

    Raises
    ------
    CommandError
        As in `tokens`.
    ShellSyntaxError
        The line has characters that only a shell understands: pipes, redirections, lists of commands, substitutions.
    """
    found = tokens(line)
    for token in found:
        if token.is_operator:
            raise needs_shell(token.text)
    return [token.text for token in found]


def needs_shell(text: str) -> ShellSyntaxError:
    """Return the error of a line with something that only a shell understands."""
    return ShellSyntaxError(
        f"{text[:60]!r} is for a shell, and there is none: give one command at a time, in quotes what is data"
    )


def _tokens(line: str) -> Iterator[Token]:
    word: str | None = None
    place = 0
    while place < len(line):
        part = _PART.match(line, place)
        if part is None:
            raise CommandError(f"a quote is not closed in {_short(line)}; close it")
        place = part.end()
        kind, text = str(part.lastgroup), part[str(part.lastgroup)]
        if kind in ("plain", "double") and (found := _SUBSTITUTION.search(text)):
            raise needs_shell(found[0])
        if kind in ("blank", "operator"):
            if word is not None:
                yield Token(word)
            if kind == "operator":
                yield Token(text, is_operator=True)
            word = None
        elif kind != "escaped" or text != "\n":
            word = (word or "") + (_unescaped(text) if kind == "double" else text)
    if word is not None:
        yield Token(word)


def _unescaped(text: str) -> str:
    return re.sub(r'\\(?:\n|([$`"\\]))', r"\1", text)


def _short(line: str) -> str:
    return repr(line if len(line) < 60 else f"{line[:57]}...")
