"""`faultset compare`: two evaluations side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json
from faultset.evaluators.cli.text_width import text_console

CONDITION_MET = 1
"""Exit code when a condition of `--fail-on` holds."""


def gate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--fail-on` and `--significance` to a command."""
    fail_on = click.option(
        "--fail-on",
        multiple=True,
        metavar="CONDITION",
        help='Exit with code 1 if it holds: "METRIC drops|rises [by X] [for METHOD]". Repeatable.',
    )
    significance = click.option(
        "--significance",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="P",
        help="Only differences with a corrected p below P meet a condition.  [default: all]",
    )
    return fail_on(significance(function))


@command("compare", short_help="Compare two evaluations, method by method on the same episodes.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the comparison.  [default: NEW]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the intervals.")
@gate_options
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
    compare_folders(old, new, out, seed=seed, fail_on=fail_on, significance=significance, as_json=as_json)


def compare_folders(
    old: Path,
    new: Path,
    out: Path | None,
    *,
    seed: int,
    fail_on: Sequence[str] = (),
    significance: float | None = None,
    as_json: bool,
) -> None:
    """Compare two folders, write the comparison and print it; exit with 1 when a condition holds."""
    from faultset.evaluators.comparison import conditions, files
    from faultset.evaluators.comparison.pairing import compare as compared
    from faultset.evaluators.leaderboards.formats import to_json

    wanted = [conditions.Condition.parse(text) for text in fail_on]
    comparison = compared(old, new, seed=seed)
    met = conditions.violations(comparison, wanted, significance=significance)
    folder = files.write(comparison, Path(comparison.new.folder) if out is None else out)
    if as_json:
        show_json(to_json(comparison))
    else:
        from faultset.evaluators.comparison.terminal import show

        show(comparison, text_console())
        click.echo(f"\nComparison: {folder / 'comparison.html'}, comparison.md, comparison.json")
    for sentence in met:
        click.echo(f"Condition met: {sentence}", err=True)
    if met:
        click.get_current_context().exit(CONDITION_MET)
