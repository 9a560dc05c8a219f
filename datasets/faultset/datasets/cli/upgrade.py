"""`faultset dataset upgrade`: a dataset of an older release in the form in which this release writes."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json


@command("upgrade", short_help="Write a dataset of an older release in the format of this one.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--version", metavar="V", help="Version to write; the newest by default.")
@json_option
def upgrade(dataset: Path, out: Path, version: str | None, as_json: bool) -> None:
    """Write DATASET to the new folder OUT in the format of this release.

    Ids, telemetry, truth, splits and provenance stay as they are. DATASET is only read, and needs no upgrade to be
    read: older schema versions stay readable.

    \b
    Example:
      faultset dataset upgrade old-data/ new-data/
    """
    from faultset.core.command_line.progress import reported
    from faultset.datasets import upgrade_dataset

    with reported("episodes") as progress:
        made = upgrade_dataset(dataset, out, version=version, progress=progress)
    if as_json:
        show_json({"dataset": str(out), "version": made.version, "episodes": len(made.episodes)})
        return
    click.echo(f"{len(made.episodes)} episodes in {out}, version {made.version}.")
