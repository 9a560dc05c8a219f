"""Commands, their help screens and option types; every command of every package is a `FaultsetCommand`.

Commands register in the entry-point group `faultset.commands`; a dotted name such as `dataset.show` puts a command in a
sub-group. A module is imported only when its command or a help screen needs it; therefore heavy libraries are imported
inside functions.

An option that takes a list has a plural name and comma-separated values, and may be repeated (`--apps hotel,social`);
an option that takes one value has a singular name (`--app hotel`).

Exit codes: 0 success, 2 usage, 3 dataset, 4 platform, 130 interrupted. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from faultset.core.errors import FaultsetError, PlatformError, UsageError, missing_extra, suggest
from faultset.core.files import is_special, translate_system_error
from faultset.core.output import escape_unencodable, set_verbosity
from faultset.core.plugins import Plugin, plugins
from faultset.core.times import parse_duration

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_names(group: str, *words: str) -> Completion:
    """Return a `shell_complete` for an option that takes comma-separated names of plug-ins.

    Parameters
    ----------
    group
        Entry-point group of the plug-ins, which are not imported.
    words
        Other values of the option, for instance `all`.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        names = sorted({*plugins(group), *words} - set(before.split(",")))
        return [f"{before}{comma}{name}" for name in names if name.startswith(prefix)]

    return complete


def read_verbosity(context: click.Context) -> None:
    """Remove the values of `-v` and `-q` from a command's parameters and apply them.

    Raises
    ------
    click.UsageError
        Both options were used.
    """
    verbose, quiet = context.params.pop("verbose", 0), context.params.pop("quiet", False)
    if verbose and quiet:
        raise click.UsageError("-v and -q are mutually exclusive; choose one", context)
    set_verbosity(verbose=verbose, quiet=quiet)


ENTRY_POINTS = "faultset.commands"
INTERRUPTED = 130
T = TypeVar("T")
_GROUP_HELP = {
    "agents": "Import and score recorded runs of LLM agents; serve recorded episodes to agents.",
    "campaign": "Show the campaigns of a dataset.",
    "list": "List faults, applications, sources, baselines and agents.",
    "dataset": "Show, check, convert and compare datasets.",
}
_CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "show_default": True,
}
_HELP_ALL = f"{__name__}.help_all"


def _run_with_exit_codes(run: Callable[[], T]) -> T:
    """Call `run`; print errors for users, system errors and interrupts on one line, and exit with a code."""
    try:
        return run()
    except (KeyboardInterrupt, click.Abort):
        message, code = "Interrupted", INTERRUPTED
    except (FaultsetError, ModuleNotFoundError, OSError, MemoryError) as problem:
        error = _explain_error(problem)
        if error is None:
            raise
        message, code = f"Error: {error}", error.exit_code
    # If stderr cannot be written either, only the exit code reports the error.
    with contextlib.suppress(OSError):
        click.echo(message, err=True)
    for stream in (sys.stdout, sys.stderr):
        _drop_unwritable(stream)
    raise click.exceptions.Exit(code)


def _drop_unwritable(stream: TextIO | None) -> None:
    """Discard what a stream cannot write; else the interpreter fails at its end, with an exit code of its own."""
    if stream is None:  # it was closed when the program started
        return
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _explain_error(problem: Exception) -> FaultsetError | None:
    """Return the error to show to the user; None for a bug."""
    if isinstance(problem, FaultsetError):
        return problem
    if isinstance(problem, ModuleNotFoundError):
        return missing_extra(problem)
    if isinstance(problem, OSError):
        return translate_system_error(problem)
    return PlatformError(
        "the memory of this machine or its limit (ulimit -v) is exhausted; end other programs, raise the limit, "
        "or run less in parallel"
    )


def _refuse_other_encodings(values: Iterable[Any]) -> None:
    """Raise UsageError for a value that is not UTF-8, such as a file name in a different encoding."""
    for value in values:
        try:
            if isinstance(value, str | Path):
                str(value).encode()
        except UnicodeEncodeError:
            text = str(value).encode("utf-8", "backslashreplace").decode()
            raise UsageError(f'"{text}" must be UTF-8 text; rename the file or folder and use its new name') from None
        if isinstance(value, tuple):
            _refuse_other_encodings(value)


class FaultsetCommand(click.Command):
    """A command that groups its options in the help, and reports errors with one line and an exit code.

    Parameters
    ----------
    groups
        Heading -> flags of its options, separated by spaces. All other options follow under "General".
    more
        Groups whose options `--help` only lists and `--help-all` describes; "General" is then one of them.
    """

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
        context_settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, context_settings=_CONTEXT | (context_settings or {}), **options)
        self._groups, self._more = groups or {}, more or {}
        self.params += [
            click.Option(["-v", "--verbose"], count=True, show_default=False, help="Show each step; -vv shows more."),
            click.Option(["-q", "--quiet"], is_flag=True, help="Show only errors, no progress and no warnings."),
        ]
        if self._more:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all_options,
                    help="Show all options and exit.",
                )
            )

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the arguments; `--help` is shown here."""
        return _run_with_exit_codes(lambda: super(FaultsetCommand, self).make_context(*args, **extra))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn errors and interrupts into exit codes."""
        escape_unencodable()
        read_verbosity(ctx)
        return _run_with_exit_codes(lambda: self._invoke_checked(ctx))

    def _invoke_checked(self, ctx: click.Context) -> Any:
        _refuse_other_encodings(ctx.params.values())
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        options = {
            flag: option for option in self.get_params(ctx) if isinstance(option, click.Option) for flag in option.opts
        }
        sections = {heading: [options[flag] for flag in flags.split()] for heading, flags in self._groups.items()}
        more = {heading: [options[flag] for flag in flags.split()] for heading, flags in self._more.items()}
        grouped = {id(option) for group in (*sections.values(), *more.values()) for option in group}
        general = {id(option): option for option in options.values() if id(option) not in grouped}
        more["General" if self._groups else "Options"] = list(general.values())
        is_short = bool(self._more) and not ctx.meta.get(_HELP_ALL)
        if not is_short:
            for heading, group in more.items():
                sections[heading] = [*sections.get(heading, ()), *group]
        for heading, group in sections.items():
            records = [record for option in group if (record := option.get_help_record(ctx)) is not None]
            with formatter.section(heading):
                formatter.write_dl(records)
        if is_short:
            with formatter.section("More options, described by --help-all"):
                rows = [(heading, ", ".join(option.opts[-1] for option in group)) for heading, group in more.items()]
                formatter.write_dl(rows)


def _show_all_options(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[_HELP_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


class FaultsetGroup(click.Group):
    """A group of commands that are registered through entry points and imported when needed."""

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
        """Parse the arguments; `--help` and `--version` are shown here."""
        return _run_with_exit_codes(lambda: super(FaultsetGroup, self).make_context(*args, **extra))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self._list_registered()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        command = super().get_command(ctx, cmd_name)
        if command is not None or cmd_name not in self._list_registered():
            return command
        plugin = self._list_registered()[cmd_name]
        if plugin is None:
            help_text = _GROUP_HELP.get(cmd_name, f"Commands about {cmd_name}.")
            return FaultsetGroup(cmd_name, prefix=f"{self._prefix}{cmd_name}.", help=help_text)
        return plugin.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; suggest similar names if there is none."""
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx) and not ctx.resilient_parsing:
            ctx.fail(f'no such command "{name}"; {suggest(name, self.list_commands(ctx))}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; one that cannot be imported is marked."""
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
        """Run the command."""
        return _run_with_exit_codes(lambda: super(FaultsetGroup, self).invoke(ctx))

    def _list_registered(self) -> dict[str, Plugin | None]:
        """Return the registered commands of this group by name; None marks a sub-group."""
        if self._prefix is None:
            return {}
        by_name: dict[str, Plugin | None] = {}
        for full, plugin in plugins(ENTRY_POINTS).items():
            if full.startswith(self._prefix):
                name, dot, _ = full.removeprefix(self._prefix).partition(".")
                by_name[name] = None if dot else plugin
        return by_name


def command(name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], FaultsetCommand]:
    """Turn a function into a `FaultsetCommand`, like `click.command`."""
    return click.command(name, cls=FaultsetCommand, **options)


@click.group(cls=FaultsetGroup, prefix="", name="faultset")
@click.version_option(version("faultset"), prog_name="faultset")
def root() -> None:
    """Collect labelled telemetry of failing microservices, and score diagnosis methods on it.

    \b
    Example:
      collect --faults all --apps hotel --profile quick --out data/
      evaluate data/
    """


def comma_separated(*texts: str | None) -> tuple[str, ...]:
    """Return the distinct names in comma-separated texts.

    >>> comma_separated("geo, rate", None, "geo")
    ('geo', 'rate')
    """
    return tuple(dict.fromkeys(name.strip() for text in texts for name in (text or "").split(",") if name.strip()))


def join_names(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the distinct names of a repeatable option; used as its callback."""
    return comma_separated(*values)


def list_option(flag: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for an option whose value is a tuple of names."""
    return click.option(flag, **{"multiple": True, "metavar": "NAMES", "callback": join_names, **options})


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
"""The option `--json`; its parameter is called `as_json`."""


class Duration(click.ParamType):
    """A duration with its unit, such as `45s`, `2m`, `1m30s` or `500ms`, converted to seconds."""

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
"""Parameter type of durations."""


class OutputFile(click.Path):
    """A file to write, checked before the command starts; links are followed."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of the file.

        Raises
        ------
        click.BadParameter
            The path is a folder, a device or a pipe, or its folder is not writable.
        """
        original = Path(os.fsdecode(super().convert(value, param, ctx)))
        path = Path(os.path.realpath(original)) if os.path.islink(original) else original
        if is_special(path) or os.path.islink(path):
            self.fail(f"{original} must be a regular file or a new one; choose another name", param, ctx)
        if not (os.path.isdir(path.parent) and os.access(path.parent, os.W_OK | os.X_OK)):
            self.fail(f"{path} cannot be written: {path.parent} is not a writable folder; choose another", param, ctx)
        return path


OUTPUT_FILE = OutputFile()
