"""`faultset systems`: the methods of several evaluations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json


@command("systems", short_help="Put the evaluations of several systems into one table.")
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--task",
    type=click.Choice(["detection", "localization", "rca"]),
    default="localization",
    show_default=True,
    help="Task whose tables are shown.",
)
@click.option(
    "--protocol",
    type=click.Choice(["oracle", "detected"]),
    default="oracle",
    show_default=True,
    help="What localizers were given: the true onset (oracle) or an alarm.",
)
@json_option
def systems(
    results: tuple[Path, ...],
    task: Literal["detection", "localization", "rca"],
    protocol: Literal["oracle", "detected"],
    as_json: bool,
) -> None:
    """Show every method on every system: one column for each folder RESULTS that "evaluate" has written.

    Prints Markdown: the first metric of each headline table with its interval, the mean rank, in how many systems a
    method lies within the interval of the best, and in how many it is above the strongest control.

    \b
    Example:
      faultset systems results/sample results/petshop results/openstack
    """
    from faultset.core.errors import DataError, UsageError
    from faultset.evaluators.comparison.runs import read_run
    from faultset.evaluators.comparison.systems import systems_markdown, systems_table
    from faultset.evaluators.leaderboards.formats import to_json

    runs = {folder.resolve().name: read_run(folder) for folder in results}
    if len(runs) < len(results):
        raise UsageError("two of the folders have one name, which is the name of their column; rename one")
    given = "detected" if task == "detection" else protocol
    try:
        table = systems_table({name: run.rows for name, run in runs.items()}, task=task, protocol=given)
    except ValueError as error:
        raise DataError(f"{error}; evaluate with that task and protocol") from error
    if as_json:
        show_json(to_json(table))
        return
    click.echo(systems_markdown(table), nl=False)
