"""Options that say which cluster to use, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from faultset.core.errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--context", help="Context of the kubeconfig; its current one when left out."),
    click.option("--prometheus-url", metavar="URL", help="Prometheus of the cluster; found in it when left out."),
    click.option("--jaeger-url", metavar="URL", help="Jaeger's query API; found in the cluster when left out."),
    click.option("--image", metavar="REPOSITORY", help="Where nodes find our image; faultset/app when left out."),
)


def cluster_options(command: _Command) -> _Command:
    """Add the options of a cluster to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def cluster_settings(
    platform: str, context: str | None, prometheus_url: str | None, jaeger_url: str | None, image: str | None
) -> dict[str, str]:
    """Return the settings that were given.

    Raises
    ------
    UsageError
        They were given for a platform that has no cluster.
    """
    given = {"context": context, "prometheus_url": prometheus_url, "jaeger_url": jaeger_url, "repository": image}
    settings = {name: value for name, value in given.items() if value is not None}
    if settings and platform != "kubernetes":
        option = "--" + next(iter(settings)).replace("_", "-").replace("repository", "image")
        raise UsageError(f"{option} is for --platform kubernetes, but the platform is {platform}; leave it out")
    return settings
