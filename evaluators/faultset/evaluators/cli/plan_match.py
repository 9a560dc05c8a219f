"""`faultset agents plan-match`: commands proposed for a recorded episode beside the undo of its injection."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json
from faultset.core.errors import DataError, UsageError


@command("plan-match", short_help="Compare proposed commands with the undo of an injection.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--episode", required=True, metavar="ID", help="The episode that the commands are about.")
@click.option("--namespace", metavar="NAME", help="The application's namespace in the recording of the run.")
@json_option
def plan_match(run: Path, dataset: Path, episode: str, namespace: str | None, as_json: bool) -> None:
    """Say whether the commands in the trajectory file RUN aim at what was broken in an episode.

    Compared are objects, fields, what is done and values with the undo of the injection. This is no success: whether a
    repair works is only found out live, with `faultset mitigate`.

    \b
    Example:
      faultset agents plan-match runs/trajectories/my-run.json datasets/sample --episode 01084746c57a
    """
    from faultset.agents.runs.recorded_commands import recorded_commands
    from faultset.agents.trajectories.reading import read_trajectory
    from faultset.datasets import open_dataset
    from faultset.evaluators.agent_runs.plan_match import plan_match as matched

    found = open_dataset(dataset)
    label = found.label(episode)
    if label.inject_start_ns is None or label.fault is None:
        raise UsageError(f"episode {episode} has no fault whose undo could be matched; name one with a fault")
    end_ns = label.inject_done_ns or label.inject_start_ns
    match = matched(
        recorded_commands(read_trajectory(run), namespace), found[episode].journal, label.inject_start_ns, end_ns
    )
    if not match.undo:
        raise DataError(f"the journal of episode {episode} names no object whose change undoes {label.fault}")
    if as_json:
        show_json({"episode": episode, "fault": label.fault, **asdict(match)})
        return
    click.echo(f"plan match (no success: a recording cannot be repaired), {label.fault} in {episode}")
    for name, meaning in _MEANINGS.items():
        value = getattr(match, name)
        click.echo(f"{name:8} {'undecided' if value is None else 'yes' if value else 'no':10} {meaning}")
    click.echo(f"{len(match.proposed)} changes proposed, {len(match.undecided)} commands undecided")


_MEANINGS = {
    "target": "an object is changed that the undo changes",
    "field": "one of the same fields is changed",
    "kind": "the same is done to it",
    "value": "the field gets the value that it had",
}
