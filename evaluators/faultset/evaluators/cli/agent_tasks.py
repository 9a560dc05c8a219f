"""`faultset agents export` and `faultset agents grade`: episodes as tasks of other frameworks for agents."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from faultset.core.command_line.console import OUTPUT_FILE, comma_separated, command
from faultset.core.command_line.output import json_option, show_json

LAYOUTS = ("inspect", "harbor")


@command("export", short_help="Write episodes as tasks for Inspect or Harbor.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--as", "layout", metavar="LAYOUT", required=True, help=f"One of {', '.join(LAYOUTS)}.")
@click.option(
    "--task", default="all", show_default=True, help="What is asked: detection, localization, diagnosis or all."
)
@click.option("--episodes", default="", help="Only these episodes, comma-separated.")
@click.option("--version", metavar="V", help="Version to export; the newest by default.")
@click.option(
    "--install",
    metavar="WHAT",
    help="What pip installs in Harbor's containers: a requirement, or a wheel of faultset.  [default: this version]",
)
@json_option
def export(
    dataset: Path,
    out: Path,
    layout: str,
    task: str,
    episodes: str,
    version: str | None,
    install: str | None,
    as_json: bool,
) -> None:
    """Write the episodes of DATASET as tasks for other frameworks into the new folder OUT.

    Agents get the tools of "faultset agents serve". Inspect reads the labels for its scorer, from samples.json; Harbor
    for its tests, from tests/label.json, which no container of an agent holds.

    \b
    Example:
      faultset agents export datasets/sample tasks/ --as inspect
      faultset agents export datasets/sample tasks/ --as harbor --task localization
    """
    from faultset.core.errors import UsageError
    from faultset.evaluators.agent_tasks.export import export_tasks

    if layout not in LAYOUTS:
        raise UsageError(f'the layout "{layout}" is unknown; layouts are {", ".join(LAYOUTS)}')
    if install is not None and layout != "harbor":
        raise UsageError("--install is about Harbor's containers; leave it out, or choose --as harbor")
    done = export_tasks(
        dataset, out, layout, task=task, episodes=comma_separated(episodes), version=version, install=install
    )
    if as_json:
        names = {one.name: one.episode for one in done.tasks}
        show_json({"out": str(out), "tasks": names, "left_out": done.left_out})
        return
    for reason, count in sorted(Counter(done.left_out.values()).items()):
        click.echo(f"Left out {count}: {reason}.", err=True)
    click.echo(f"{len(done.tasks)} tasks in {out}.")


@command("grade", short_help="Judge one answer by the label of an exported task.")
@click.argument("label", type=click.Path(path_type=Path))
@click.argument("answer", type=click.Path(path_type=Path))
@click.option("--out", type=OUTPUT_FILE, help="File for the numbers, as JSON; printed by default.")
def grade(label: Path, answer: Path, out: Path | None) -> None:
    """Judge ANSWER, a file of "faultset agents serve --out", by LABEL, a file of "faultset agents export --as harbor".

    The numbers go from 0 to 1: one for each part of the task, and "reward", the least of them. No file, or one that
    holds no answer, is a miss.

    \b
    Example:
      faultset agents grade tests/label.json answer.json
    """
    from faultset.core.files import replacing
    from faultset.evaluators.agent_tasks.grading import grades, read_answer, read_label

    found = json.dumps(grades(read_label(label), read_answer(answer)))
    if out is None:
        click.echo(found)
        return
    with replacing(out) as temporary:
        temporary.write_text(found + "\n", "utf-8")
