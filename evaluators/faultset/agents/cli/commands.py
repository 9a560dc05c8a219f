"""`faultset agents commands`: what a recorded run did to its system, as a file for `faultset mitigate`."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.core.command_line.console import command


@command("commands", short_help="Print the commands of a run that change something.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--namespace", metavar="NAME", help="The application's namespace in the recording, which is left out.")
@click.option("--all", "reads", is_flag=True, help="Print commands that only read as well, not as comments.")
def commands(run: Path, namespace: str | None, reads: bool) -> None:
    """Print the commands of kubectl in the trajectory file RUN, one a line, to be carried out again.

    Commands that only read are comments, as are those that cannot be given again without a shell. Names of pods need no
    change: `faultset mitigate --commands` takes them for the present pods of the same owners.

    \b
    Example:
      faultset agents commands runs/trajectories/0647a98b-d4f8a010.json --namespace test-hotel-reservation > repair.txt
    """
    from faultset.agents.runs.recorded_commands import recorded_commands
    from faultset.agents.trajectories.reading import read_trajectory

    found = recorded_commands(read_trajectory(run), namespace)
    again = left = 0
    for one in found:
        if one.problem:
            left += one.changes or not one.words
            click.echo(f"# step {one.step}, not given again because {one.problem}: {one.line}")
        elif one.changes or reads:
            again += 1
            click.echo(one.line)
        else:
            click.echo(f"# step {one.step}, only reads: {one.line}")
    note = f", {left} cannot be given again" if left else ""
    click.echo(f"{again} of {len(found)} commands{note}", err=True)
