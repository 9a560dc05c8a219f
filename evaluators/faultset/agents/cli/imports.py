"""`faultset agents import`: recorded runs of agents as one folder."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import click

from faultset.core.command_line.console import comma_separated, command
from faultset.core.command_line.output import json_option, show_json
from faultset.core.plugins import plugins


@command(
    "import",
    short_help="Read recorded runs of LLM agents.",
    epilog=f"Formats: {', '.join(plugins('faultset.agent_formats'))}.",
)
@click.argument("name", metavar="FORMAT")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--skip-bad", is_flag=True, help="Leave out files that cannot be read, instead of writing nothing.")
@click.option("--agent", help="Name of the agent, where the files do not give it.")
@click.option("--model", help="Name of the model, where the files do not give it.")
@click.option("--candidates", default="", help="Services that an answer may name, comma-separated.")
@json_option
def import_(
    name: str,
    path: Path,
    out: Path,
    skip_bad: bool,
    agent: str | None,
    model: str | None,
    candidates: str,
    as_json: bool,
) -> None:
    """Read the runs at PATH, which have FORMAT, into the new folder OUT.

    OUT gets a table of runs, a table of what their source says is true, and a trajectory file for each run.

    \b
    Example:
      faultset agents import aiopslab sessions/ runs/
    """
    from faultset.agents import import_runs
    from faultset.core.command_line.progress import reported

    services = comma_separated(candidates)
    with reported("files") as progress:
        done = import_runs(
            name,
            path,
            out,
            agent=agent,
            model=model,
            candidates=services,
            skip_bad=skip_bad,
            progress=progress,
        )
    statuses = Counter(run.status for run in done.runs)
    if as_json:
        left_out = dict(done.left_out)
        show_json(
            {
                "folder": str(out),
                "files": done.files,
                "runs": len(done.runs),
                "statuses": statuses,
                "left_out": left_out,
            }
        )
        return
    for reason in done.left_out.values():
        click.echo(f"Left out: {reason}", err=True)
    ends = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    left = f" {len(done.left_out)} of {done.files} files were left out." if done.left_out else ""
    click.echo(f"{len(done.runs)} runs in {out}: {ends}.{left}")
    if not services and 0 < statuses["unparsed"] == len(done.runs):
        hint = "No answer could be read. Name the services that answers may contain, for instance --candidates geo,rate"
        click.echo(f"{hint}; give another OUT or delete this one.", err=True)
    click.echo("Next:")
    click.echo(f"  faultset agents score {shlex.quote(str(out))}")
    click.echo(f"  faultset agents show {shlex.quote(str(out / done.runs[0].trajectory_path))}")
