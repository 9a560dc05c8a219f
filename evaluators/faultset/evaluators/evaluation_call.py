"""Evaluate baselines on a dataset from Python: what the command `evaluate` does, without printing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, UsageError
from faultset.datasets.remote.file_systems import is_url, local_path
from faultset.evaluators.agent_evaluation.evaluation import AgentEvaluation
from faultset.evaluators.agent_evaluation.recorded_runs import check_agent_names, read_recorded_runs
from faultset.evaluators.evaluation import FILES, RESULTS_FILE, Evaluation, EvaluationStart
from faultset.evaluators.evaluation_settings import (
    alarm_detector,
    budgets_of_evidence,
    fits_used_again,
    settings_of,
    shown_settings,
)
from faultset.evaluators.execution.checkpoint import CHECKPOINT_FILE, Checkpoint
from faultset.evaluators.execution.dataset_source import opened_dataset
from faultset.evaluators.execution.planning.baseline_groups import choose_baselines
from faultset.evaluators.execution.planning.plan import make_plan
from faultset.evaluators.execution.planning.runs import codes_of
from faultset.evaluators.execution.planning.settings import check_choice, folds_of, with_default_alarm
from faultset.evaluators.execution.planning.training_data import training_data
from faultset.evaluators.leaderboards.trained_thresholds import training_policy, with_training_thresholds
from faultset.evaluators.predictions.files import check_names, read_predictions
from faultset.evaluators.predictions.prediction_rows import prediction_rows
from faultset.evaluators.results.output_folder import check_writable, writing
from faultset.evaluators.results.provenance import changed_codes, code_version, parameters_of
from faultset.evaluators.results.rows import TASKS, ResultRow
from faultset.evaluators.scoring.thresholds import chosen_policies

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec
    from faultset.datasets.dataset import Dataset


def evaluate(
    dataset: str | Path | Dataset,
    baselines: Iterable[str | BaselineSpec | type] = (),
    *,
    version: str | None = None,
    tasks: Sequence[str] = TASKS,
    protocol: Literal["detected", "oracle", "both"] = "both",
    alarm: str | None = None,
    split: str | None = None,
    train: str | Path | Dataset | None = None,
    delays: Literal["auto"] | Sequence[float] = (),
    evidence: Literal["auto"] | Sequence[float] = (),
    thresholds: Sequence[str] = (),
    predictions: Sequence[str | Path] = (),
    agents: Sequence[str | Path] = (),
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
        What localizers and diagnosers are given: the alarm of a detector ("detected"), the true onset ("oracle").
    alarm
        The detector whose alarm that is; by default `trace-errors`, and `spot` in episodes without
        spans.
    split
        Published split; or a scheme that scores every episode by what learned from others: "cross", the default, for
        two halves, "cross-5", "cross-5x3", "leave-one-fault-out", "leave-one-target-out", "leave-one-app-out".
    train
        Another dataset (folder, URL, or opened) that methods learn from; all of `dataset` is then tested. No episode
        may be in both, and fault episodes whose (application, fault, target) is tested are not learned from.
    delays
        Seconds after the onset at which localizers are also given an alarm, or "auto".
    evidence
        Seconds after the onset, and after the alarm, at which the views of methods also end, or "auto": how often each
        is right over the evidence seen, and from when on.
    thresholds
        Threshold policies beside `reference`; `train-quantile(0.995)` by default.
    predictions
        Files with answers that were made elsewhere, `FILE` or `NAME=FILE`, scored beside the baselines; see
        docs/predictions.md for their columns.
    agents
        Logs of Inspect, or folders of runs, about these episodes; see docs/agents.md.
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
        Run everything again, also what a checkpoint in `out` holds, and fit everything anew.
    started
        Called once, before the first method starts.
    progress
        Called as steps finish.

    Raises
    ------
    UsageError
        Something that was asked for does not exist, or fits no chosen task.
    DataError
        The dataset or a prediction file is damaged, the one does not fit the other, or the dataset poses no task.
    PlatformError
        The scheduler cannot be reached or is lost; what was answered until then is in the checkpoint.

    Examples
    --------
    >>> from faultset.evaluators import evaluate
    >>> done = evaluate("datasets/sample", ["ksigma", "max-z"])  # doctest: +SKIP
    >>> done.leaderboard("localization")[["baseline", "protocol", "ac1"]]  # doctest: +SKIP
    """
    from faultset.baselines.api.registry import get_baseline, list_baselines
    from faultset.evaluators.execution import dask_clients, scheduling
    from faultset.evaluators.execution.runners.runner_pool import close_machine_pool, machine_pool

    if train is not None and (split is not None or predictions):
        raise UsageError(
            "with a dataset to train on, all of the other one is tested, by baselines that are fitted here; "
            f"leave out the {'split' if split is not None else 'predictions'}"
        )
    policies = chosen_policies(list(thresholds))
    settings = settings_of(tasks, protocol, split, delays, policies, seed, timeout_s, memory_limit_bytes)
    settings = replace(settings, evidence=budgets_of_evidence(evidence))
    named_alarm = None if alarm is None else alarm_detector(alarm)
    workers = workers or dask_clients.default_workers()
    folder = None if out is None else Path(out)
    files = [read_predictions(given) for given in predictions]
    agent_runs = read_recorded_runs(agents)
    with ExitStack() as stack:
        read_source = stack.enter_context(opened_dataset(dataset, version, workers))
        if folder is not None:
            check_writable(folder)
        if scheduler is None:
            dask_clients.check_address_space(workers)
        running = stack.enter_context(ExitStack())
        if scheduler is None:
            # their imports take a second or two, in which labels are read and files are checked
            running.callback(close_machine_pool)
            machine_pool().prestart(workers)
        specs = choose_baselines(baselines)
        # to know all names, all methods must be imported, which takes a second
        names = [*(list_baselines() if files or agents else ()), *(spec.name for spec in specs)]
        check_names(files, names)
        check_agent_names(agent_runs, [*names, *(file.name for file in files)])
        source = read_source()
        if named_alarm is None:
            settings = with_default_alarm(settings, source)
        else:
            settings = replace(settings, alarm_detector=named_alarm)
        training = None
        if train is not None:
            training = training_data(stack.enter_context(opened_dataset(train, None, workers))(), source)
            settings = replace(settings, train=f"{training.name} {training.source.digest}")
        if any(file.sets_threshold_in_training for file in files) or not all(spec.own_threshold for spec in specs):
            # tables compare detectors by one rule, which then is that of training episodes
            settings = replace(settings, calibrate=True)
        check_choice(source, specs, settings)
        predicted = prediction_rows(files, source, settings, training)
        folds = folds_of(source, settings) if training is None else [training.fold]
        learned = training.source.truths if training is not None else ()
        acting = AgentEvaluation(agent_runs, source, settings, folds, learned)
        acting.check(specs)
        checkpoint, kept, changed = None, [], ()
        if folder is not None:
            about = {"digest": source.digest, "code": code_version(), "split": split or ""}
            about |= {"train": settings.train} if settings.train else {}
            known = (*source.truths, *learned)
            codes = codes_of(specs, settings, get_baseline) | {file.name: file.code for file in files}
            with writing(folder):
                checkpoint = stack.enter_context(Checkpoint(folder, about, codes))
                kept = checkpoint.begin({truth.episode: truth for truth in known}, fresh=fresh)
            changed = checkpoint.changed or changed_codes(folder / RESULTS_FILE, codes)
        if scheduler is None:
            client = running.enter_context(dask_clients.local_client(workers))
        else:
            client = running.enter_context(
                dask_clients.remote_client(scheduler, None if source.url else str(source.folder))
            )
            workers = dask_clients.remote_workers(client)
        hidden = [] if folder is None else [folder / name for name in (*FILES, CHECKPOINT_FILE)]
        plan = make_plan(
            source, specs, settings, workers, get_baseline, training=training, kept=kept, hidden=hidden, fresh=fresh
        )
        if started is not None:
            started(
                EvaluationStart(
                    baselines=tuple(spec.name for spec in plan.specs),
                    episodes=len(source.truths),
                    faulty=sum(truth.faulty for truth in source.truths),
                    answers=plan.answers,
                    workers=workers,
                    expected_s=plan.expected_s(workers),
                    kept=len(plan.kept),
                    changed=changed,
                    dashboard=dask_clients.dashboard_of(client),
                )
            )
        # the last step is scoring and the report
        finished = StepCounter(plan.steps + 1, progress)

        def store(rows: list[ResultRow]) -> None:
            if folder is not None and checkpoint is not None:
                with writing(folder):
                    checkpoint.add(rows)

        damage: dict[str, DataError] = {}

        def leave_out(episode: str, error: DataError) -> None:
            damage.setdefault(episode, error)

        isolated = dask_clients.isolation_of(client)
        fits: list[tuple[str, bool]] = []
        rows = scheduling.run_plan(plan, client, finished.add, store, leave_out, fits.extend)
        acted = acting.results(rows)
        rows += [*predicted, *acted.rows]
        running.close()
        # Of a damaged episode some methods may have answered: it is in no table of any.
        rows = [row for row in rows if row.episode not in damage]
        if damage and not rows:
            raise next(iter(damage.values()))
        undecided = {spec.name for spec in plan.specs if not spec.own_threshold}
        rows = with_training_thresholds(rows, undecided, training_policy(policies)) if undecided else rows
        evaluation = Evaluation(
            rows=tuple(rows),
            specs=plan.specs,
            dataset=None if source.url else source.folder,
            digest=source.digest,
            settings=shown_settings(source, settings, training)
            | {
                "isolation": isolated,
                "parameters": {spec.name: given for spec in plan.specs if (given := parameters_of(spec))},
                "predictions": {file.name: file.record for file in files},
                "reference_gaps": source.reference_gaps(),
                **({"agents_left_out": list(acted.left_out)} if acted.left_out else {}),
                **fits_used_again(fits),
            },
            agent_runs=acted.runs,
            agent_looks=acted.looks,
            policies=tuple(policies),
            seed=seed,
        )
        if folder is not None and checkpoint is not None:
            evaluation.write(folder)
            if not damage:
                checkpoint.remove()
        finished.finish()
        if damage:
            first = str(next(iter(damage.values()))).removesuffix("; restore the file")
            left = f"{len(damage)} of {len(source.truths)} episodes were damaged meanwhile and are left out"
            where = "" if folder is None else f" of the results in {folder}"
            raise DataError(f"{first}; {left}{where}; restore the file, then run the same command again")
        return evaluation


def results_folder(dataset: str) -> Path:
    """Return the folder for the results of a local dataset when none is named: `results/NAME` beside it.

    Those of a dataset that comes with the project are in the current folder.

    Raises
    ------
    UsageError
        The dataset is behind a URL, or a link stands where the results belong.
    """
    if is_url(dataset):
        raise UsageError(f"results cannot be written beside {dataset}; give a local folder with --out")
    found = local_path(dataset)
    folder = (found if found.name != dataset else Path(dataset)).resolve()
    results = folder.parent / "results"
    for place in (results, results / folder.name):
        # it may have come with the dataset, and lead anywhere
        if place.is_symlink():
            raise UsageError(f"{place} is a link; remove it, or name the folder for the results with --out")
    return results / folder.name
