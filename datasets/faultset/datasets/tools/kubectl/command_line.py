"""A command line as verb, arguments, flags and filters; nothing of it ever reaches a shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from faultset.datasets.kubectl.command_lines import Token, needs_shell, tokens
from faultset.datasets.kubectl.errors import CommandError, ShellSyntaxError

_IGNORED_REDIRECTIONS = (
    (Token("2"), Token(">", True), Token("/dev/null")),
    (Token("2"), Token(">&", True), Token("1")),
)
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
    words, *filters = pipeline(text)
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


def pipeline(text: str) -> list[list[str]]:
    """Return the words of a command and of each filter behind a pipe.

    Raises
    ------
    CommandError
        A part is empty, or a quote is not closed.
    ShellSyntaxError
        The line needs a shell for more than pipes.

    Examples
    --------
    >>> pipeline("kubectl get pods 2>&1 | wc -l")
    [['kubectl', 'get', 'pods'], ['wc', '-l']]
    """
    stages: list[list[str]] = [[]]
    for word, is_operator in _without_redirections(tokens(text)):
        if not is_operator:
            stages[-1].append(word)
        elif word == "|":
            stages.append([])
        else:
            raise needs_shell(word)
    if len(stages) > 1 and not all(stages):
        raise CommandError("a part of the pipe is empty")
    return stages


def _without_redirections(given: Sequence[Token]) -> list[Token]:
    kept: list[Token] = []
    for token in given:
        kept.append(token)
        if tuple(kept[-3:]) in _IGNORED_REDIRECTIONS:
            del kept[-3:]
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
