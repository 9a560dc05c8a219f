"""Options on where applications run, on what and how many at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--context", help="Context of the kubeconfig; its current one by default."),
    click.option("--prometheus-url", metavar="URL", help="Prometheus of the cluster; found in it by default."),
    click.option("--jaeger-url", metavar="URL", help="Jaeger's query API; found in the cluster by default."),
    click.option("--image", metavar="REPOSITORY", help="Where nodes find our image; faultset/app by default."),
    click.option(
        "--injector",
        type=click.Choice(["agent", "chaos-mesh"]),
        help="What disturbs pods of a cluster: our agents, by default, or the cluster's Chaos Mesh.",
    ),
)


_STORES = click.option(
    "--stores",
    metavar="redis|original|KIND,...",
    help="Servers of the application's stores: Redis for all (default), memcached and PostgreSQL themselves "
    "(original), or one of these two.",
)


def stores_option(command: _Command) -> _Command:
    """Add the choice of stores to a command."""
    return _STORES(command)


def cluster_options(command: _Command) -> _Command:
    """Add the options of a cluster to a command."""
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
