"""`faultset dataset export`: a dataset in another benchmark's layout, or as wide tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from faultset.core.command_line.console import DURATION, comma_separated, command
from faultset.core.command_line.output import json_option, show_json
from faultset.core.plugins import plugins


@command("export", short_help="Write a dataset as wide tables or in another benchmark's layout.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--as", "name", metavar="LAYOUT", required=True, help=f"One of {', '.join(plugins('faultset.exporters'))}."
)
@click.option("--version", metavar="V", help="Version to export; the newest by default.")
@click.option("--step", type=DURATION, default="1s", show_default=True, help="Step of wide tables.")
@click.option("--roles", metavar="ROLES", help="Only metrics of these roles, for instance cpu,latency.")
@json_option
def export(
    dataset: Path, out: Path, name: str, version: str | None, step: float, roles: str | None, as_json: bool
) -> None:
    """Write DATASET to the new folder OUT in another layout.

    Wide tables have one row per step and one column per service and metric; labels are in a file of their own. What
    a layout has no place for, such as episodes without a fault, is left out and named.

    \b
    Example:
      faultset dataset export data/ training/ --as wide-parquet --roles cpu,memory,latency
      faultset dataset export data/ cases/ --as rcaeval
    """
    from faultset.core.command_line.progress import reported
    from faultset.datasets import ExportOptions, export_dataset

    chosen = comma_separated(roles) if roles is not None else None
    with reported("episodes") as progress:
        done = export_dataset(
            name,
            dataset,
            out,
            version=version,
            options=ExportOptions(step_s=step, roles=chosen),
            progress=progress,
        )
    if as_json:
        show_json({"out": str(out), "episodes": done.episodes, "left_out": dict(done.left_out)})
        return
    for reason, count in sorted(Counter(done.left_out.values()).items()):
        click.echo(f"Left out {count}: {reason}.", err=True)
    click.echo(f"{done.episodes} episodes in {out}.")
