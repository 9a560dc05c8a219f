"""`evaluate`: score methods on a dataset."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.core.completion import complete_names
from faultset.core.console import DURATION, command, json_option

if TYPE_CHECKING:
    from faultset.evaluators.execution.dataset_source import DatasetSource
    from faultset.evaluators.execution.planning.plan import EvaluationPlan, EvaluationSettings
    from faultset.evaluators.leaderboards.records import Leaderboard
    from faultset.evaluators.results.rows import ResultRow
    from faultset.evaluators.scoring.thresholds import ThresholdPolicy

RESULTS = "results.parquet"
NO_DASHBOARD = 'none without bokeh; pip install "faultset[dashboard]" gives one'


@command("evaluate", short_help="Score detection, localization and root cause methods on a dataset.")
@click.argument("dataset", required=False)
@click.option("--version", metavar="VERSION", help="Version of the dataset.  [default: the newest]")
@click.option(
    "--baselines",
    "names",
    multiple=True,
    metavar="NAMES",
    shell_complete=complete_names("faultset.baselines", "default", "all", "named", "methods", "rules", "controls"),
    help="Names or groups, by comma: default, all, named, methods, rules, controls.  [default: all but slow methods]",
)
@click.option("--tasks", multiple=True, metavar="TASKS", help="detection, localization, rca.  [default: all]")
@click.option(
    "--protocol",
    type=click.Choice(["detected", "oracle", "both"]),
    default="both",
    show_default=True,
    help="What a localizer is given: the alarm of ksigma, or the true onset.",
)
@click.option(
    "--delays", metavar="auto|SECONDS", help="Also give localizers later alarms: auto, or for instance 0,30,60."
)
@click.option(
    "--thresholds",
    multiple=True,
    metavar="POLICIES",
    help="reference, train-quantile(0.995), train-budget(1).  [default: reference,train-quantile(0.995)]",
)
@click.option("--split", metavar="NAME", help="Published split.  [default: every episode, trained crosswise]")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for results.  [default: results beside DATASET]")
@click.option("--workers", type=click.IntRange(min=1), help="Methods that run at once.  [default: cores]")
@click.option("--scheduler", metavar="ADDRESS", help="Use this dask scheduler instead, for instance tcp://host:8786.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For methods that draw.")
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="For one answer.")
@click.option("--memory-limit", default="2GiB", show_default=True, help="For one answer.")
@click.option("--fresh", is_flag=True, help="Run everything again, also what an interrupted evaluation has left.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="OLD NEW",
    help="Evaluate nothing; compare two folders of results, method by method on the same episodes.",
)
@json_option
def evaluate(
    dataset: str | None,
    version: str | None,
    names: tuple[str, ...],
    tasks: tuple[str, ...],
    protocol: str,
    delays: str | None,
    thresholds: tuple[str, ...],
    split: str | None,
    out: Path | None,
    workers: int | None,
    scheduler: str | None,
    seed: int,
    timeout: float,
    memory_limit: str,
    fresh: bool,
    compare: tuple[Path, Path] | None,
    as_json: bool,
) -> None:
    """Score detection, localization and root cause methods on every episode of DATASET, beside controls.

    DATASET is a folder or a URL that fsspec knows. Writes results.parquet (one row for every answer),
    leaderboard.json, leaderboard.md and report.html. An evaluation that was interrupted goes on when the same
    command is given again.

    \b
    Example:
      faultset evaluate faultset-data/
      faultset evaluate faultset-data/ --baselines ksigma,mksmc --tasks detection
      faultset evaluate s3://bucket/data --version 1.0.0 --scheduler tcp://10.0.0.5:8786 --out results
      faultset evaluate --compare results-before/ results/
    """
    from faultset.core.errors import UsageError

    if compare and dataset is None:
        from faultset.evaluators.comparison.command import compare_runs

        compare_runs(*compare, out, seed=seed, as_json=as_json)
        return
    if compare or dataset is None:
        raise UsageError("give either a DATASET to evaluate, or --compare OLD NEW with two folders of results")
    from faultset.evaluators.cli import options
    from faultset.evaluators.execution.dataset_source import is_url, local_path
    from faultset.evaluators.execution.planning.plan import PROTOCOLS, TASKS, EvaluationSettings
    from faultset.evaluators.execution.runners.runner_process import RunLimits
    from faultset.evaluators.execution.scheduling import default_workers
    from faultset.evaluators.scoring.thresholds import chosen_policies

    if timeout <= 0:
        raise UsageError("a timeout of nothing lets no method answer; give for instance --timeout 60s")
    policies = chosen_policies(options.names(thresholds))
    settings = EvaluationSettings(
        tasks=options.chosen_tasks(tasks, TASKS),
        protocols=PROTOCOLS if protocol == "both" else (protocol,),
        split=split,
        seed=seed,
        limits=RunLimits(timeout_s=timeout, memory_bytes=options.memory_bytes(memory_limit)),
        delays=options.chosen_delays(delays),
        calibrate=any(policy.needs_training for policy in policies),
    )
    if out is None and is_url(dataset):
        raise UsageError(f"results cannot be written beside {dataset}; give a local folder with --out")
    folder = out if out is not None else local_path(dataset).resolve().parent / "results"
    order = Order(
        dataset=dataset,
        version=version,
        names=names,
        settings=settings,
        workers=workers or default_workers(),
        scheduler=scheduler,
        folder=folder,
        fresh=fresh,
    )
    with ExitStack() as stack:
        plan, rows, checkpoint = _run(order, stack)
        board = _write(plan, rows, folder, seed, policies)
        checkpoint.remove()
    _show(board, folder, dataset, as_json)


@dataclass(frozen=True, kw_only=True)
class Order:
    """An evaluation as it was ordered."""

    dataset: str
    version: str | None
    names: tuple[str, ...]
    settings: EvaluationSettings
    workers: int
    scheduler: str | None
    folder: Path
    fresh: bool


def _run(order: Order, stack: ExitStack):
    """Open, check, plan and carry out, in the order in which mistakes are cheapest to find."""
    from faultset.baselines.api.registry import get_baseline
    from faultset.core import progress
    from faultset.evaluators.cli import options
    from faultset.evaluators.execution import scheduling
    from faultset.evaluators.execution.checkpoint import Checkpoint
    from faultset.evaluators.execution.planning.plan import make_plan
    from faultset.evaluators.execution.runners.runner_pool import close_machine_pool, machine_pool
    from faultset.evaluators.results.provenance import code_version

    source_of = _opened(order, stack)
    _writable(order.folder)
    with ExitStack() as running:
        if order.scheduler is None:
            # their imports take a second or two, in which labels are read and files are checked
            running.callback(close_machine_pool)
            machine_pool().prestart(order.workers)
        specs = options.chosen_baselines(order.names)
        source = source_of()
        make_plan(source, specs, order.settings, order.workers, get_baseline)
        about = {"digest": source.digest, "code": code_version(), "split": order.settings.split or ""}
        checkpoint = stack.enter_context(Checkpoint(order.folder, about))
        kept = checkpoint.begin({truth.episode: truth for truth in source.truths}, fresh=order.fresh)
        workers = order.workers
        if order.scheduler is None:
            client = running.enter_context(scheduling.local_client(workers))
        else:
            shared = None if source.url else str(source.folder)
            client = running.enter_context(scheduling.remote_client(order.scheduler, shared))
            workers = scheduling.remote_workers(client)
        plan = make_plan(source, specs, order.settings, workers, get_baseline, kept=kept)
        _announce(plan, scheduling.dashboard_of(client), order)
        methods = len(plan.specs)
        what = f"{methods} {'baseline' if methods == 1 else 'baselines'}, {len(source.truths)} episodes"
        with progress.shown(plan.steps, what) as advance:
            return plan, scheduling.run_plan(plan, client, advance, checkpoint.add), checkpoint


def _opened(order: Order, stack: ExitStack):
    """Open the dataset; what is returned reads its labels."""
    from faultset.datasets.dataset import open_dataset
    from faultset.evaluators.cli import options
    from faultset.evaluators.execution.dataset_source import DatasetSource, is_url, local_path, opened_elsewhere

    if is_url(order.dataset):
        elsewhere = stack.enter_context(opened_elsewhere(order.dataset, order.version))
        return lambda: elsewhere
    opened = open_dataset(local_path(order.dataset), order.version)

    def read() -> DatasetSource:
        options.check_content(opened, order.workers)
        return DatasetSource.of(opened)

    return read


def _announce(plan: EvaluationPlan, dashboard: str | None, order: Order) -> None:
    from faultset.evaluators.cli import options

    click.echo(f"Dashboard: {dashboard or NO_DASHBOARD}", err=True)
    if plan.kept:
        click.echo(f"{len(plan.kept)} answers of an interrupted evaluation are used; --fresh asks again", err=True)
    slow = options.left_out(plan.specs) if not order.names else []
    if slow:
        click.echo(f"Left out because they are slow: {', '.join(slow)}; --baselines all runs them", err=True)


def _writable(folder: Path) -> None:
    from faultset.core.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"results cannot be written to {folder} ({error.strerror}); choose another --out") from error


def _write(
    plan: EvaluationPlan, rows: list[ResultRow], folder: Path, seed: int, policies: list[ThresholdPolicy]
) -> Leaderboard:
    from faultset.evaluators.leaderboards.formats import write_json, write_markdown
    from faultset.evaluators.leaderboards.leaderboard import leaderboard_of
    from faultset.evaluators.reports.page import write_report
    from faultset.evaluators.results.rows import write_rows

    write_rows(rows, folder / RESULTS)
    board = leaderboard_of(rows, digest=plan.source.digest, settings=_settings_of(plan), seed=seed, policies=policies)
    write_json(board, folder / "leaderboard.json")
    write_markdown(board, folder / "leaderboard.md")
    write_report(board, rows, plan.specs, plan.source.folder, folder / "report.html")
    return board


def _settings_of(plan: EvaluationPlan) -> dict[str, object]:
    from faultset.evaluators.reports.machine import machine

    settings = plan.settings
    return {
        "tasks": list(settings.tasks),
        "protocols": list(settings.protocols),
        "delays_s": list(settings.delays),
        "alarm_detector": settings.alarm_detector,
        "threshold_policy": "reference",
        "split": settings.split or "cross",
        "seed": settings.seed,
        "timeout_s": settings.limits.timeout_s,
        "memory_limit_bytes": settings.limits.memory_bytes,
        "cluster_key": "application, fault, target",
        "source": plan.source.url or str(plan.source.folder),
        "machine": machine(),
    }


def _show(board: Leaderboard, folder: Path, dataset: str, as_json: bool) -> None:
    from faultset.core.console import show_json

    if as_json:
        from faultset.evaluators.leaderboards.formats import to_json

        show_json(to_json(board))
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
