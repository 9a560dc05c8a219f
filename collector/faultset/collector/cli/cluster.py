"""Options of commands that run episodes: what campaigns declare, settings of a platform, and how many at a time."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from faultset.collector.plans.options import NamedOption
from faultset.collector.plans.options import campaign_options as declared_options
from faultset.core.command_line.console import DURATION, comma_separated, complete_names

if TYPE_CHECKING:
    from faultset.collector.plans.options import CampaignOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--context", help="Context of the kubeconfig; its current one by default."),
    click.option("--prometheus-url", metavar="URL", help="Prometheus of the cluster; found in it by default."),
    click.option("--jaeger-url", metavar="URL", help="Jaeger's query API; found in the cluster by default."),
    click.option("--image", metavar="REPOSITORY", help="Where nodes find our image; faultset/app by default."),
)


def campaign_options(*names: str, required: bool = True) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options of campaigns to a command, all of them when none is named.

    Parameters
    ----------
    required
        Whether the command needs the options that every campaign needs.
    """
    declared = declared_options()

    def decorate(command: _Command) -> _Command:
        for name in reversed(names or [*declared]):
            command = _click_option(declared[name], required)(command)
        return command

    return decorate


def request_options(options: dict[str, Any]) -> CampaignOptions:
    """Remove a command's values of campaign options from `options` and return them."""
    return cast("CampaignOptions", {name: options.pop(name) for name in declared_options() if name in options})


def _click_option(named: NamedOption, required: bool) -> Callable[[_Command], _Command]:
    option, default = named.option, named.option.default
    if named.kind is bool:
        return click.option(f"--{named.flag}", named.name, is_flag=True, help=option.help)
    kind: Any = DURATION if named.is_length else click.Choice(option.choices) if option.choices else named.kind
    if named.takes_names:
        kind, default = NameList(), ",".join(default) if default else None
    # for click a default of None is a value that satisfies a required option
    defaults: dict[str, Any] = {} if default is None else {"default": default}
    return click.option(
        f"--{named.flag}",
        named.name,
        type=kind,
        **defaults,
        required=required and named.is_required,
        show_default=option.shown_default,
        metavar=option.metavar,
        multiple=option.is_repeatable,
        callback=_join_names if named.takes_names else None,
        shell_complete=complete_names(*option.plugins) if option.plugins else None,
        help=option.help,
    )


class NameList(click.ParamType):
    """Names that are separated by commas; the value is a tuple."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names, each once."""
        return comma_separated(value) if isinstance(value, str) else tuple(value)


def _join_names(context: click.Context, parameter: click.Parameter, value: Any) -> tuple[str, ...]:
    """Return all names of an option that was given once or several times; none when it was left out."""
    return tuple(name for names in value for name in names) if parameter.multiple else value or ()


def cluster_options(command: _Command) -> _Command:
    """Add the settings of a cluster to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def platform_settings(**given: Any) -> dict[str, Any]:
    """Return the settings of a platform that were given; whether it has them is for the platform to say."""
    return {name: value for name, value in given.items() if value is not None}


class JobLimit(click.ParamType):
    """A number of episodes, or `auto`, which becomes None."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Return the number; fail when the value is neither a positive number nor auto."""
        if value == "auto":
            return None
        if not str(value).isdecimal() or not 0 < int(value) < 10_000:
            self.fail(f"a number of episodes from 1 to 9999, or auto, is needed; found {value!r}", param, ctx)
        return int(value)


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Yield a list that holds the signals to stop that were received, instead of being ended by them."""
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if not received:
            print("stopping: undoing what was injected and removing what was deployed", file=sys.stderr)
        received.append(number)

    with _handled(stop, signal.SIGINT, signal.SIGTERM):
        yield received


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM as for SIGINT."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[[int, Any], None], *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
