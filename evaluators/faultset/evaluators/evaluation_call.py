"""Evaluate methods on a dataset from Python, as the command `evaluate` does, without printing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import count_text
from faultset.datasets.remote.file_systems import is_url, local_path
from faultset.evaluators.agent_evaluation.evaluation import (
    AgentEvaluation,
    AgentResults,
    RecordedRun,
    check_agent_names,
    read_recorded_runs,
)
from faultset.evaluators.evaluation import FILES, RESULTS_FILE, Evaluation, EvaluationStart
from faultset.evaluators.execution.baseline_choice import choose_baselines
from faultset.evaluators.execution.checkpoint import CHECKPOINT_FILE, Checkpoint
from faultset.evaluators.execution.dataset_source import DatasetSource, open_source
from faultset.evaluators.execution.plan import identify_codes, make_plan
from faultset.evaluators.execution.scheduling import MethodEngine, describe_isolation, find_dashboard, run_plan
from faultset.evaluators.execution.settings import (
    EvaluationOptions,
    EvaluationScope,
    EvaluationSettings,
    build_training_data,
)
from faultset.evaluators.leaderboards.trained_thresholds import apply_training_thresholds, training_policy
from faultset.evaluators.predictions.files import PredictionFile, check_names, read_prediction_file
from faultset.evaluators.predictions.prediction_rows import read_predictions
from faultset.evaluators.results.output_folder import check_writable, writing
from faultset.evaluators.results.provenance import code_version, find_changed_codes, identify_scorers, read_parameters
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.stored_answers import StoredAnswer

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec
    from faultset.datasets.dataset import Dataset


def evaluate(
    dataset: str | Path | Dataset,
    methods: Iterable[str | BaselineSpec | type | Callable[..., Any]] | Mapping[str, Callable[..., Any]] = (),
    *,
    predictions: Sequence[str | Path] = (),
    agents: Sequence[str | Path] = (),
    out: str | Path | None = None,
    started: Callable[[EvaluationStart], None] | None = None,
    progress: Progress | None = None,
    **options: Unpack[EvaluationOptions],
) -> Evaluation:
    """Run methods on every episode of a dataset and score their answers.

    Parameters
    ----------
    dataset
        Folder, URL that fsspec supports, or opened dataset.
    methods
        Names, groups ("default", "all", "named", "methods", "rules", "controls"), registered classes, specs, and
        functions that take an episode and an alarm and return `{service: score}`. Or a mapping from names to such
        functions.
    predictions
        Files with predictions of your own models, `FILE` or `NAME=FILE`, scored with the methods; see
        docs/how-to/predictions.md for their columns.
    agents
        Logs of Inspect, or folders of runs, about these episodes; see docs/how-to/agents.md.
    out
        Folder for the results, and for a checkpoint from which the same call resumes after an interruption. None
        writes nothing.
    started
        Called once, before the first method starts.
    progress
        Called as steps finish.
    **options
        Tasks, protocol, split, seed, limits and the like: the keys of `EvaluationOptions`.

    Raises
    ------
    UsageError
        A name does not exist, or a method fits no chosen task.
    DataError
        The dataset or a prediction file is damaged, they do not match, or the dataset has no labels for the tasks.
    PlatformError
        The scheduler is unreachable or gone; finished answers are in the checkpoint.

    Examples
    --------
    >>> from faultset.evaluators import evaluate
    >>> evaluation = evaluate("datasets/sample", ["ksigma", "max-z"])  # doctest: +SKIP
    >>> evaluation.leaderboard("localization")[["baseline", "protocol", "ac1"]]  # doctest: +SKIP
    """
    train = options.get("train")
    if train is not None and (options.get("split") is not None or predictions):
        other = "split" if options.get("split") is not None else "predictions"
        raise UsageError(
            "with a separate training dataset, the whole test dataset is tested by methods fitted in this evaluation; "
            f"leave out the {other}"
        )
    settings = EvaluationSettings.of(options)
    folder = None if out is None else Path(out)
    files = [read_prediction_file(file) for file in predictions]
    recorded = read_recorded_runs(agents)
    with ExitStack() as stack:
        engine = MethodEngine(options.get("workers"), options.get("scheduler"))
        read_source = stack.enter_context(open_source(dataset, options.get("version"), engine.workers))
        if folder is not None:
            check_writable(folder)
        running = stack.enter_context(ExitStack())
        running.enter_context(engine)
        specs = choose_baselines(methods)
        _check_names(specs, files, recorded)
        read_training = None if train is None else stack.enter_context(open_source(train, None, engine.workers))
        if any(file.sets_threshold_in_training for file in files) or not all(spec.own_threshold for spec in specs):
            # a table sets the thresholds of all detectors by one rule, which now needs training episodes
            settings = replace(settings, calibrate=True)
        scope = define_scope(settings, read_source(), None if read_training is None else read_training())
        scope.choose_answerable(specs)
        predicted = read_predictions(scope, files)
        acting = AgentEvaluation(scope, recorded)
        acting.check(specs)
        checkpoint = None
        if folder is not None:
            checkpoint = stack.enter_context(_checkpoint(folder, scope, specs, files))
        answers = run_methods(scope, specs, engine, checkpoint=checkpoint, started=started, progress=progress)
        acted = acting.results(answers.rows)
        running.close()
        evaluation = build_leaderboards(scope, answers, predicted, acted, files)
        if folder is not None and checkpoint is not None:
            evaluation.write(folder)
            if not answers.damage:
                checkpoint.remove()
        answers.steps.finish()
        if answers.damage:
            first = str(next(iter(answers.damage.values()))).removesuffix("; restore the file")
            counts = f"{len(answers.damage)} of {count_text(len(scope.source.truths), 'episode')}"
            results = "the results" if folder is None else f"the results in {folder}"
            raise DataError(
                f"{first}; damaged during the evaluation: {counts}, missing from {results}; "
                "restore the file, then run the same command again"
            )
        return evaluation


def define_scope(
    settings: EvaluationSettings, source: DatasetSource, train: DatasetSource | None = None
) -> EvaluationScope:
    """Choose the detectors that raise alarms, the folds, and the training data.

    Raises
    ------
    UsageError
        No training episode remains.
    DataError
        An episode is in both datasets.
    """
    if not settings.alarm_detector:
        settings = settings.with_default_alarm(source)
    training = None if train is None else build_training_data(train, source)
    if training is not None:
        settings = replace(settings, train=f"{training.name} {training.source.digest}")
    return EvaluationScope(source=source, settings=settings, training=training)


@dataclass(frozen=True, kw_only=True)
class MethodAnswers:
    """The answers of methods, and how they were run."""

    rows: list[ResultRow]
    specs: tuple[BaselineSpec, ...]
    """The methods that were run."""
    damage: Mapping[str, DataError]
    """Episode -> why it could not be evaluated."""
    isolation: str
    """How methods were isolated."""
    reused_fits: str
    """How many fits came from the cache, and of which methods; empty for none."""
    steps: StepCounter
    """Progress; one step remains for the leaderboards."""


def run_methods(
    scope: EvaluationScope,
    specs: Sequence[BaselineSpec],
    engine: MethodEngine,
    *,
    checkpoint: Checkpoint | None = None,
    started: Callable[[EvaluationStart], None] | None = None,
    progress: Progress | None = None,
) -> MethodAnswers:
    """Run methods on the tested episodes.

    Parameters
    ----------
    checkpoint
        Stores answers as they arrive, so that an interrupted evaluation can resume.
    """
    reusable, changed, hidden = [], (), []
    if checkpoint is not None:
        with writing(checkpoint.folder):
            reusable = checkpoint.begin(scope.truths, fresh=scope.settings.fresh)
        changed = checkpoint.changed or find_changed_codes(checkpoint.folder / RESULTS_FILE, checkpoint.codes)
        hidden = [checkpoint.folder / name for name in (*FILES, CHECKPOINT_FILE)]
    client = engine.connect(scope.source)
    plan = make_plan(scope, specs, engine.workers, reusable=reusable, hidden=hidden)
    if started is not None:
        started(
            EvaluationStart(
                baselines=tuple(spec.name for spec in plan.specs),
                episodes=len(scope.source.truths),
                faulty=sum(truth.faulty for truth in scope.source.truths),
                answers=plan.answers,
                workers=engine.workers,
                expected_s=plan.expected_s(engine.workers),
                expected_bytes=plan.expected_bytes,
                reused=len(plan.reused),
                changed=changed,
                dashboard=find_dashboard(client),
            )
        )

    def keep(rows: list[ResultRow]) -> None:
        if checkpoint is not None:
            with writing(checkpoint.folder):
                checkpoint.add(rows)

    def leave_out(episode: str, error: DataError) -> None:
        damage.setdefault(episode, error)

    damage: dict[str, DataError] = {}
    fits: list[tuple[str, bool]] = []
    steps = StepCounter(plan.steps + 1, progress)
    isolation = describe_isolation(client)
    rows = run_plan(plan, client, steps.add, keep, leave_out, fits.extend)
    cached = Counter(name for name, is_cached in fits if is_cached)
    by_method = ", ".join(f"{name} {count}" for name, count in sorted(cached.items()))
    return MethodAnswers(
        rows=rows,
        specs=plan.specs,
        damage=damage,
        isolation=isolation,
        reused_fits=f"{cached.total()} of {len(fits)} ({by_method})" if cached else "",
        steps=steps,
    )


def build_leaderboards(
    scope: EvaluationScope,
    answers: MethodAnswers,
    predicted: Iterable[ResultRow] = (),
    acted: AgentResults | None = None,
    files: Iterable[PredictionFile] = (),
) -> Evaluation:
    """Build the tables from the answers of methods, prediction files and agents.

    Raises
    ------
    DataError
        Every episode is damaged.
    """
    acted = acted or AgentResults()
    rows = [row for row in (*answers.rows, *predicted, *acted.rows) if row.episode not in answers.damage]
    if answers.damage and not rows:
        raise next(iter(answers.damage.values()))
    policies = scope.settings.policies
    undecided = {spec.name for spec in answers.specs if not spec.own_threshold}
    if undecided:
        rows = apply_training_thresholds(rows, undecided, training_policy(policies))
    return Evaluation(
        rows=tuple(rows),
        specs=answers.specs,
        dataset=None if scope.source.url else scope.source.folder,
        digest=scope.source.digest,
        settings={
            **_shown_settings(scope),
            "isolation": answers.isolation,
            "parameters": {spec.name: values for spec in answers.specs if (values := read_parameters(spec))},
            "predictions": {file.name: file.record for file in files},
            "reference_gaps": [*scope.source.reference_gaps(), *describe_skipped_series(rows)],
            **({"imported_files": dict(scope.source.imported_files)} if scope.source.imported_files else {}),
            **({"unlabelled": scope.source.unlabelled} if scope.source.unlabelled else {}),
            **({"agents_left_out": list(acted.left_out)} if acted.left_out else {}),
            **({"reused_fits": answers.reused_fits} if answers.reused_fits else {}),
        },
        agent_runs=acted.runs,
        inspected_services=acted.inspected,
        policies=policies,
        seed=scope.settings.seed,
    )


_LEFT_OUT = re.compile(r'"left_out_count":(\d+)')
"""Searched in the text of an answer, because parsing every answer takes long."""


def describe_skipped_series(rows: Iterable[ResultRow]) -> list[str]:
    """Return a sentence with the largest number of series that methods skipped in an episode; empty without any."""
    matches = [(_LEFT_OUT.search(StoredAnswer.of(row.answer).text), row) for row in rows]
    counts = [(int(match[1]), row) for match, row in matches if match]
    if not counts:
        return []
    count, worst = max(counts, key=lambda pair: pair[0])
    service, metric = worst.answer["left_out"][0]
    return [
        f"methods on metrics leave out series that never move or lack samples, {count} at most (first: {metric} of "
        f"{service} in {worst.episode}); each answer in results.parquet names them"
    ]


def _check_names(
    specs: Sequence[BaselineSpec], files: Sequence[PredictionFile], recorded: Sequence[RecordedRun]
) -> None:
    """Raise UsageError if two methods of an evaluation have the same name."""
    from faultset.baselines.api.registry import list_baselines

    # importing all methods takes a second, so do it only if needed
    names = [*(list_baselines() if files or recorded else ()), *(spec.name for spec in specs)]
    check_names(files, names)
    check_agent_names(recorded, [*names, *(file.name for file in files)])


def _checkpoint(
    folder: Path, scope: EvaluationScope, specs: Sequence[BaselineSpec], files: Sequence[PredictionFile]
) -> Checkpoint:
    settings = scope.settings
    conditions = {"digest": scope.source.digest, "code": code_version(), "split": settings.split or ""}
    conditions |= {"train": settings.train} if settings.train else {}
    return Checkpoint(folder, conditions, identify_codes(specs, settings) | {file.name: file.code for file in files})


def _shown_settings(scope: EvaluationScope) -> dict[str, object]:
    """Return the settings for reports."""
    from faultset.evaluators.reports.provenance import machine

    source, settings, training = scope.source, scope.settings, scope.training
    return {
        "tasks": list(settings.tasks),
        "protocols": list(settings.protocols),
        "delays_s": list(settings.delays),
        "evidence_s": list(settings.evidence),
        "alarm_detector": scope.alarm_description,
        "threshold_policy": "reference",
        "split": scope.split,
        **({} if training is None else {"train": training.record}),
        "seed": settings.seed,
        "timeout_s": settings.limits.timeout_s,
        "memory_limit_bytes": settings.limits.memory_bytes,
        "cluster_key": "application, fault, target",
        "scorers": identify_scorers(),
        "source": source.url or str(source.folder),
        "machine": machine(),
    }


def results_folder(dataset: str) -> Path:
    """Return the default folder for results: `results/NAME` next to a local dataset.

    If only the name of a published dataset is given, the folder is in the current folder.

    Raises
    ------
    UsageError
        The dataset is behind a URL, or the results folder is a link.
    """
    if is_url(dataset):
        raise UsageError(f"results cannot be written next to {dataset}; give a local folder with --out")
    path = local_path(dataset)
    folder = (path if path.name != dataset else Path(dataset)).resolve()
    results = folder.parent / "results"
    for target in (results, results / folder.name):
        # a link may come with the dataset and lead anywhere
        if target.is_symlink():
            raise UsageError(f"{target} is a link; remove it, or choose the results folder with --out")
    return results / folder.name
