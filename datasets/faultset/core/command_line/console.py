"""The command line's plumbing: every command of every package is a `FaultsetCommand` under `faultset`.

Commands register in the entry-point group `faultset.commands`; a dotted name such as `dataset.show` puts a command
into a sub-group. A command's module is imported when the command is asked for, so it imports heavy libraries inside
its function.

Exit codes: 0 done, 2 wrong usage, 3 dataset, 4 platform, 130 interrupted. Results go to stdout, all else to stderr.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import click

from faultset.core.command_line.output import escape_unencodable
from faultset.core.errors import FaultsetError, PlatformError, UsageError, missing_extra
from faultset.core.files import is_special, refusal
from faultset.core.plugins import Plugin, plugins
from faultset.core.suggestions import suggest
from faultset.core.times import parse_duration

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_names(group: str, *words: str) -> Completion:
    """Return a `shell_complete` for an option that takes comma-separated names of plug-ins.

    Nothing is imported to complete a name.

    Parameters
    ----------
    group
        Entry-point group of the plug-ins.
    words
        What else the option takes, for instance `all`.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        given = set(before.split(","))
        names = sorted({*plugins(group), *words} - given)
        return [f"{before}{comma}{name}" for name in names if name.startswith(begun)]

    return complete


_LOGGER = logging.getLogger("faultset")


def set_verbosity(*, verbose: int = 0, quiet: bool = False) -> None:
    """Choose which log messages of faultset are shown.

    Parameters
    ----------
    verbose
        0 shows warnings, 1 what a command does step by step, 2 everything.
    quiet
        Show errors alone, and no progress.
    """
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    _LOGGER.setLevel(level)
    if logging.lastResort is not None:  # writes to standard error where nobody has set up logging
        logging.lastResort.setLevel(level)


def is_quiet() -> bool:
    """Return whether progress is not to be shown."""
    return not _LOGGER.isEnabledFor(logging.WARNING)


def verbosity_options() -> list[click.Option]:
    """Return the options `-v` and `-q` of a command; `read_verbosity` takes what they gave."""
    return [
        click.Option(["-v", "--verbose"], count=True, help="Print what is done, step by step; -vv prints everything."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print errors only: no progress and no warnings."),
    ]


def read_verbosity(context: click.Context) -> None:
    """Take the values of `-v` and `-q` out of a command's parameters, and act on them.

    Raises
    ------
    click.UsageError
        Both were given.
    """
    verbose, quiet = context.params.pop("verbose", 0), context.params.pop("quiet", False)
    if verbose and quiet:
        raise click.UsageError("give either -v or -q", context)
    set_verbosity(verbose=verbose, quiet=quiet)


ENTRY_POINTS = "faultset.commands"
INTERRUPTED = 130
T = TypeVar("T")
_GROUP_HELP = {
    "agents": "Import and score recorded runs of LLM agents; serve recorded episodes to agents.",
    "campaign": "Look at the campaigns of a dataset.",
    "list": "List what can be chosen.",
    "dataset": "Look at, check, convert and compare datasets.",
}
_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _invoked(invoke: Callable[[click.Context], Any], context: click.Context) -> Any:
    return _with_exit_codes(lambda: invoke(context))


def _with_exit_codes(run: Callable[[], T]) -> T:
    """Run a part of a command; our errors, what the system refuses and an interrupt are one sentence and a code."""
    try:
        return run()
    except FaultsetError as error:
        _show_error(error)
        code = error.exit_code
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        _show_error(missing)
        code = missing.exit_code
    except OSError as error:
        refused = refusal(error)
        if refused is None:
            raise
        _show_error(refused)
        code = refused.exit_code
    except MemoryError:
        short = PlatformError(
            "this machine or a limit (ulimit -v) gives too little memory; end other programs, raise the limit, or let "
            "less run at once"
        )
        _show_error(short)
        code = short.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted", err=True)
        code = INTERRUPTED
    raise click.exceptions.Exit(code)


def _refuse_other_encodings(values: Iterable[Any]) -> None:
    """Raise UsageError for a value that cannot be written as UTF-8, such as a file's name in another encoding."""
    for value in values:
        try:
            if isinstance(value, str | Path):
                str(value).encode()
        except UnicodeEncodeError:
            text = str(value).encode("utf-8", "backslashreplace").decode()
            raise UsageError(f'"{text}" is not UTF-8 text; rename the file or folder, then give its new name') from None
        if isinstance(value, tuple):
            _refuse_other_encodings(value)


def _show_error(error: FaultsetError) -> None:
    # Where standard error takes nothing either, the exit code alone says it.
    with contextlib.suppress(OSError):
        click.echo(f"Error: {error}", err=True)


def _accept_any_text() -> None:
    """Write characters that the terminal's encoding lacks as their codes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class FaultsetCommand(click.Command):
    """A command whose errors are one sentence and an exit code."""

    def __init__(self, *args: Any, context_settings: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*args, context_settings=_CONTEXT | (context_settings or {}), **options)
        self.params += verbosity_options()

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments, where help may already be shown."""
        return _with_exit_codes(lambda: super(FaultsetCommand, self).make_context(*args, **extra))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn a FaultsetError and an interrupt into their exit codes."""
        _accept_any_text()
        read_verbosity(ctx)
        escape_unencodable()
        return _invoked(self._invoke_checked, ctx)

    def _invoke_checked(self, ctx: click.Context) -> Any:
        _refuse_other_encodings(ctx.params.values())
        return super().invoke(ctx)


class FaultsetGroup(click.Group):
    """A group of commands, some of them registered through entry points and loaded when needed."""

    command_class = FaultsetCommand

    def __init__(
        self,
        *args: Any,
        prefix: str | None = None,
        context_settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, context_settings=_CONTEXT | (context_settings or {}), **options)
        self._prefix = prefix

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments, where help or the version may already be shown."""
        return _with_exit_codes(lambda: super(FaultsetGroup, self).make_context(*args, **extra))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self._registered()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module."""
        found = super().get_command(ctx, cmd_name)
        if found is not None or cmd_name not in self._registered():
            return found
        point = self._registered()[cmd_name]
        if point is None:
            help_text = _GROUP_HELP.get(cmd_name, f"Commands about {cmd_name}.")
            return FaultsetGroup(cmd_name, prefix=f"{self._prefix}{cmd_name}.", help=help_text)
        return point.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; suggest others when there is none."""
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx) and not ctx.resilient_parsing:
            ctx.fail(f'no such command "{name}"; {suggest(name, self.list_commands(ctx))}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; one that cannot be imported does not take the help away from the others."""
        rows = []
        for name in self.list_commands(ctx):
            try:
                command = self.get_command(ctx, name)
                text = command.get_short_help_str(limit=90) if command is not None else ""
            except FaultsetError:
                text = "(cannot be loaded)"
            rows.append((name, text))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        return _invoked(super().invoke, ctx)

    def _registered(self) -> dict[str, Plugin | None]:
        """Return the registered commands below this group; None stands for a sub-group."""
        if self._prefix is None:
            return {}
        found: dict[str, Plugin | None] = {}
        for full, point in plugins(ENTRY_POINTS).items():
            if full.startswith(self._prefix):
                name, dot, _ = full.removeprefix(self._prefix).partition(".")
                found[name] = None if dot else point
        return found


def command(name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], FaultsetCommand]:
    """Make a function a command of ours, like `click.command`."""
    return click.command(name, cls=FaultsetCommand, **options)


@click.group(cls=FaultsetGroup, prefix="", name="faultset")
@click.version_option(version("faultset"), prog_name="faultset")
def root() -> None:
    """Labelled telemetry of failing microservices, and an honest score for every diagnosis method on it.

    \b
    Example:
      collect --faults all --apps hotel --profile quick --out data/
      evaluate data/
    """


def comma_separated(*texts: str | None) -> tuple[str, ...]:
    """Return the names that options give, joined by commas or one by one, each once.

    >>> comma_separated("geo, rate", None, "geo")
    ('geo', 'rate')
    """
    return tuple(dict.fromkeys(name.strip() for text in texts for name in (text or "").split(",") if name.strip()))


class Duration(click.ParamType):
    """A length of time with its unit: `45s`, `2m`, `1m30s`, `500ms`; the value is seconds as a float."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        try:
            seconds = parse_duration(text)
        except ValueError:
            self.fail(
                f'"{value}" is not a duration; write a number and ms, s, m or h, for instance 45s or 2m', param, ctx
            )
        if not math.isfinite(seconds):
            self.fail(f'"{text[:20]}..." is too long for a duration; write a shorter one, for instance 2m', param, ctx)
        return seconds


DURATION = Duration()
"""Parameter type of every option that is a length of time."""


class OutputFile(click.Path):
    """A file that a command is to write, checked before the command does anything; links are followed."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return where the file is written.

        Raises
        ------
        click.BadParameter
            A folder, a device or a pipe is there, or the folder around it cannot be written.
        """
        named = Path(os.fsdecode(super().convert(value, param, ctx)))
        path = Path(os.path.realpath(named)) if os.path.islink(named) else named
        if is_special(path) or os.path.islink(path):
            self.fail(f"{named} is no regular file; name another", param, ctx)
        if not (os.path.isdir(path.parent) and os.access(path.parent, os.W_OK | os.X_OK)):
            self.fail(f"{path} cannot be written: {path.parent} is no folder that this user may write to", param, ctx)
        return path


OUTPUT_FILE = OutputFile()
