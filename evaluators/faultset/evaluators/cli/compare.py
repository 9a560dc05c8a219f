"""`faultset compare` and `faultset systems`: compare results."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from faultset.core.console import command, json_option
from faultset.core.output import show_json

if TYPE_CHECKING:
    from rich.console import Console


@command("systems", short_help="Show the evaluations of several systems in one table.")
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--task",
    type=click.Choice(["detection", "localization", "rca"]),
    default="localization",
    show_default=True,
    help="Task to show.",
)
@click.option(
    "--protocol",
    type=click.Choice(["oracle", "detected"]),
    default="oracle",
    show_default=True,
    help="Input of localizers: the true onset (oracle) or a detector's alarm (detected).",
)
@json_option
def systems(
    results: tuple[Path, ...],
    task: Literal["detection", "localization", "rca"],
    protocol: Literal["oracle", "detected"],
    as_json: bool,
) -> None:
    """Show every method on every system, with one column per folder RESULTS written by "evaluate".

    Prints Markdown: the first metric of each headline table with its interval, the mean rank, the number of systems in
    which a method is within the interval of the best, and the number in which it beats the strongest control.

    \b
    Example:
      faultset systems results/sample results/petshop results/openstack
    """
    from faultset.core.errors import DataError, UsageError
    from faultset.evaluators.comparison.runs import read_run
    from faultset.evaluators.comparison.systems import compare_systems, format_systems
    from faultset.evaluators.leaderboards.formats import to_json

    runs = {folder.resolve().name: read_run(folder) for folder in results}
    if len(runs) < len(results):
        raise UsageError("two folders have the same name, but each column needs its own; rename one")
    table_protocol = "detected" if task == "detection" else protocol
    try:
        table = compare_systems({name: run.rows for name, run in runs.items()}, task=task, protocol=table_protocol)
    except ValueError as error:
        raise DataError(f"{error}; evaluate with that task and protocol") from error
    if as_json:
        show_json(to_json(table))
        return
    click.echo(format_systems(table), nl=False)


PIPED_COLUMNS = 120


def text_console() -> Console:
    """Return a console for stdout."""
    from rich.console import Console

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if has_width else PIPED_COLUMNS)


def wrap(text: str) -> str:
    """Break a long line between words."""
    columns = shutil.get_terminal_size((PIPED_COLUMNS, 24)).columns
    return textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)


CONDITION_MET = 1
"""Exit code when a condition of `--fail-on` holds."""


@command("compare", short_help="Compare two evaluations, method by method on the same episodes.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the comparison.  [default: NEW]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the intervals.")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="CONDITION",
    help='Exit with code 1 if this holds: "METRIC drops|rises [by X] [for METHOD]". Repeatable.',
)
@click.option(
    "--significance",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="With --fail-on, count only differences with a corrected p below P.  [default: all]",
)
@json_option
def compare(
    old: Path,
    new: Path,
    out: Path | None,
    seed: int,
    fail_on: tuple[str, ...],
    significance: float | None,
    as_json: bool,
) -> None:
    """Compare two folders of results that `evaluate` wrote, method by method on the same episodes.

    Writes comparison.html, comparison.md and comparison.json.

    \b
    Example:
      faultset compare results-before/ results/data/
      faultset compare results-before/ results/data/ --fail-on "ac@1 drops by 0.05"
      faultset compare results-before/ results/data/ --json
    """
    from faultset.evaluators.comparison import conditions, formats
    from faultset.evaluators.comparison.pairing import compare as compare_results
    from faultset.evaluators.leaderboards.formats import to_json

    parsed = [conditions.Condition.parse(text) for text in fail_on]
    comparison = compare_results(old, new, seed=seed)
    violations = conditions.find_violations(comparison, parsed, significance=significance)
    folder = formats.write(comparison, Path(comparison.new.folder) if out is None else out)
    if as_json:
        show_json(to_json(comparison))
    else:
        from faultset.evaluators.comparison.formats import show_comparison as show

        show(comparison, text_console())
        click.echo(f"\nComparison: {folder / 'comparison.html'}, comparison.md, comparison.json")
    for sentence in violations:
        click.echo(f"Condition met: {sentence}", err=True)
    if violations:
        click.get_current_context().exit(CONDITION_MET)
