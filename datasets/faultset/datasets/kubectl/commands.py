"""Parse command lines into words, flags and filters without a shell; shell syntax is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from faultset.core.errors import UsageError
from faultset.core.times import parse_duration

MAX_LINE = 20_000
"""Maximum characters of a command line."""

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+)|(?P<operator>[|&;<>()]+)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|"""
    r"""\\(?P<escaped>.)|(?P<plain>[^ \t\r\n|&;<>()'"\\]+)""",
    re.DOTALL,
)
_SUBSTITUTION = re.compile(r"`|\$\(")


class CommandError(UsageError):
    """A command that cannot be parsed."""


class ShellSyntaxError(CommandError):
    """A command that needs a shell."""


class Token(NamedTuple):
    """A word of a command line, or an operator such as `|` or `>`."""

    text: str
    is_operator: bool = False


_IGNORED_REDIRECTIONS = (
    (Token("2"), Token(">", True), Token("/dev/null")),
    (Token("2"), Token(">&", True), Token("1")),
)


def tokens(line: str) -> list[Token]:
    """Split a line into words and operators; quotes and backslashes work as in a shell.

    >>> [token.text for token in tokens("kubectl get pods | grep 'a|b'") if not token.is_operator]
    ['kubectl', 'get', 'pods', 'grep', 'a|b']
    """
    if len(line) > MAX_LINE:
        raise CommandError(f"a command must have at most {MAX_LINE:,} characters, but has {len(line):,}")
    if "\0" in line:
        raise _needs_shell("\0")
    return list(_tokens(line))


def split_line(line: str) -> list[str]:
    """Split a line with one command into words.

    >>> split_line("kubectl patch svc geo -p '{\\"spec\\": {}}'")
    ['kubectl', 'patch', 'svc', 'geo', '-p', '{"spec": {}}']
    """
    words = tokens(line)
    for token in words:
        if token.is_operator:
            raise _needs_shell(token.text)
    return [token.text for token in words]


def split_pipeline(text: str) -> list[list[str]]:
    """Split a line into the words of a command and of each filter after a pipe.

    >>> split_pipeline("kubectl get pods 2>&1 | wc -l")
    [['kubectl', 'get', 'pods'], ['wc', '-l']]
    """
    stages: list[list[str]] = [[]]
    for word, is_operator in _without_redirections(tokens(text)):
        if not is_operator:
            stages[-1].append(word)
        elif word == "|":
            stages.append([])
        else:
            raise _needs_shell(word)
    if len(stages) > 1 and not all(stages):
        raise CommandError("every stage of a pipe needs a command, but one is empty")
    return stages


class VerbFlag(NamedTuple):
    """A flag of a kubectl verb; `convert` parses its value and is None for a switch, `short` may be empty."""

    name: str
    convert: Callable[[str], Any] | None = None
    short: str = ""


@dataclass
class KubectlCommand:
    """A parsed command; `flags` maps long names to values, and `has_filters` forbids truncating the output."""

    verb: str
    arguments: list[str] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)
    has_filters: bool = False

    @property
    def selector(self) -> str | None:
        return self.flags.get("--selector")


def whole_number(name: str, minimum: int = 0, maximum: int = 10**9) -> Callable[[str], int]:
    """Return a converter to whole numbers for the named flag."""

    def convert(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
            raise CommandError(f"{name} must be a whole number, got {text[:40]!r}")
        if not minimum <= int(text) <= maximum:
            raise CommandError(f"{name} must be from {minimum} to {maximum}, got {text}")
        return int(text)

    return convert


def duration_s(name: str) -> Callable[[str], float]:
    """Return a converter of durations to seconds for the named flag."""

    def convert(text: str) -> float:
        try:
            return parse_duration(text)
        except ValueError:
            raise CommandError(f"{name} must be a duration such as 5m or 30s, got {text[:40]!r}") from None

    return convert


def one_of(name: str, *values: str) -> Callable[[str], str]:
    """Return a converter for the named flag that accepts only some values."""

    def convert(text: str) -> str:
        if text not in values:
            raise CommandError(f"{name} must be one of {', '.join(values)}, got {text[:40]!r}")
        return text

    return convert


def split_verb(words: Sequence[str], flags: Iterable[VerbFlag]) -> tuple[str, list[str]]:
    """Return the verb of a command and the other words; `flags` may precede the verb.

    >>> split_verb(["-n", "hotel", "get", "pods"], [VerbFlag("--namespace", str, "-n")])
    ('get', ['-n', 'hotel', 'pods'])
    """
    spellings = _spellings(flags)
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "--":
        flag = spellings.get(words[i])
        i += 2 if flag is not None and flag.convert is not None else 1
    return (words[i] if i < len(words) else ""), [*words[:i], *words[i + 1 :]]


def read_flags(words: Sequence[str], flags: Iterable[VerbFlag]) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments among words, and the flags' values by long name.

    >>> read_flags(["pod", "-nhotel", "--tail=3"], [VerbFlag("--namespace", str, "-n"), VerbFlag("--tail", int)])
    (['pod'], {'--namespace': 'hotel', '--tail': 3})
    """
    spellings = _spellings(flags)
    arguments: list[str] = []
    values: dict[str, Any] = {}
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            return [*arguments, *remaining], values
        if not word.startswith("-") or word == "-":
            arguments.append(word)
            continue
        name, equals, value = word.partition("=")
        if not name.startswith("--") and len(name) > 2:
            short = spellings.get(name[:2])
            if short is not None and short.convert is None:
                remaining.insert(0, f"-{word[2:]}")
                word = name = name[:2]
                equals = value = ""
            else:
                name, equals, value = name[:2], "=", word[2:]
        flag = spellings.get(name)
        if flag is None:
            raise CommandError(f"kubectl's flag {word[:60]} is not supported; leave it out")
        if flag.convert is None:
            if equals and value.lower() in ("false", "0", "no"):
                values.pop(flag.name, None)
            else:
                values[flag.name] = True
        else:
            if not equals:
                if not remaining:
                    raise CommandError(f"the flag {word[:60]} needs a value")
                value = remaining.pop(0)
            values[flag.name] = flag.convert(value)
    return arguments, values


def _spellings(flags: Iterable[VerbFlag]) -> Mapping[str, VerbFlag]:
    return {spelling: flag for flag in flags for spelling in (flag.name, flag.short) if spelling}


def _needs_shell(text: str) -> ShellSyntaxError:
    return ShellSyntaxError(
        f"{text[:60]!r} needs a shell, and there is none; give one command at a time and quote special characters"
    )


def _without_redirections(words: Sequence[Token]) -> list[Token]:
    result: list[Token] = []
    for token in words:
        result.append(token)
        if tuple(result[-3:]) in _IGNORED_REDIRECTIONS:
            del result[-3:]
    return result


def _tokens(line: str) -> Iterator[Token]:
    word: str | None = None
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            raise CommandError(f"a quote is not closed in {_shorten(line)}; close it")
        position = match.end()
        kind, text = str(match.lastgroup), match[str(match.lastgroup)]
        if kind in ("plain", "double") and (substitution := _SUBSTITUTION.search(text)):
            raise _needs_shell(substitution[0])
        if kind in ("blank", "operator"):
            if word is not None:
                yield Token(word)
            if kind == "operator":
                yield Token(text, is_operator=True)
            word = None
        elif kind != "escaped" or text != "\n":
            word = (word or "") + (_unescape(text) if kind == "double" else text)
    if word is not None:
        yield Token(word)


def _unescape(text: str) -> str:
    return re.sub(r'\\(?:\n|([$`"\\]))', r"\1", text)


def _shorten(line: str) -> str:
    return repr(line if len(line) < 60 else f"{line[:57]}...")
