"""`faultset recover`: undo and remove what a killed `collect` left."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.datasets.console import command


@command("recover")
@click.option("--out", type=click.Path(path_type=Path), default=Path("faultset-data"), show_default=True)
def recover(out: Path) -> None:
    """Undo and remove what a killed `collect` left in a dataset's folder and on this machine.

    On the embedded platform every process dies with the collector, so that only files are left. It may be run again
    without harm, and leaves running campaigns alone.

    \b
    Example:
      faultset recover --out data/
    """
    from faultset.collector.campaigns.campaign import check_root, remove_abandoned

    check_root(out)
    removed = remove_abandoned(out)
    click.echo(f"removed what was left of {len(removed)} episodes" if removed else "nothing was left behind")
