"""`evaluate`: score methods on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.datasets.console import DURATION, command, json_option

if TYPE_CHECKING:
    from faultset.evaluators.leaderboards.records import Leaderboard
    from faultset.evaluators.rows import ResultRow
    from faultset.evaluators.running.planning import Plan

RESULTS = "results.parquet"


@command("evaluate", short_help="Score detection and localization methods on a dataset.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--version", metavar="VERSION", help="Version of the dataset.  [default: the newest]")
@click.option("--baselines", "names", multiple=True, metavar="NAMES", help="Names, by comma, or all.  [default: all]")
@click.option("--tasks", multiple=True, metavar="TASKS", help="detection, localization.  [default: both]")
@click.option(
    "--protocol",
    type=click.Choice(["detected", "oracle", "both"]),
    default="both",
    show_default=True,
    help="What a localizer is told: the alarm of ksigma, or the true onset.",
)
@click.option("--split", metavar="NAME", help="Published split.  [default: every episode, trained crosswise]")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for results.  [default: results beside DATASET]")
@click.option("--workers", type=click.IntRange(min=1), help="Methods that run at once.  [default: cores]")
@click.option("--scheduler", metavar="ADDRESS", help="Use this dask scheduler instead, for instance tcp://host:8786.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For methods that draw.")
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="For one answer.")
@click.option("--memory-limit", default="2GiB", show_default=True, help="For one answer.")
@json_option
def evaluate(
    dataset: Path,
    version: str | None,
    names: tuple[str, ...],
    tasks: tuple[str, ...],
    protocol: str,
    split: str | None,
    out: Path | None,
    workers: int | None,
    scheduler: str | None,
    seed: int,
    timeout: float,
    memory_limit: str,
    as_json: bool,
) -> None:
    """Score detection and localization methods on every episode of DATASET, beside controls.

    Writes results.parquet (one row for every answer), leaderboard.json, leaderboard.md and report.html.

    \b
    Example:
      faultset evaluate faultset-data/
      faultset evaluate faultset-data/ --baselines ksigma,mksmc --tasks detection
    """
    from faultset.datasets.errors import UsageError
    from faultset.evaluators import choices
    from faultset.evaluators.running.evaluation import default_workers
    from faultset.evaluators.running.planning import PROTOCOLS, TASKS, Settings
    from faultset.evaluators.running.runner import Limits

    if timeout <= 0:
        raise UsageError("a timeout of nothing lets no method answer; give for instance --timeout 60s")
    settings = Settings(
        tasks=choices.chosen_tasks(tasks, TASKS),
        protocols=PROTOCOLS if protocol == "both" else (protocol,),
        split=split,
        seed=seed,
        limits=Limits(timeout_s=timeout, memory_bytes=choices.memory_bytes(memory_limit)),
    )
    folder = out if out is not None else dataset.resolve().parent / "results"
    plan, rows = _run(dataset, version, names, settings, workers or default_workers(), scheduler, folder)
    board = _write(plan, rows, folder, seed)
    _show(board, folder, dataset, as_json)


def _run(dataset, version, names, settings, workers, scheduler, folder) -> tuple[Plan, list[ResultRow]]:
    """Open, check, plan and carry out, in the order in which mistakes are cheapest to find."""
    from contextlib import ExitStack

    from faultset.baselines.registry import get
    from faultset.datasets.versions import open_dataset
    from faultset.evaluators import choices, progress
    from faultset.evaluators.running.evaluation import carry_out, local_client, remote_client, remote_workers
    from faultset.evaluators.running.planning import Source, make_plan
    from faultset.evaluators.running.pool import close_machine_pool, machine_pool

    opened = open_dataset(dataset, version)
    _writable(folder)
    with ExitStack() as stack:
        if scheduler is None:
            # their imports take a second or two, in which labels are read and files are checked
            stack.callback(close_machine_pool)
            machine_pool().prestart(workers)
        specs = choices.chosen_baselines(names)
        source = Source.of(opened)
        plan = make_plan(source, specs, settings, workers, get)
        choices.check_content(opened, workers)
        if scheduler is None:
            client = stack.enter_context(local_client(workers))
        else:
            client = stack.enter_context(remote_client(scheduler, str(source.folder)))
            plan = make_plan(source, specs, settings, remote_workers(client), get)
        methods = len(plan.specs)
        what = f"{methods} {'baseline' if methods == 1 else 'baselines'}, {len(source.truths)} episodes"
        with progress.shown(plan.steps, what) as advance:
            return plan, carry_out(plan, client, advance)


def _writable(folder: Path) -> None:
    from faultset.datasets.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"results cannot be written to {folder} ({error.strerror}); choose another --out") from error


def _write(plan: Plan, rows: list[ResultRow], folder: Path, seed: int) -> Leaderboard:
    from faultset.evaluators.leaderboards.assembling import leaderboard_of
    from faultset.evaluators.leaderboards.writing import write_json, write_markdown
    from faultset.evaluators.reports.page import write_report
    from faultset.evaluators.rows import read_rows, write_rows

    write_rows(rows, folder / RESULTS)
    stored = read_rows(folder / RESULTS)
    board = leaderboard_of(stored, digest=plan.source.digest, settings=_told(plan), seed=seed)
    write_json(board, folder / "leaderboard.json")
    write_markdown(board, folder / "leaderboard.md")
    write_report(board, stored, plan.specs, plan.source.folder, folder / "report.html")
    return board


def _told(plan: Plan) -> dict[str, object]:
    settings = plan.settings
    return {
        "tasks": list(settings.tasks),
        "protocols": list(settings.protocols),
        "alarm_detector": settings.alarm_detector,
        "threshold_policy": "reference",
        "split": settings.split or "cross",
        "seed": settings.seed,
        "timeout_s": settings.limits.timeout_s,
        "memory_limit_bytes": settings.limits.memory_bytes,
        "cluster_key": "application, fault, target",
    }


def _show(board: Leaderboard, folder: Path, dataset: Path, as_json: bool) -> None:
    from faultset.datasets.console import show_json

    if as_json:
        from faultset.evaluators.leaderboards.writing import plain

        show_json(plain(board))
        return
    from rich.console import Console

    from faultset.evaluators.leaderboards import terminal

    console = Console(highlight=False)
    terminal.show(board, console if console.is_terminal else Console(highlight=False, width=150))
    click.echo(f"\nReport:  {folder / 'report.html'}\nResults: {folder / RESULTS}, leaderboard.md, leaderboard.json")
    if board.quick:
        click.echo("Next:    collect --profile standard ... for numbers that rank methods")
    else:
        click.echo(f"Next:    faultset list baselines, or evaluate {dataset} --split by-fault for unseen faults")
