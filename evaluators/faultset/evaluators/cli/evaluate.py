"""`evaluate`: score methods on a dataset."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from faultset.core.command_line.console import DURATION, comma_separated, command, complete_names
from faultset.core.command_line.output import json_option, show_json
from faultset.core.errors import UsageError
from faultset.core.times import duration_text
from faultset.evaluators.cli.compare import gate_options, text_console, wrapped

if TYPE_CHECKING:
    from faultset.evaluators.evaluation import Evaluation, EvaluationStart

OWN_TRAINING = (
    "Predictions are scored on every episode, also on those that their model may have learned from; "
    "--split NAME scores them on the test episodes of that split"
)
EVIDENCE = "10,30,60"
"""Seconds of evidence of the default baselines."""
NO_DASHBOARD = 'none without bokeh; pip install "faultset[dashboard]" gives one'


@command("evaluate", short_help="Score detection, localization and root cause methods on a dataset.")
@click.argument("dataset", required=False)
@click.option("--version", metavar="VERSION", help="Version of the dataset.  [default: the newest]")
@click.option(
    "--baselines",
    "names",
    multiple=True,
    metavar="NAMES",
    shell_complete=complete_names(
        "faultset.baselines", "default", "all", "named", "methods", "rules", "controls", "variants"
    ),
    help="Comma-separated names or groups: default, all, named, methods, rules, controls, variants (other settings of "
    "reconstructed methods).  [default: all but slow methods]",
)
@click.option(
    "--tasks", multiple=True, metavar="TASKS", help="Tasks to score: detection, localization, rca.  [default: all]"
)
@click.option(
    "--protocol",
    type=click.Choice(["detected", "oracle", "both"]),
    default="both",
    show_default=True,
    help="What a localizer is given: the alarm of a detector, or the true onset.",
)
@click.option(
    "--alarm",
    metavar="DETECTOR",
    help="Detector whose alarm localizers are given.  [default: trace-errors; spot in episodes without spans]",
)
@click.option(
    "--delays", metavar="auto|SECONDS", help="Also give localizers later alarms: auto, or for instance 0,30,60."
)
@click.option(
    "--evidence",
    metavar="auto|SECONDS",
    help="Also run methods on views that end this long after onset or alarm: auto, none, or for instance 10,30. Each "
    "adds a column, and an answer of every method to every fault.  [default: 10,30,60 without --baselines, else none]",
)
@click.option(
    "--thresholds",
    multiple=True,
    metavar="POLICIES",
    help="How scores become alarms: reference, train-quantile(0.995), train-budget(1).  [default: reference,"
    "train-quantile(0.995)]",
)
@click.option(
    "--split",
    metavar="NAME",
    help="Split of the dataset; or cross, cross-5, cross-5x3, leave-one-fault-out, leave-one-target-out, "
    "leave-one-app-out.  [default: cross]",
)
@click.option(
    "--predictions",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Parquet or CSV with answers that were made elsewhere, scored beside the baselines. Repeatable.",
)
@click.option(
    "--agents",
    multiple=True,
    metavar="LOGS",
    help="Folder or file with Inspect's logs of agents on these episodes, to compare them with methods. Repeatable.",
)
@click.option(
    "--train",
    metavar="OTHER",
    help="Train on this dataset and test on all of DATASET; episodes whose (application, fault, target) is also in "
    "DATASET are not trained on.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the results.  [default: results/NAME beside DATASET]"
)
@click.option("--workers", type=click.IntRange(1, 1024), help="Number of methods to run at once.  [default: cores]")
@click.option("--scheduler", metavar="ADDRESS", help="Use this dask scheduler instead, for instance tcp://host:8786.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of methods that draw random numbers."
)
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="Longest time for one answer.")
@click.option("--memory-limit", default="2GiB", show_default=True, help="Most memory for one answer.")
@click.option("--fresh", is_flag=True, help="Run and fit everything again, also what an earlier run has finished.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="OLD NEW",
    help="Evaluate nothing; compare two folders of results, method by method on the same episodes.",
)
@gate_options
@json_option
def evaluate(
    dataset: str | None,
    version: str | None,
    names: tuple[str, ...],
    tasks: tuple[str, ...],
    protocol: Literal["detected", "oracle", "both"],
    alarm: str | None,
    delays: str | None,
    evidence: str | None,
    thresholds: tuple[str, ...],
    split: str | None,
    train: str | None,
    predictions: tuple[str, ...],
    agents: tuple[str, ...],
    out: Path | None,
    workers: int | None,
    scheduler: str | None,
    seed: int,
    timeout: float,
    memory_limit: str,
    fresh: bool,
    compare: tuple[Path, Path] | None,
    fail_on: tuple[str, ...],
    significance: float | None,
    as_json: bool,
) -> None:
    """Score detection, localization and root cause methods on every episode of DATASET, beside controls.

    DATASET is a folder or a URL that fsspec knows. Writes results.parquet (one row for every answer),
    leaderboard.json, leaderboard.md and report.html. An evaluation that was interrupted goes on when the same
    command is given again.

    \b
    Example:
      evaluate faultset-data/
      evaluate faultset-data/ --baselines ksigma,mksmc --tasks detection
      evaluate faultset-data/ --split by-episode --predictions usad.parquet --predictions rank=out/rank.csv
      evaluate hotel-data/ --train shop-data/
      evaluate faultset-data/ --agents logs/
      evaluate s3://bucket/data --version 1.0.0 --scheduler tcp://10.0.0.5:8786 --out results
      evaluate --compare results-before/ results/data/ --fail-on "ac@1 drops"
    """

    if compare and dataset is None:
        from faultset.evaluators.cli.compare import compare_folders

        compare_folders(*compare, out, seed=seed, fail_on=fail_on, significance=significance, as_json=as_json)
        return
    if fail_on or significance is not None:
        raise UsageError("--fail-on and --significance are for --compare OLD NEW; leave them out, or compare")
    if compare or dataset is None:
        raise UsageError("give either a DATASET to evaluate, or --compare OLD NEW with two folders of results")
    from faultset.evaluators import evaluation_call
    from faultset.evaluators.results.rows import TASKS

    folder = out if out is not None else evaluation_call.results_folder(dataset)
    if predictions and split is None and train is None:
        click.echo(wrapped(OWN_TRAINING), err=True)
    with ExitStack() as stack:
        progress = _Progress(stack, default_choice=not names)
        evaluated = evaluation_call.evaluate(
            dataset,
            comma_separated(*names),
            predictions=predictions,
            agents=agents,
            out=folder,
            started=progress.start,
            progress=progress.show,
            version=version,
            tasks=comma_separated(*tasks) or TASKS,
            protocol=protocol,
            split=split,
            train=train,
            alarm=alarm,
            delays=parse_seconds(delays),
            evidence=parse_seconds(evidence or (None if names else EVIDENCE), "budget of evidence"),
            thresholds=comma_separated(*thresholds),
            workers=workers,
            scheduler=scheduler,
            seed=seed,
            timeout_s=timeout,
            memory_limit_bytes=parse_memory(memory_limit),
            fresh=fresh,
        )
    _show(evaluated, folder, dataset, as_json)


class _Progress:
    """What is written to stderr while methods run."""

    def __init__(self, stack: ExitStack, *, default_choice: bool) -> None:
        self._stack, self._default_choice = stack, default_choice
        self._done = 0
        self._advance: Callable[[int], None] | None = None

    def start(self, start: EvaluationStart) -> None:
        from faultset.evaluators.execution.plan import slow_left_out

        click.echo(wrapped(_words_of(start)), err=True)
        click.echo(f"Dashboard: {start.dashboard or NO_DASHBOARD}", err=True)
        if start.kept:
            click.echo(f"{start.kept} answers of an interrupted evaluation are used; --fresh runs all again", err=True)
        if start.changed:
            changed = " and ".join(start.changed)
            text = f"Changed since the last evaluation into this folder: {changed}; what depends on it is run anew"
            click.echo(wrapped(text), err=True)
        slow = slow_left_out(start.baselines) if self._default_choice else []
        if slow:
            text = f"Left out because they are slow: {', '.join(slow)}; --baselines all runs them"
            click.echo(wrapped(text), err=True)

    def show(self, done: int, total: int) -> None:
        if self._advance is None:
            from faultset.core.command_line import progress

            self._advance = self._stack.enter_context(progress.shown(total, "fits and answers"))
        self._advance(done - self._done)
        self._done = done


def _words_of(start: EvaluationStart) -> str:
    """Say what an evaluation will do and about how long that takes."""
    episodes, methods = start.episodes, len(start.baselines)
    return (
        f"{episodes} episodes ({start.faulty} with a fault, {episodes - start.faulty} without), "
        f"{methods} {'method' if methods == 1 else 'methods'}, {start.answers:,} answers: about "
        f"{duration_text(start.expected_s)}, "
        f"{start.workers} at a time"
    )


def _show(evaluated: Evaluation, folder: Path, dataset: str, as_json: bool) -> None:
    board = evaluated.board
    if as_json:
        from faultset.evaluators.leaderboards.formats import to_json

        show_json(to_json(board))
        return
    from faultset.evaluators.leaderboards import terminal

    terminal.show(board, text_console())
    click.echo(
        f"\nReport:  {folder / 'report.html'}\nResults: {folder / 'results.parquet'}, leaderboard.md, leaderboard.json"
    )
    if board.quick:
        click.echo("Next:    collect --profile standard ... for numbers that rank methods")
    else:
        again = f"evaluate {shlex.quote(dataset)} --split leave-one-fault-out"
        click.echo(f"Next:    faultset list baselines, or {again} for unseen faults")


LEAST_MEMORY = 256 << 20
"""Bytes that loading an episode takes."""
MOST_MEMORY = 1 << 50
"""Bytes; what a kernel can limit is not much more."""


def parse_seconds(text: str | None, what: str = "delay") -> Literal["auto"] | tuple[float, ...]:
    """Read the grid of a curve: "auto", or seconds by comma; `what` says in errors what they are.

    Examples
    --------
    >>> parse_seconds("60,0,15s")
    (0.0, 15.0, 60.0)
    """
    if text is None or text == "none":
        return ()
    if text == "auto":
        return "auto"
    found = set()
    for part in comma_separated(text):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)s?", part)
        if match is None:
            raise UsageError(f'"{part}" is not a {what}; write auto, or seconds by comma, for instance 0,10,30')
        found.add(float(match[1]))
    return tuple(sorted(found))


def parse_memory(text: str) -> int:
    """Read an amount of memory such as 2GiB or 500MB.

    Examples
    --------
    >>> parse_memory("2GiB"), parse_memory("500MB")
    (2147483648, 500000000)
    """
    from dask.utils import parse_bytes

    try:
        amount = int(parse_bytes(text))
    except OverflowError:
        amount = MOST_MEMORY + 1
    except ValueError:
        raise UsageError(f'"{text}" is not an amount of memory; write for instance 2GiB or 500MB') from None
    if amount < LEAST_MEMORY:
        raise UsageError(f"a memory limit of {text} is too little to load an episode; give at least 256MiB")
    if amount > MOST_MEMORY:
        raise UsageError(f"a memory limit of {text[:40]} is more than a machine has; give at most 1024TiB")
    return amount
