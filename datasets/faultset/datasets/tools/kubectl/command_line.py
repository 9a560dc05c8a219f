"""A command line as verb, arguments, flags and filters; nothing of it ever reaches a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

_LONGEST = 4000
_IGNORED_REDIRECTIONS = (["2", ">", "/dev/null"], ["2", ">&", "1"], ["2>", "/dev/null"], ["2>&", "1"])
_SHORT = {
    "-n": "--namespace", "-A": "--all-namespaces", "-o": "--output", "-l": "--selector", "-w": "--watch",
    "-c": "--container", "-p": "--previous", "-f": "--follow", "-h": "--help", "-v": "--verbosity",
    "-L": "--label-columns", "-R": "--recursive",
}  # fmt: skip
SWITCHES = frozenset({
    "--all-namespaces", "--show-labels", "--no-headers", "--ignore-not-found", "--previous", "--timestamps",
    "--all-containers", "--prefix", "--containers", "--watch", "--watch-only", "--follow", "--show-kind",
    "--show-managed-fields", "--help", "--recursive", "--minify", "--flatten", "--raw", "--client", "--short",
    "--namespaced", "--ignore-errors",
    "--all-pods", "--show-events", "--sum",
})  # fmt: skip
VALUED = frozenset({
    "--namespace", "--output", "--selector", "--container", "--tail", "--since", "--since-time", "--limit-bytes",
    "--sort-by", "--field-selector", "--verbosity", "--label-columns", "--context", "--cluster", "--request-timeout",
    "--chunk-size", "--for", "--types", "--max-log-requests", "--pod-running-timeout", "--api-group", "--verbs",
    "--revision",
    "--timeout",
})  # fmt: skip


class CommandError(Exception):
    """A command that cannot be understood; its text says why."""


class ShellSyntaxError(Exception):
    """A command that only a shell could run; its text says why."""


@dataclass
class KubectlCommand:
    """What is asked of kubectl."""

    verb: str
    arguments: list[str] = field(default_factory=list)
    flags: dict[str, str] = field(default_factory=dict)
    """Long name -> value; empty for a switch that is on."""
    filters: list[list[str]] = field(default_factory=list)

    def flag(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.flags.get(name, "false").lower() not in ("false", "0", "no")

    @property
    def output(self) -> str:
        """The format that `-o` asks for, without its template."""
        return self.flags.get("--output", "").partition("=")[0]

    @property
    def template(self) -> str:
        """What follows the format after an equals sign."""
        return self.flags.get("--output", "").partition("=")[2]


def parsed_command(text: str) -> KubectlCommand:
    """Return a command line in parts.

    Raises
    ------
    CommandError
        It cannot be understood.
    ShellSyntaxError
        It needs a shell, or is no kubectl.

    Examples
    --------
    >>> command = parsed_command("kubectl get pods -n hotel -o wide | grep -v Running")
    >>> command.verb, command.arguments, command.output, command.filters
    ('get', ['pods'], 'wide', [['grep', '-v', 'Running']])
    """
    words, *filters = _stages(text)
    if words and words[0] == "kubectl":
        words = words[1:]
    elif not words or words[0] not in ("get", "describe", "logs", "top", "events"):
        raise ShellSyntaxError(
            f'"{(words or ["nothing"])[0][:60]}" is not kubectl, and there is no shell; '
            "give one kubectl command, piped into grep, head, tail, wc, sort, uniq or awk where that helps"
        )
    command = KubectlCommand(verb="", filters=filters)
    positional = _read_flags(words, command.flags)
    if not positional:
        if "--help" in command.flags or not words:
            command.verb = "help"
            return command
        raise CommandError("kubectl needs a verb, for instance get, describe, logs, top or events")
    command.verb, command.arguments = positional[0], positional[1:]
    return command


def _stages(text: str) -> list[list[str]]:
    if len(text) > _LONGEST:
        raise CommandError(f"the command has {len(text)} characters, at most {_LONGEST} are read")
    if "$(" in text or "`" in text or "\x00" in text:
        raise ShellSyntaxError("substitutions need a shell, and there is none")
    lexer = shlex.shlex(text.strip(), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError as error:
        raise CommandError(f"the command cannot be read ({str(error).lower()})") from None
    for redirection in _IGNORED_REDIRECTIONS:
        tokens = _without(tokens, redirection)
    stages: list[list[str]] = [[]]
    for token in tokens:
        if token == "|":
            stages.append([])
        elif token and set(token) <= set("|&;<>"):
            raise ShellSyntaxError(f'"{token}" needs a shell, and there is none; give one command at a time')
        else:
            stages[-1].append(token)
    if len(stages) > 1 and not all(stages):
        raise CommandError("a part of the pipe is empty")
    return stages


def _without(tokens: list[str], pattern: Sequence[str]) -> list[str]:
    kept: list[str] = []
    place = 0
    while place < len(tokens):
        if tokens[place : place + len(pattern)] == list(pattern):
            place += len(pattern)
        else:
            kept.append(tokens[place])
            place += 1
    return kept


def _read_flags(words: Sequence[str], flags: dict[str, str]) -> list[str]:
    positional: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            positional += ["--", *waiting]
            break
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            name, equals, value = _short_flag(word)
        if name in SWITCHES:
            flags[name] = value if equals else "true"
        elif name in VALUED:
            if not equals:
                if not waiting:
                    raise CommandError(f"the flag {word[:60]} needs a value")
                value = waiting.pop(0)
            flags[name] = value
        else:
            raise CommandError(f"kubectl's flag {word[:60]} is not known here")
    return positional


def _short_flag(word: str) -> tuple[str, str, str]:
    """Split `-nhotel`, `-n=hotel` and `-n` alike."""
    name, value = _SHORT.get(word[:2], word[:2]), word[2:]
    if not value:
        return name, "", ""
    return name, "=", value.removeprefix("=")
