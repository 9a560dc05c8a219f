"""Names of plug-ins for the shell's completion of an option."""

from __future__ import annotations

from collections.abc import Callable

import click

from faultset.core.plugins import plugins

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
