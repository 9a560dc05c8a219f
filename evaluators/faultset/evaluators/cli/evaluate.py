"""`evaluate`: score methods on a dataset."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from faultset.core.console import DURATION, comma_separated, command, complete_names, json_option
from faultset.core.errors import UsageError
from faultset.core.output import show_json
from faultset.core.printable import count_text, size_text
from faultset.core.times import duration_text
from faultset.evaluators.cli.compare import text_console, wrap

if TYPE_CHECKING:
    from faultset.evaluators.evaluation import Evaluation
    from faultset.evaluators.execution.method_runs import EvaluationStart

TRAINING_WARNING = (
    "Predictions are scored on every episode, including any that their model was trained on; --split NAME scores them "
    "only on the test episodes of that split"
)
EVIDENCE = "10,30,60"
"""Default evidence budgets of the default methods."""


@command(
    "evaluate",
    short_help="Score detection, localization and root cause methods on a dataset.",
    groups={
        "What to score": "--baselines --tasks --predictions --agents --split --version",
        "How to run": "--out --workers --fresh",
    },
    more={
        "Settings": "--protocol --alarm --delays --evidence --thresholds --train --seed",
        "Execution": "--timeout --memory-limit --scheduler",
    },
)
@click.argument("dataset")
@click.option("--version", metavar="VERSION", help="Version of the dataset.", show_default="the newest")
@click.option(
    "--baselines",
    "names",
    multiple=True,
    metavar="NAMES",
    shell_complete=complete_names(
        "faultset.baselines", "default", "all", "named", "methods", "rules", "controls", "variants"
    ),
    show_default="named, strongest and controls",
    help="Methods by name, or default, all, named, methods, rules, controls, variants.",
)
@click.option(
    "--tasks", multiple=True, metavar="TASKS", help="Tasks to score: detection, localization, rca.", show_default="all"
)
@click.option(
    "--protocol",
    type=click.Choice(["detected", "oracle", "both"]),
    default="both",
    help="Input of localizers: a detector's alarm (detected) or the true onset (oracle).",
)
@click.option(
    "--alarm",
    metavar="DETECTOR",
    show_default="trace-errors; spot for episodes without spans",
    help="Detector that raises the alarm.",
)
@click.option(
    "--delays", metavar="auto|SECONDS", help="Also pass later alarms to localizers: auto, or for example 0,30,60."
)
@click.option(
    "--evidence",
    metavar="auto|SECONDS",
    show_default="10,30,60; none with --baselines",
    help="Also cut the view off this long after onset or alarm: auto, none, or for example 10,30. Each value adds a "
    "column and one answer per method and fault.",
)
@click.option(
    "--thresholds",
    multiple=True,
    metavar="POLICIES",
    show_default="reference,train-quantile(0.995)",
    help="How scores become alarms: reference, train-quantile(Q), train-budget(N).",
)
@click.option(
    "--split",
    metavar="NAME",
    show_default="cross",
    help="Split of the dataset, or cross, cross-5, cross-5x3, leave-one-(fault|target|app)-out.",
)
@click.option(
    "--predictions",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Parquet or CSV file with answers of your own methods. Repeatable.",
)
@click.option("--agents", multiple=True, metavar="LOGS", help="Inspect logs of agents on these episodes. Repeatable.")
@click.option(
    "--train",
    metavar="OTHER",
    help="Train on this dataset and test on all of DATASET. Training episodes whose (application, fault, target) is "
    "also in DATASET are left out.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the results.", show_default="results/NAME")
@click.option(
    "--workers", type=click.IntRange(1, 1024), metavar="N", help="Methods to run at a time.", show_default="cores"
)
@click.option("--scheduler", metavar="ADDRESS", help="Use this dask scheduler, for example tcp://host:8786.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of stochastic methods.")
@click.option("--timeout", "timeout_s", type=DURATION, default="60s", help="Maximum time for one answer.")
@click.option("--memory-limit", default="2GiB", help="Maximum memory for one answer.")
@click.option("--fresh", is_flag=True, help="Ignore the results of an earlier run.")
@json_option
def evaluate(dataset: str, out: Path | None, as_json: bool, **options: Any) -> None:
    """Score detection, localization and root cause methods on every episode and recording of DATASET.

    DATASET is a folder or a URL that fsspec supports. Writes results.parquet (one row per answer), leaderboard.json,
    leaderboard.md and report.html. Repeat the command to resume an interrupted evaluation.

    \b
    Example:
      evaluate faultset-data/
      evaluate faultset-data/ --baselines ksigma,mksmc --tasks detection
      evaluate faultset-data/ --split by-episode --predictions usad.parquet
    """
    from faultset.evaluators import evaluation_call

    folder = out if out is not None else evaluation_call.results_folder(dataset)
    if options["predictions"] and options["split"] is None and options["train"] is None:
        click.echo(wrap(TRAINING_WARNING), err=True)
    methods = comma_separated(*options.pop("names"))
    with ExitStack() as stack:
        progress = _Progress(stack, default_choice=not methods)
        evaluation = evaluation_call.evaluate(
            dataset,
            methods,
            out=folder,
            started=progress.start,
            progress=progress.show,
            **_parse_options(**options, default_choice=not methods),
        )
    _show(evaluation, folder, dataset, as_json)


def _parse_options(
    *,
    tasks: Sequence[str],
    delays: str | None,
    evidence: str | None,
    thresholds: Sequence[str],
    memory_limit: str,
    default_choice: bool,
    **options: Any,
) -> dict[str, Any]:
    """Return the arguments of `evaluate` for texts from the command line."""
    from faultset.evaluators.results.rows import TASKS

    return options | {
        "tasks": comma_separated(*tasks) or TASKS,
        "delays": parse_seconds(delays),
        "evidence": parse_seconds(evidence or (EVIDENCE if default_choice else None), "an evidence budget"),
        "thresholds": comma_separated(*thresholds),
        "memory_limit_bytes": parse_memory(memory_limit),
    }


class _Progress:
    """Messages on stderr while methods run."""

    def __init__(self, stack: ExitStack, *, default_choice: bool) -> None:
        self._stack, self._default_choice = stack, default_choice
        self._done, self._label = 0, "recordings or their views"
        self._advance: Callable[[int], None] | None = None

    def start(self, start: EvaluationStart) -> None:
        # Recordings and episodes are run separately.
        self._stack.close()
        self._done, self._advance, self._label = 0, None, "fits and answers"
        from faultset.evaluators.execution.plan import count_left_out

        click.echo(wrap(_describe_plan(start)), err=True)
        if start.dashboard:
            click.echo(f"Dashboard: {start.dashboard}", err=True)
        if start.reused:
            click.echo(f"Resuming after {count_text(start.reused, 'answer')}; --fresh recomputes all", err=True)
        if start.changed:
            changed = " and ".join(start.changed)
            text = f"Changed since the last evaluation into this folder: {changed}; dependent answers are recomputed"
            click.echo(wrap(text), err=True)
        left_out = count_left_out(start.baselines) if self._default_choice else 0
        if left_out:
            text = (
                f"Left out: {count_text(left_out, 'more method')}; see faultset list baselines, or use --baselines all"
            )
            click.echo(wrap(text), err=True)

    def show(self, done: int, total: int) -> None:
        if self._advance is None:
            from faultset.core.output import show_progress

            self._advance = self._stack.enter_context(show_progress(total, self._label))
        self._advance(done - self._done)
        self._done = done


def _describe_plan(start: EvaluationStart) -> str:
    """Return one sentence with the size of an evaluation and its estimated duration."""
    episodes, methods = start.episodes, len(start.baselines)
    tested = (
        f"{count_text(episodes, 'view')} of {count_text(start.recordings, 'recording')}"
        if start.recordings
        else f"{count_text(episodes, 'episode')} ({start.faulty} with a fault, {episodes - start.faulty} without)"
    )
    return (
        f"{tested}, {count_text(methods, 'method')}, {count_text(start.answers, 'answer')}: about "
        f"{duration_text(start.expected_s)} and {size_text(start.expected_bytes)}, {start.workers} at a time"
    )


def _show(evaluation: Evaluation, folder: Path, dataset: str, as_json: bool) -> None:
    board = evaluation.board
    if as_json:
        from faultset.evaluators.leaderboards.formats import to_json

        show_json(to_json(board))
        return
    from faultset.evaluators.leaderboards.formats import show_leaderboard
    from faultset.evaluators.reports.episodes import EXPLORER_FILE

    show_leaderboard(board, text_console())
    click.echo(
        f"\nReport:  {folder / 'report.html'}\nResults: {folder / 'results.parquet'}, leaderboard.md, leaderboard.json"
        + (", alarms.parquet" if evaluation.recordings is not None else "")
    )
    if evaluation.recordings is not None:
        explore = ["faultset", "dataset", "explore", dataset, "--results", str(folder)]
        click.echo(f"Next:    {shlex.join([*explore, '--out', str(folder / EXPLORER_FILE)])}")
    elif board.quick:
        click.echo("Next:    collect --profile standard ... for numbers that rank methods")
    else:
        command = f"evaluate {shlex.quote(dataset)} --split leave-one-fault-out"
        click.echo(f"Next:    faultset list baselines, or {command} for unseen faults")


MIN_MEMORY = 256 << 20
"""Bytes needed to load an episode."""
MAX_MEMORY = 1 << 50
"""Bytes; close to the largest limit that a kernel accepts."""


def parse_seconds(text: str | None, subject: str = "a delay") -> Literal["auto"] | tuple[float, ...]:
    """Parse "auto" or comma-separated seconds; `subject` names the value in errors.

    Examples
    --------
    >>> parse_seconds("60,0,15s")
    (0.0, 15.0, 60.0)
    """
    if text is None or text == "none":
        return ()
    if text == "auto":
        return "auto"
    seconds = set()
    for item in comma_separated(text):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)s?", item)
        if match is None:
            raise UsageError(f'{subject} must be auto or a number of seconds, got "{item}"; write for example 0,10,30')
        seconds.add(float(match[1]))
    return tuple(sorted(seconds))


def parse_memory(text: str) -> int:
    """Parse an amount of memory such as 2GiB or 500MB.

    Examples
    --------
    >>> parse_memory("2GiB"), parse_memory("500MB")
    (2147483648, 500000000)
    """
    from dask.utils import parse_bytes

    try:
        amount = int(parse_bytes(text))
    except OverflowError:
        amount = MAX_MEMORY + 1
    except ValueError:
        raise UsageError(f'--memory-limit must be an amount such as 2GiB or 500MB, got "{text}"; correct it') from None
    if amount < MIN_MEMORY:
        raise UsageError(f"--memory-limit must be at least 256MiB to load an episode, got {text}; raise it")
    if amount > MAX_MEMORY:
        raise UsageError(f"--memory-limit must be at most 1024TiB, got {text[:40]}; lower it")
    return amount
