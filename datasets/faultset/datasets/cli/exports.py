"""`faultset dataset export`: a dataset in another benchmark's layout, or as wide tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.core.command_line.console import DURATION, comma_separated, command
from faultset.core.command_line.output import json_option, show_json
from faultset.core.plugins import plugins
from faultset.core.printable import size_text
from faultset.core.times import duration_text

if TYPE_CHECKING:
    from faultset.datasets.exports.exporter import ExportPlan

MOST_GB = 2


@command("export", short_help="Write a dataset as wide tables or in another benchmark's layout.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--as", "name", metavar="LAYOUT", required=True, help=f"One of {', '.join(plugins('faultset.exporters'))}."
)
@click.option("--version", metavar="V", help="Version to export; the newest by default.")
@click.option("--step", type=DURATION, default="1s", show_default=True, help="Step of wide tables.")
@click.option("--roles", metavar="ROLES", help="Only metrics of these roles, for instance cpu,latency.")
@click.option("--per-service", is_flag=True, help="Windows of each service, in columns that all applications share.")
@click.option("--yes", is_flag=True, help=f"Write more than {MOST_GB} GB as well.")
@json_option
def export(
    dataset: Path,
    out: Path,
    name: str,
    version: str | None,
    step: float,
    roles: str | None,
    per_service: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Write DATASET to the new folder OUT in another layout.

    Wide tables have one row per step and one column per service and metric; labels are in a file of their own. What
    a layout has no place for, such as episodes without a fault, is left out and named. The expected size is printed
    first; an export of more than 2 GB needs --yes.

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
            options=ExportOptions(step_s=step, roles=chosen, per_service=per_service),
            progress=progress,
            most_bytes=None if yes else MOST_GB * 1_000_000_000,
            announce=_show_plan,
        )
    if as_json:
        show_json({"out": str(out), "episodes": done.episodes, "left_out": dict(done.left_out)})
        return
    for reason, count in sorted(Counter(done.left_out.values()).items()):
        click.echo(f"Left out {count}: {reason}.", err=True)
    click.echo(f"{done.episodes} episodes in {out}.")


def _show_plan(plan: ExportPlan) -> None:
    number = plan.faulty + plan.healthy
    click.echo(
        f"{number} episodes ({plan.faulty} with a fault, {plan.healthy} without), "
        f"about {size_text(plan.expected_bytes)}, about {duration_text(plan.expected_s)}",
        err=True,
    )
