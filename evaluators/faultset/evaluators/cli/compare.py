"""`faultset compare`: two evaluations side by side."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.core.console import command
from faultset.core.output import json_option, show_json
from faultset.evaluators.cli.text_width import text_console


@command("compare", short_help="Compare two evaluations, method by method on the same episodes.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the comparison.  [default: NEW]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For the intervals.")
@json_option
def compare(old: Path, new: Path, out: Path | None, seed: int, as_json: bool) -> None:
    """Compare two folders of results that `evaluate` wrote, method by method on the same episodes.

    Writes comparison.html, comparison.md and comparison.json.

    \b
    Example:
      faultset compare results-before/ results/
      faultset compare results-before/ results/ --json
    """
    compare_folders(old, new, out, seed=seed, as_json=as_json)


def compare_folders(old: Path, new: Path, out: Path | None, *, seed: int, as_json: bool) -> None:
    """Compare two folders, write the comparison and print it."""
    from faultset.evaluators.comparison import files
    from faultset.evaluators.comparison.pairing import compare as compared
    from faultset.evaluators.leaderboards.formats import to_json

    comparison = compared(old, new, seed=seed)
    folder = files.write(comparison, Path(comparison.new.folder) if out is None else out)
    if as_json:
        show_json(to_json(comparison))
        return
    from faultset.evaluators.comparison.terminal import show

    show(comparison, text_console())
    click.echo(f"\nComparison: {folder / 'comparison.html'}, comparison.md, comparison.json")
