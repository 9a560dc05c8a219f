"""`faultset agents show`: one run to read in a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json


@command("show", short_help="Print a run step by step.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--length", type=click.IntRange(min=0), default=600, show_default=True, help="Characters of a text; 0: all."
)
@json_option
def show(run: Path, length: int, as_json: bool) -> None:
    """Print the trajectory file RUN step by step, as wide as the terminal.

    RUN is a file below "trajectories/" of an imported folder, or any other ATIF file. On a terminal it is paged. Long
    texts are shortened, with a note of how much was left out. With --json the trajectory is printed whole, with the
    run's row of the table of runs where RUN lies in an imported folder.

    \b
    Example:
      faultset agents show runs/trajectories/0647a98b-d4f8a010.json
    """
    import shutil

    from faultset.agents.runs.storage import record_beside
    from faultset.agents.runs.text import trajectory_text
    from faultset.agents.trajectories.reading import read_trajectory

    trajectory, record = read_trajectory(run), record_beside(run)
    if as_json:
        content = trajectory.model_dump(mode="json", exclude_none=True)
        show_json({"run": record.model_dump(mode="json") if record else None, "trajectory": content})
        return
    width = shutil.get_terminal_size((120, 24)).columns
    text = trajectory_text(trajectory, record, width=width, length=length or None)
    if sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        click.echo(text, nl=False)
