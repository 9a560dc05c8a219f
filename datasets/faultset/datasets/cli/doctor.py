"""`faultset dataset doctor`: which format a folder of data has, and which data issues."""

from __future__ import annotations

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json, show_records
from faultset.core.errors import DataError


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
    from faultset.datasets.remote.local_copies import local_folder

    with local_folder(path) as folder, reported("cases") as progress:
        found = examine(folder, display_name=path, input_file=input_file, progress=progress)
    if as_json:
        show_json(asdict(found))
    else:
        click.echo(found.summary)
        if found.data_issues:
            click.echo()
            show_records(map(asdict, found.data_issues), columns=("severity", "place", "found", "handling"))
        click.echo()
        click.echo("Next:")
        click.echo(f"  {found.next}")
    bad = [issue for issue in found.data_issues if issue.severity == "error"]
    if bad:
        raise DataError(
            f"{len(bad)} {'thing' if len(bad) == 1 else 'things'} in {path} cannot be imported; see the list above"
        )
