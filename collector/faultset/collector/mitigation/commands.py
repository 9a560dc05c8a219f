"""kubectl commands on a live platform; this module declares the verbs that change objects.

Verbs that only read are in `faultset.datasets.kubectl`.

No command runs in a shell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

from faultset.collector.mitigation import writing
from faultset.collector.mitigation.live_state import CommandRefused, KubectlSession
from faultset.collector.mitigation.messages import MAX_OUTPUT_CHARACTERS, CommandResult, CommandStatus
from faultset.collector.platforms.objects import ObjectNotFound
from faultset.collector.runtime.stores.driver import AdminAction
from faultset.core.errors import PlatformError, UsageError
from faultset.datasets.kubectl.commands import (
    CommandError,
    KubectlCommand,
    VerbFlag,
    duration_s,
    one_of,
    read_flags,
    split_line,
    split_verb,
    whole_number,
)
from faultset.datasets.kubectl.kinds import full_name, references
from faultset.datasets.kubectl.printing import NegativeAnswer, ToolAnswer, answer_invalid, answer_ok, answer_refused
from faultset.datasets.kubectl.reader import READ_FLAGS, READ_VERBS, answer, logged_pods, read_command

LONGEST_WAIT_S = 300.0
COMMAND_IN_PODS = ("faultset-store", "admin")
"""Start of the commands that `kubectl exec` may run, followed by a store and an action on its accounts or data."""
_COMMAND_GROUPS = ("rollout", "set")
_STATUS_BY_ANSWER: dict[str, CommandStatus] = {"ok": "done", "empty": "done", "absent": "failed"}


class Verb(NamedTuple):
    """A verb that changes objects or waits."""

    run: Callable[[KubectlSession, KubectlCommand], str]
    flags: tuple[VerbFlag, ...] = ()
    """Its flags in addition to `--namespace`."""
    required: tuple[str, ...] = ()
    """Required flags."""
    max_arguments: int | None = None
    """Maximum number of arguments; None for any."""


class Kubectl:
    """Executes commands on a platform with the permissions of a session."""

    def __init__(self, session: KubectlSession):
        self._session = session

    def run(self, line: str) -> CommandResult:
        """Execute one command; the result includes refusals and failures."""
        return self.run_words(line, None)[0]

    def run_words(
        self, line: str, words: Sequence[str] | None, *, has_filters: bool = False
    ) -> tuple[CommandResult, ToolAnswer]:
        """Execute one command; return its result and the answer for the caller.

        `words` are the command's words without trailing filters; None to split the line.
        """
        state = self._session.state
        start_ns, resolved_before = state.now_ns, len(state.resolved)
        status, reply = self._execute(line, words, has_filters)
        result = CommandResult(
            line=line,
            status=status,
            output=reply.text[-MAX_OUTPUT_CHARACTERS:],
            took_s=round((state.now_ns - start_ns) / 1e9, 3),
            resolved=dict(state.resolved[resolved_before:]),
        )
        return result, reply

    def _execute(self, line: str, words: Sequence[str] | None, has_filters: bool) -> tuple[CommandStatus, ToolAnswer]:
        try:
            program, command = _parse(split_line(line) if words is None else words)
            if isinstance(program, Verb):
                self._session.state.check_namespace(command.flags.get("--namespace"))
                return "done", answer_ok(program.run(self._session, command))
            command.has_filters = has_filters
            reply = answer(self._session.state, command)
        except NegativeAnswer as negative:
            reply = negative.answer
        except CommandRefused as error:
            return "refused", answer_refused(str(error))
        except UsageError as error:
            return "refused", answer_invalid(f"{error}.")
        except ObjectNotFound as error:
            return "failed", ToolAnswer(status="absent", text=str(error))
        except PlatformError as error:
            return "failed", ToolAnswer(status="invalid", text=str(error))
        return _STATUS_BY_ANSWER.get(reply.status, "refused"), reply


def check_line(line: str) -> None:
    """Raise CommandError if a line is not a valid command; nothing is executed."""
    _parse(split_line(line))


def _parse(words: Sequence[str]) -> tuple[Verb | None, KubectlCommand]:
    """Return the command, and its verb if it changes objects or waits (otherwise None)."""
    program, *rest = words or [""]
    verb = program
    if program == "kubectl":
        verb, rest = split_verb(rest, READ_FLAGS)
        if verb in READ_VERBS:
            return None, read_command(verb, rest)
        if verb in _COMMAND_GROUPS:
            action, rest = split_verb(rest, READ_FLAGS)
            verb = f"{verb} {action}"
    elif program != "sleep":
        rule = "a command must start with kubectl or sleep"
        if program in (*READ_VERBS, *_VERBS) or program in _COMMAND_GROUPS:
            raise CommandRefused(f"{rule}; write: kubectl {' '.join(words)}")
        raise CommandRefused(f"{rule}, got {program or 'nothing'!r}")
    if verb not in _VERBS:
        verbs = ", ".join(name for name in [*READ_VERBS, *_VERBS] if name != "sleep")
        if not verb:
            raise CommandError(f"a command must have a verb, one of {verbs}")
        raise CommandError(f'unknown verb "{verb[:40].strip()}", expected one of {verbs}')
    declaration = _VERBS[verb]
    arguments, flags = read_flags(rest, (_NAMESPACE, *declaration.flags))
    missing = [name for name in declaration.required if name not in flags]
    if missing:
        raise CommandError(f"{verb} needs the flag {missing[0]}")
    if declaration.max_arguments is not None and len(arguments) > declaration.max_arguments:
        raise CommandError(f"{verb} takes {declaration.max_arguments} arguments, got {' '.join(arguments)[:80]}")
    return declaration, KubectlCommand(verb, arguments, flags)


def _exec(session: KubectlSession, command: KubectlCommand) -> str:
    word, *argv = command.arguments or [""]
    actions = get_args(AdminAction)
    # other administrative actions write files, and local pods are processes of this machine
    if tuple(argv[:2]) != COMMAND_IN_PODS or argv[3:4] not in [[action] for action in actions]:
        raise CommandRefused(
            f"exec may only run {' '.join(COMMAND_IN_PODS)} STORE ACTION in pods, with one of the actions "
            f"{', '.join(actions)}, got {' '.join(argv)!r}"
        )
    pods, _ = logged_pods(session.state, KubectlCommand("exec", [word]))
    return session.platform.exec(pods[0], argv).rstrip()


def _wait(session: KubectlSession, command: KubectlCommand) -> str:
    writing.wait_for_rollout(session, command)
    targets = references(command.arguments, session.state.kind_of, ())
    return "\n".join(f"{full_name(kind, name or '')} condition met" for kind, name in targets)


def _sleep(session: KubectlSession, command: KubectlCommand) -> str:
    try:
        seconds = float(command.arguments[0]) if command.arguments else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise CommandRefused(f"sleep must be given 0 to {LONGEST_WAIT_S:g} seconds, got {command.arguments}")
    session.sleep(seconds)
    return ""


def _parse_condition(text: str) -> str:
    if text.lower() not in ("condition=available", "condition=ready"):
        raise CommandRefused(f"--for must be condition=available or condition=ready, got {text[:60]}")
    return text


def _parse_timeout(text: str) -> float:
    return min(duration_s("--timeout")(text), LONGEST_WAIT_S)


_NAMESPACE = VerbFlag("--namespace", str, "-n")
_SELECTOR = VerbFlag("--selector", str, "-l")
_FILE = VerbFlag("--filename", str, "-f")
_VERBS = {
    "patch": Verb(
        writing.patch,
        (VerbFlag("--patch", str, "-p"), VerbFlag("--type", one_of("--type", "strategic", "merge", "json"))),
        ("--patch",),
    ),
    "apply": Verb(writing.apply, (_FILE,), ("--filename",), max_arguments=0),
    "replace": Verb(writing.replace, (_FILE,), ("--filename",), max_arguments=0),
    "delete": Verb(
        writing.delete,
        (
            _SELECTOR,
            VerbFlag("--grace-period", whole_number("--grace-period")),
            VerbFlag("--force"),
            VerbFlag("--now"),
            VerbFlag("--all"),
        ),
    ),
    "scale": Verb(
        writing.scale, (VerbFlag("--replicas", whole_number("--replicas", 0, writing.MAX_REPLICAS)),), ("--replicas",)
    ),
    "label": Verb(writing.set_metadata),
    "annotate": Verb(writing.set_metadata),
    "exec": Verb(
        _exec, (VerbFlag("--container", str, "-c"), VerbFlag("--stdin", short="-i"), VerbFlag("--tty", short="-t"))
    ),
    "wait": Verb(_wait, (VerbFlag("--for", _parse_condition), VerbFlag("--timeout", _parse_timeout)), ("--for",)),
    "rollout restart": Verb(writing.restart),
    "rollout undo": Verb(writing.undo, (VerbFlag("--to-revision", whole_number("--to-revision")),)),
    "rollout history": Verb(writing.list_revisions),
    "rollout status": Verb(writing.wait_for_rollout, (VerbFlag("--timeout", _parse_timeout),)),
    "set image": Verb(writing.set_image),
    "set env": Verb(writing.set_environment),
    "set resources": Verb(
        writing.set_resources,
        (VerbFlag("--limits", str), VerbFlag("--requests", str), VerbFlag("--containers", str, "-c")),
    ),
    "set selector": Verb(writing.set_selector),
    "sleep": Verb(_sleep, max_arguments=1),
}
