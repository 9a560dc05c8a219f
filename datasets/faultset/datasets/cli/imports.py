"""`faultset dataset import`: other benchmarks' data as a dataset of ours."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json
from faultset.core.plugins import plugins


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
    from faultset.core.command_line.progress import reported
    from faultset.core.command_line.verbosity import is_quiet
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
