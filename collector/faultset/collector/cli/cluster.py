"""Options of commands that run episodes: campaign options, platform settings and the number of jobs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from faultset.collector.plans.options import Option
from faultset.collector.plans.options import campaign_options as declared_options
from faultset.core.console import DURATION, complete_names, join_names

if TYPE_CHECKING:
    from faultset.collector.plans.options import CampaignOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--context", help="Context of the kubeconfig.", show_default="current context"),
    click.option("--prometheus-url", metavar="URL", help="Prometheus of the cluster.", show_default="discovered"),
    click.option("--jaeger-url", metavar="URL", help="Jaeger's query API.", show_default="discovered"),
    click.option("--image", metavar="REPOSITORY", help="Image of the applications' pods.", show_default="faultset/app"),
)
CLUSTER_FLAGS = "--context --prometheus-url --jaeger-url --image"
"""Flags of `cluster_options`, for a group of the help screen."""


def campaign_options(*names: str, required: bool = True) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the named campaign options to a command; without names, all options.

    `required` makes the options that every campaign needs required.
    """
    declared = declared_options()

    def decorate(command: _Command) -> _Command:
        for name in reversed(names or [*declared]):
            command = _click_option(declared[name], required)(command)
        return command

    return decorate


def request_options(options: dict[str, Any]) -> CampaignOptions:
    """Remove the values of campaign options from a command's `options` and return them."""
    return cast("CampaignOptions", {name: options.pop(name) for name in declared_options() if name in options})


def _click_option(option: Option, required: bool) -> Callable[[_Command], _Command]:
    default = option.default
    if option.kind is bool:
        return click.option(f"--{option.flag}", option.name, is_flag=True, help=option.help)
    kind: Any = DURATION if option.is_length else click.Choice(option.choices) if option.choices else option.kind
    if option.takes_names:
        kind, default = str, list(default) if default else None
    # click accepts a default of None as the value of a required option
    defaults: dict[str, Any] = {} if default is None else {"default": default}
    if option.shown_default is not None:
        defaults["show_default"] = option.shown_default
    return click.option(
        f"--{option.flag}",
        option.name,
        type=kind,
        **defaults,
        required=required and option.is_required,
        metavar=option.metavar,
        multiple=option.takes_names,
        callback=join_names if option.takes_names else None,
        shell_complete=complete_names(*option.plugins) if option.plugins else None,
        help=option.help,
    )


def cluster_options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def platform_settings(**settings: Any) -> dict[str, Any]:
    """Return the settings that have a value; the platform rejects settings that it does not support."""
    return {name: value for name, value in settings.items() if value is not None}


class JobLimit(click.ParamType):
    """A number of episodes, or `auto`, which becomes None."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Return the number; fail when the value is neither a positive number nor auto."""
        if value == "auto":
            return None
        if not str(value).isdecimal() or not 0 < int(value) < 10_000:
            self.fail(f"must be a number from 1 to 9999, or auto, but is {value!r}", param, ctx)
        return int(value)


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in the yielded list instead of ending the process."""
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if not received:
            print("stopping: undoing faults and removing applications", file=sys.stderr)
        received.append(number)

    with _handle_signals(stop, signal.SIGINT, signal.SIGTERM):
        yield received


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, as Python does on SIGINT."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with _handle_signals(interrupt, signal.SIGTERM):
        yield


@contextmanager
def _handle_signals(handler: Callable[[int, Any], None], *numbers: signal.Signals) -> Iterator[None]:
    previous_handlers = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous_handler in previous_handlers.items():
            signal.signal(number, previous_handler)
