"""`faultset agents import`, `show` and `commands`: import recorded runs, print them, extract their commands."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from pathlib import Path

import click

from faultset.core.console import comma_separated, command, json_option
from faultset.core.output import show_json
from faultset.core.plugins import plugins
from faultset.core.printable import count_text


@command("commands", short_help="Print the kubectl commands of a run that change something.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--namespace", metavar="NAME", help="The application's namespace in the recording; removed from commands."
)
@click.option("--all", "include_reads", is_flag=True, help="Print read-only commands as commands, not as comments.")
def commands(run: Path, namespace: str | None, include_reads: bool) -> None:
    """Print the kubectl commands in the trajectory file RUN, one per line, for replay.

    Read-only commands and commands that need a shell are printed as comments. Pod names need no change:
    `faultset mitigate --commands` replaces them with the current pods of the same owners.

    \b
    Example:
      faultset agents commands runs/trajectories/0647a98b-d4f8a010.json --namespace test-hotel-reservation > repair.txt
    """
    from faultset.agents.runs.trajectory_contents import recorded_commands
    from faultset.agents.trajectory import read_trajectory

    recorded = recorded_commands(read_trajectory(run), namespace)
    printed = skipped = 0
    for item in recorded:
        if item.problem:
            skipped += item.changes or not item.words
            click.echo(f"# step {item.step}, cannot be replayed because {item.problem}: {item.line}")
        elif item.changes or include_reads:
            printed += 1
            click.echo(item.line)
        else:
            click.echo(f"# step {item.step}, read-only: {item.line}")
    note = f"; {skipped} cannot be replayed" if skipped else ""
    click.echo(f"Printed {printed} of {count_text(len(recorded), 'command')} for replay{note}.", err=True)


@command(
    "import",
    short_help="Import recorded runs of LLM agents.",
    epilog=f"Formats: {', '.join(plugins('faultset.agent_formats'))}.",
)
@click.argument("name", metavar="FORMAT")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--skip-bad", is_flag=True, help="Skip unreadable files; otherwise they are an error.")
@click.option("--agent", help="Name of the agent, if the files have none.")
@click.option("--model", help="Name of the model, if the files have none.")
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
    """Import the runs at PATH, recorded in FORMAT, into the new folder OUT.

    Writes a table of runs, a table with the labels and results of the source, and one trajectory file per run.

    \b
    Example:
      faultset agents import aiopslab sessions/ runs/
    """
    from faultset.agents import import_runs
    from faultset.core.output import report_progress

    services = comma_separated(candidates)
    with report_progress("files") as progress:
        imported = import_runs(
            name, path, out, agent=agent, model=model, candidates=services, skip_bad=skip_bad, progress=progress
        )
    statuses = Counter(run.status for run in imported.runs)
    if as_json:
        counts = {"files": imported.files, "runs": len(imported.runs), "statuses": statuses}
        show_json({"folder": str(out), **counts, "left_out": dict(imported.left_out)})
        return
    for reason in imported.left_out.values():
        click.echo(f"Left out: {reason}", err=True)
    status_counts = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    skipped = (
        f" Left out: {len(imported.left_out)} of {count_text(imported.files, 'file')}." if imported.left_out else ""
    )
    click.echo(f"{count_text(len(imported.runs), 'run')} in {out}: {status_counts}.{skipped}")
    if not services and 0 < statuses["unparsed"] == len(imported.runs):
        hint = "No answer could be read. List the services of the system, for example --candidates geo,rate"
        click.echo(f"{hint}, and choose another OUT or delete this one.", err=True)
    click.echo("Next:")
    click.echo(f"  faultset agents score {shlex.quote(str(out))}")
    click.echo(f"  faultset agents show {shlex.quote(str(out / imported.runs[0].trajectory_path))}")


@command("show", short_help="Print a run step by step.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--length", type=click.IntRange(min=0), default=600, show_default=True, help="Maximum characters per text; 0: all."
)
@json_option
def show(run: Path, length: int, as_json: bool) -> None:
    """Print the trajectory file RUN step by step.

    RUN is a file below "trajectories/" of an imported folder, or any other ATIF file. Long texts are truncated with a
    note. On a terminal, a pager opens. --json prints the whole trajectory, and the run's row if RUN is in an imported
    folder.

    \b
    Example:
      faultset agents show runs/trajectories/0647a98b-d4f8a010.json
    """
    import shutil

    from faultset.agents.runs.record import find_record
    from faultset.agents.runs.trajectory_contents import trajectory_text
    from faultset.agents.trajectory import read_trajectory

    trajectory, record = read_trajectory(run), find_record(run)
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
