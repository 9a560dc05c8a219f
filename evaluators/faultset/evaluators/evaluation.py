"""Evaluate baselines on a dataset from Python: what the command `evaluate` does, without printing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name
from faultset.evaluators.execution.checkpoint import CHECKPOINT_FILE, Checkpoint
from faultset.evaluators.execution.dataset_source import DatasetSource, is_url, local_path, opened_dataset
from faultset.evaluators.execution.planning.baseline_groups import choose_baselines
from faultset.evaluators.execution.planning.plan import EvaluationSettings, check_choice, codes_of, make_plan
from faultset.evaluators.execution.runners.confinement import isolation
from faultset.evaluators.execution.runners.outcomes import RunLimits
from faultset.evaluators.leaderboards.formats import write_json, write_markdown
from faultset.evaluators.leaderboards.frames import leaderboard_frame
from faultset.evaluators.leaderboards.leaderboard import leaderboard_of
from faultset.evaluators.leaderboards.records import Failure, Leaderboard, Table
from faultset.evaluators.results.provenance import code_version, scorer_codes
from faultset.evaluators.results.rows import PROTOCOLS, TASKS, ResultRow, changed_codes, write_rows
from faultset.evaluators.scoring.thresholds import ThresholdPolicy, chosen_policies

if TYPE_CHECKING:
    import pandas as pd

    from faultset.baselines.api.registry import BaselineSpec
    from faultset.datasets.dataset import Dataset

RESULTS_FILE = "results.parquet"
FILES = (RESULTS_FILE, "leaderboard.json", "leaderboard.md", "report.html")
DELAYS_S = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""The grid "auto": doubling, because the first seconds matter most."""
Progress = Callable[[int, int], None]
"""Called with the steps that are finished and all steps, possibly from another thread."""


@dataclass(frozen=True, kw_only=True)
class EvaluationStart:
    """What is known when the first method starts."""

    baselines: tuple[str, ...]
    episodes: int
    steps: int
    """Fits and answers that are to come."""
    kept: int
    """Answers of an interrupted evaluation that are used again."""
    changed: tuple[str, ...] = ()
    """What has changed since the last evaluation into the same folder, interrupted or not."""
    dashboard: str | None
    """Address of dask's page; None where the local scheduler has none."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All answers of an evaluation, and what is computed from them."""

    rows: tuple[ResultRow, ...] = field(repr=False)
    """One for every answer."""
    specs: tuple[BaselineSpec, ...] = field(default=(), repr=False)
    """The baselines that were run, for the report."""
    dataset: Path | None = None
    """Folder with the telemetry of the episodes, for the report."""
    digest: str = ""
    """SHA-256 of the dataset version's list of files."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    policies: tuple[ThresholdPolicy, ...] = field(default=(), repr=False)
    seed: int = 0
    """Of the bootstrap."""

    @cached_property
    def board(self) -> Leaderboard:
        """Every table with what a reader must know to judge it."""
        return leaderboard_of(
            self.rows, digest=self.digest, settings=self.settings, seed=self.seed, policies=self.policies
        )

    @property
    def tables(self) -> tuple[Table, ...]:
        """One table for each task, protocol, application, verdict and group of methods."""
        return self.board.tables

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Answers that are missing because a method failed; they count as wrong."""
        return self.board.failures

    def leaderboard(self, task: str | None = None, *, intervals: bool = False) -> pd.DataFrame:
        """Return the tables as one frame: a line for each method in each table.

        Parameters
        ----------
        task
            Only the tables of detection, localization or rca, with the metrics of that task.
        intervals
            Add the columns `<metric>_low` and `<metric>_high`, the ends of 95 % intervals.

        Returns
        -------
        pandas.DataFrame
            Columns `task`, `protocol`, `app`, `verdict`, `group`, `rank`, `baseline`, `kind`, one for each metric (NaN
            where it is unknown), `failed` (answers), `cpu_s` (median of an answer) and `episodes` (with a fault).
        """
        if task is not None and task not in TASKS:
            raise unknown_name("task", task, TASKS)
        return leaderboard_frame([table for table in self.tables if task in (None, table.task)], intervals=intervals)

    def write(self, folder: str | Path) -> tuple[Path, ...]:
        """Write results.parquet, leaderboard.json, leaderboard.md and report.html into a folder.

        Returns
        -------
        tuple of Path
            The files.
        """
        from faultset.evaluators.reports.page import write_report

        folder = Path(folder)
        check_writable(folder)
        paths = tuple(folder / name for name in FILES)
        write_rows(self.rows, paths[0])
        write_json(self.board, paths[1])
        write_markdown(self.board, paths[2])
        write_report(self.board, self.rows, self.specs, self.dataset, paths[3])
        return paths


def evaluate(
    dataset: str | Path | Dataset,
    baselines: Iterable[str | BaselineSpec | type] = (),
    *,
    version: str | None = None,
    tasks: Sequence[str] = TASKS,
    protocol: Literal["detected", "oracle", "both"] = "both",
    split: str | None = None,
    delays: Literal["auto"] | Sequence[float] = (),
    thresholds: Sequence[str] = (),
    workers: int | None = None,
    scheduler: str | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    timeout_s: float = 60.0,
    memory_limit_bytes: int = 2 << 30,
    fresh: bool = False,
    started: Callable[[EvaluationStart], None] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run baselines on every episode of a dataset and score their answers.

    Parameters
    ----------
    dataset
        Folder, URL that fsspec knows, or an opened dataset.
    baselines
        Names, groups ("default", "all", "named", "methods", "rules", "controls"), specs or registered classes.
    version
        Version of the dataset; the newest by default.
    protocol
        What localizers and diagnosers are given: the alarm of `ksigma` ("detected"), the true onset ("oracle").
    split
        Published split; or a scheme that scores every episode by what learned from others: "cross", the default, for
        two halves, "cross-5", "cross-5x3", "leave-one-fault-out", "leave-one-target-out", "leave-one-app-out".
    delays
        Seconds after the onset at which localizers are also given an alarm, or "auto".
    thresholds
        Threshold policies beside `reference`; `train-quantile(0.995)` by default.
    workers
        Methods that run at once; as many as there are cores by default.
    scheduler
        Address of a dask scheduler to use instead, for instance `tcp://host:8786`.
    out
        Folder for the results and, while it runs, for a checkpoint from which the same call goes on after an
        interruption. Without it nothing is written.
    seed
        For methods that draw random numbers and for the bootstrap.
    timeout_s, memory_limit_bytes
        What a baseline may use for one answer.
    fresh
        Run everything again, also what a checkpoint in `out` holds.
    started
        Called once, before the first method starts.
    progress
        Called as steps finish.

    Raises
    ------
    UsageError
        Something that was asked for does not exist, or fits no chosen task.
    DataError
        The dataset is damaged, or poses none of the tasks.
    PlatformError
        The scheduler cannot be reached or is lost; what was answered until then is in the checkpoint.

    Examples
    --------
    >>> from faultset.evaluators import evaluate
    >>> done = evaluate("datasets/sample", ["ksigma", "max-z"])  # doctest: +SKIP
    >>> done.leaderboard("localization")[["baseline", "protocol", "ac1"]]  # doctest: +SKIP
    """
    from faultset.baselines.api.registry import get_baseline
    from faultset.evaluators.execution import scheduling
    from faultset.evaluators.execution.runners.runner_pool import close_machine_pool, machine_pool

    policies = chosen_policies(list(thresholds))
    settings = _settings(tasks, protocol, split, delays, policies, seed, timeout_s, memory_limit_bytes)
    workers = workers or scheduling.default_workers()
    folder = None if out is None else Path(out)
    with ExitStack() as stack:
        read_source = stack.enter_context(opened_dataset(dataset, version, workers))
        if folder is not None:
            check_writable(folder)
        running = stack.enter_context(ExitStack())
        if scheduler is None:
            # their imports take a second or two, in which labels are read and files are checked
            running.callback(close_machine_pool)
            machine_pool().prestart(workers)
        specs = choose_baselines(baselines)
        source = read_source()
        check_choice(source, specs, settings)
        checkpoint, kept, changed = None, [], ()
        if folder is not None:
            about = {"digest": source.digest, "code": code_version(), "split": split or ""}
            codes = codes_of(specs, settings, get_baseline)
            checkpoint = stack.enter_context(Checkpoint(folder, about, codes))
            kept = checkpoint.begin({truth.episode: truth for truth in source.truths}, fresh=fresh)
            changed = checkpoint.changed or changed_codes(folder / RESULTS_FILE, codes)
        if scheduler is None:
            client = running.enter_context(scheduling.local_client(workers))
        else:
            client = running.enter_context(
                scheduling.remote_client(scheduler, None if source.url else str(source.folder))
            )
            workers = scheduling.remote_workers(client)
        hidden = [] if folder is None else [folder / name for name in (*FILES, CHECKPOINT_FILE)]
        plan = make_plan(source, specs, settings, workers, get_baseline, kept=kept, hidden=hidden)
        if started is not None:
            started(
                EvaluationStart(
                    baselines=tuple(spec.name for spec in plan.specs),
                    episodes=len(source.truths),
                    steps=plan.steps,
                    kept=len(plan.kept),
                    changed=changed,
                    dashboard=scheduling.dashboard_of(client),
                )
            )
        finished = _Counter(plan.steps, progress)
        store = checkpoint.add if checkpoint is not None else lambda rows: None
        rows = scheduling.run_plan(plan, client, finished.add, store)
        running.close()
        evaluation = Evaluation(
            rows=tuple(rows),
            specs=plan.specs,
            dataset=None if source.url else source.folder,
            digest=source.digest,
            settings=_shown_settings(source, settings),
            policies=tuple(policies),
            seed=seed,
        )
        if folder is not None and checkpoint is not None:
            evaluation.write(folder)
            checkpoint.remove()
        return evaluation


def results_folder(dataset: str) -> Path:
    """Return the folder for the results of a local dataset when none is named: `results/NAME` beside it.

    Raises
    ------
    UsageError
        The dataset is behind a URL.
    """
    if is_url(dataset):
        raise UsageError(f"results cannot be written beside {dataset}; give a local folder with --out")
    folder = local_path(dataset).resolve()
    return folder.parent / "results" / folder.name


def check_writable(folder: Path) -> None:
    """Make sure that files can be written into a folder.

    Raises
    ------
    UsageError
        They cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"results cannot be written to {folder} ({error.strerror}); choose another --out") from error


class _Counter:
    """Steps that are finished, for a caller's progress."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress = total, progress
        self._done = 0

    def add(self, steps: int) -> None:
        self._done += steps
        if self._progress is not None:
            self._progress(self._done, self._total)


def _settings(
    tasks: Sequence[str],
    protocol: str,
    split: str | None,
    delays: Literal["auto"] | Sequence[float],
    policies: Sequence[ThresholdPolicy],
    seed: int,
    timeout_s: float,
    memory_bytes: int,
) -> EvaluationSettings:
    for task in tasks:
        if task not in TASKS:
            raise unknown_name("task", task, TASKS)
    if protocol not in (*PROTOCOLS, "both"):
        raise unknown_name("protocol", protocol, (*PROTOCOLS, "both"))
    if timeout_s <= 0:
        raise UsageError("with a timeout of 0 s no method can answer; give for instance 60 s")
    return EvaluationSettings(
        tasks=tuple(task for task in TASKS if task in tasks),
        protocols=PROTOCOLS if protocol == "both" else (protocol,),
        split=split,
        seed=seed,
        limits=RunLimits(timeout_s=timeout_s, memory_bytes=memory_bytes),
        delays=DELAYS_S if delays == "auto" else tuple(sorted({float(delay) for delay in delays})),
        calibrate=any(policy.needs_training for policy in policies),
    )


def _shown_settings(source: DatasetSource, settings: EvaluationSettings) -> dict[str, object]:
    from faultset.evaluators.reports.machine import machine

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
        "scorers": scorer_codes(),
        "isolation": isolation(),
        "source": source.url or str(source.folder),
        "machine": machine(),
    }
