"""Commands carried out on a platform, whatever becomes of them. Nothing here starts a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.collector.mitigation.kubectl.session import KubectlSession
from faultset.collector.mitigation.kubectl.verbs import kubectl, sleep
from faultset.collector.mitigation.messages import LARGEST_OUTPUT, CommandResult
from faultset.core.errors import PlatformError, UsageError
from faultset.datasets.kubectl.command_lines import split_line

_PROGRAMS: dict[str, click.Command] = {"kubectl": kubectl, "sleep": sleep}


class Kubectl:
    """Carries out commands on a platform.

    Parameters
    ----------
    session
        The platform, and what may be done on it.
    """

    def __init__(self, session: KubectlSession):
        self._session = session

    def run(self, line: str, words: Sequence[str] | None = None) -> CommandResult:
        """Carry out one command; whatever becomes of it is in the result.

        Parameters
        ----------
        line
            The command.
        words
            Its words, where they are known; a part of the line that is no longer needed is not among them.
        """
        began_ns = self._session.clock()
        resolved_before = len(self._session.resolved)
        status: Literal["done", "refused", "failed"]
        try:
            program, rest = _program_of(split_line(line) if words is None else words)
            output = program.main(rest, prog_name=program.name, standalone_mode=False, obj=self._session)
            status = "done"
        except click.ClickException as error:
            output, status = f"error: {' '.join(error.format_message().split())}", "refused"
        except UsageError as error:
            output, status = f"error: {error}", "refused"
        except PlatformError as error:
            output, status = str(error), "failed"
        took_s = round((self._session.clock() - began_ns) / 1e9, 3)
        return CommandResult(
            line=line,
            status=status,
            output=str(output or "")[-LARGEST_OUTPUT:],
            took_s=took_s,
            resolved=dict(self._session.resolved[resolved_before:]),
        )


def check_line(line: str) -> None:
    """Raise CommandError when a line is no command that can be parsed; nothing is carried out."""
    try:
        program, words = _program_of(split_line(line))
        _parse(program, words)
    except click.ClickException as error:
        raise CommandRefused(" ".join(error.format_message().split())) from None


def _parse(program: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    with program.make_context(program.name or "", list(words), parent=parent) as context:
        if isinstance(program, click.Group):
            rest = [*context._protected_args, *context.args]
            if not rest:
                raise click.UsageError(f"which command? known are {', '.join(program.commands)}")
            _, command, rest = program.resolve_command(context, rest)
            assert command is not None
            _parse(command, rest, context)


def _program_of(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    if not words or words[0] not in _PROGRAMS:
        begins = " or ".join(_PROGRAMS)
        if words and words[0] in kubectl.commands:
            raise CommandRefused(f"a command begins with {begins}; write: kubectl {' '.join(words)}")
        raise CommandRefused(f"a command begins with {begins}; found {words[0] if words else 'nothing'!r}")
    return _PROGRAMS[words[0]], list(words[1:])
