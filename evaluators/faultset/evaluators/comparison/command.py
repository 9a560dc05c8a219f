"""What `evaluate --compare OLD NEW` does."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.core.errors import UsageError
from faultset.evaluators.comparison import formats
from faultset.evaluators.comparison.html import page
from faultset.evaluators.comparison.pairing import compare
from faultset.evaluators.comparison.runs import read_run


def compare_runs(old: Path, new: Path, out: Path | None, *, seed: int, as_json: bool) -> None:
    """Compare two result folders, print the outcome and write it as JSON, Markdown and HTML into `out`.

    Without `out` the files go into the folder of the new run.
    """
    runs = read_run(old), read_run(new)
    comparison = compare(*runs, seed=seed)
    folder = runs[1].folder if out is None else out
    texts = {"comparison.md": formats.markdown(comparison), "comparison.html": page(comparison)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        formats.write_json(comparison, folder / "comparison.json")
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}); choose another --out") from error
    if as_json:
        click.echo((folder / "comparison.json").read_text(encoding="utf-8"), nl=False)
        return
    from rich.console import Console

    from faultset.evaluators.comparison.terminal import show

    console = Console(highlight=False)
    show(comparison, console if console.is_terminal else Console(highlight=False, width=150))
    click.echo(f"\nComparison: {folder / 'comparison.html'}, comparison.md, comparison.json")
