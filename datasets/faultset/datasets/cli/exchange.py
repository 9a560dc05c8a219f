"""Commands that bring data in and out: doctor, import, export and publish."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.core.command_line.console import DURATION, comma_separated, command
from faultset.core.command_line.output import json_option, show_json, show_records
from faultset.core.errors import DataError
from faultset.core.plugins import plugins
from faultset.core.printable import size_text
from faultset.core.times import duration_text
from faultset.datasets.cli.versions import dataset_argument

if TYPE_CHECKING:
    from faultset.datasets.exports.exporter import ExportPlan


@command("doctor", short_help="Recognise the format of foreign data and list its data issues.")
@click.argument("path")
@click.option("--input", "input_file", metavar="FILE", help="Name of the file to look at where a case has several.")
@json_option
def doctor(path: str, input_file: str | None, as_json: bool) -> None:
    """Say which format the data at PATH has, and what a reader should know before importing it.

    Of a dataset of faultset it says in how many episodes methods have nothing to compare with; it may also be behind a
    URL that fsspec knows. Nothing is written. Exits with 3 when the format is not known, or when a case cannot be
    imported.

    \b
    Example:
      faultset dataset doctor RE2/RE2-OB
    """
    from dataclasses import asdict

    from faultset.core.command_line.progress import reported
    from faultset.datasets import examine
    from faultset.datasets.remote.file_systems import local_folder

    with local_folder(path) as folder, reported("cases") as progress:
        found = examine(folder, display_name=path, input_file=input_file, progress=progress)
    if as_json:
        show_json(asdict(found))
    else:
        click.echo(found.summary)
        if found.data_issues:
            click.echo()
            show_records(map(asdict, found.data_issues), columns=("severity", "location", "problem", "handling"))
        click.echo()
        click.echo("Next:")
        click.echo(f"  {found.next}")
    bad = [issue for issue in found.data_issues if issue.severity == "error"]
    if bad:
        raise DataError(
            f"{len(bad)} {'thing' if len(bad) == 1 else 'things'} in {path} cannot be imported; see the list above"
        )


@command(
    "import",
    short_help="Read another benchmark's data into a dataset.",
    epilog=f"Formats: {', '.join(plugins('faultset.importers'))}.",
)
@click.argument("name", metavar="FORMAT")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(min=1), help="Number of cases to read at once.  [default: cores]")
@click.option(
    "--input",
    "input_file",
    metavar="FILE",
    help='Name of the file to read where a case has several with the same telemetry; "dataset doctor" names them.',
)
@click.option("--skip-bad", is_flag=True, help="Leave out cases that cannot be read, instead of making no version.")
@json_option
def import_(
    name: str, path: Path, out: Path, workers: int | None, input_file: str | None, skip_bad: bool, as_json: bool
) -> None:
    """Read the data at PATH, which have FORMAT, into the dataset folder OUT.

    Each case becomes an episode; telemetry and truth are stored apart. An import that was interrupted is finished by
    the same command. "faultset dataset doctor PATH" reports issues with the data beforehand.

    \b
    Example:
      faultset dataset import rcaeval RE2/RE2-OB re2-ob/
    """
    from faultset.core.command_line.console import is_quiet
    from faultset.core.command_line.progress import reported
    from faultset.datasets import import_dataset

    with reported("cases") as progress:
        done = import_dataset(
            name,
            path,
            out,
            workers=workers,
            skip_bad=skip_bad,
            input_file=input_file,
            progress=progress,
            announce=lambda cost: None if is_quiet() else click.echo(f"{cost}.", err=True),
        )
    if as_json:
        show_json(
            {
                "dataset": str(out),
                "version": done.version,
                "cases": done.episodes,
                "written": done.written,
                "left_out": dict(done.left_out),
            }
        )
        return
    for key, reason in done.left_out.items():
        click.echo(f"Left out {key}: {reason}", err=True)
    already = "" if done.written == done.episodes - len(done.left_out) else ", the others were there"
    click.echo(f"{done.episodes - len(done.left_out)} episodes in {out}, {done.written} written now{already}.")
    click.echo(f"Version {done.version}." if done.is_new else f"Version {done.version} holds them already.")
    click.echo("Next:")
    click.echo(f"  faultset dataset verify {shlex.quote(str(out))}")
    click.echo(f"  evaluate {shlex.quote(str(out))}")


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
@click.option("--dry-run", is_flag=True, help="Print the expected size and write nothing.")
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
    dry_run: bool,
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

    def announce(plan: ExportPlan) -> None:
        _show_plan(plan)
        if dry_run:
            raise click.exceptions.Exit(0)

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
            announce=announce,
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


@command("publish", short_help="Copy a version of a dataset to an object store.")
@dataset_argument
@click.argument("url")
@click.option("--version", metavar="V", help="Version to copy; the newest by default.")
@click.option("--threads", type=click.IntRange(1, 64), default=8, show_default=True, help="Files copied at once.")
@json_option
def publish(dataset: Path, url: str, version: str | None, threads: int, as_json: bool) -> None:
    """Copy a version of DATASET to URL, any that fsspec can write to: s3://, gs://, az://, file://.

    The version file comes last, so that nobody meets half a version. The same command goes on where it was
    interrupted. Versions that are there stay, and files that they have in common are not copied again.

    \b
    Example:
      faultset dataset publish data/ s3://bucket/data
      evaluate s3://bucket/data --out results
    """
    from faultset.core.command_line.progress import reported
    from faultset.datasets.remote.publishing import publish_dataset

    with reported("episodes") as progress:
        done = publish_dataset(dataset, url, version=version, threads=threads, progress=progress)
    if as_json:
        show_json(asdict(done))
        return
    state = "is published" if done.is_new else "was there already"
    click.echo(f"Version {done.version} {state} at {done.url}: {done.copied} of {done.files} files copied.")
    click.echo(f"Next:\n  faultset dataset verify {shlex.quote(done.url)}")
