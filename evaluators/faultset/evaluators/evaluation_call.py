"""Evaluate methods on a dataset from Python, as the command `evaluate` does, without printing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from faultset.core.errors import DataError, UsageError
from faultset.core.output import Progress
from faultset.core.printable import count_text
from faultset.datasets.dataset import Dataset
from faultset.datasets.remote.file_systems import is_url, local_path
from faultset.evaluators.agent_answers import (
    AgentEvaluation,
    AgentResults,
    RecordedRun,
    check_agent_names,
    read_recorded_runs,
)
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.execution.dataset_source import DatasetSource, open_input, open_source
from faultset.evaluators.execution.method_runs import (
    EvaluationStart,
    MethodAnswers,
    checkpoint_path,
    open_checkpoint,
    run_methods,
)
from faultset.evaluators.execution.plan import choose_baselines
from faultset.evaluators.execution.scheduling import MethodEngine
from faultset.evaluators.execution.settings import (
    EvaluationOptions,
    EvaluationScope,
    EvaluationSettings,
    build_training_data,
)
from faultset.evaluators.predictions import PredictionFile, check_names, read_prediction_file, read_predictions
from faultset.evaluators.recordings.cut_episodes import (
    CutEpisodes,
    check_recordings_differ,
    cut_recordings,
    list_alarm_detectors,
    open_training_episodes,
)
from faultset.evaluators.recordings.detection_plan import DetectionPlan
from faultset.evaluators.recordings.online_detection import (
    RecordingResults,
    detect_online,
    is_about_recordings,
    list_online_alarms,
)
from faultset.evaluators.results.provenance import identify_scorers, read_parameters
from faultset.evaluators.results.rows import DETECTIONS_FILE, ResultRow, StoredAnswer, check_writable
from faultset.evaluators.scoring.thresholds import apply_training_thresholds, training_policy

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec


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
        Names, groups ("default", "all", "named", "methods", "rules", "controls", "variants"), registered classes,
        specs, and functions that take an episode and an alarm and return `{service: score}`. Or a mapping from names
        to such functions.
    predictions
        Files with predictions of your own models, `FILE` or `NAME=FILE`, scored with the methods; see
        docs/how-to/predictions.md for their columns.
    agents
        Inspect logs, or folders of runs, on these episodes; see docs/how-to/agents.md.
    out
        Folder for the results, and for a checkpoint from which the same call resumes after an interruption. If None,
        nothing is written.
    started
        Called before the first method starts; if there are recordings, once for them and once for episodes.
    progress
        Called with the number of finished steps and the total.
    **options
        Tasks, protocol, split, seed, limits and similar options: the keys of `EvaluationOptions`.

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
            f"a separate training dataset cannot be combined with {other}, because methods are fitted on that dataset "
            f"and tested on all of the other; leave out the {other}"
        )
    settings = EvaluationSettings.of(options)
    opened = open_input(dataset, options.get("version"), progress)
    training = None if train is None else open_input(train, None, progress)
    if isinstance(opened, Dataset) and isinstance(training, Dataset):
        check_recordings_differ(training, opened)
    call = EvaluationCall(
        options=options,
        settings=settings,
        engine=MethodEngine(options.get("workers"), options.get("scheduler")),
        location=str(dataset.root if isinstance(dataset, Dataset) else dataset),
        train=training,
        folder=None if out is None else Path(out),
        started=started,
        progress=progress,
        files=tuple(read_prediction_file(file) for file in predictions),
        recorded=tuple(read_recorded_runs(agents)),
    )
    specs = choose_baselines(methods)
    if isinstance(opened, Dataset) and opened.recording_files:
        return call.evaluate_recordings(opened, specs)
    return call.evaluate_episodes(opened, specs)


@dataclass(frozen=True, kw_only=True)
class EvaluationCall:
    """One call of `evaluate`, with checked options."""

    options: EvaluationOptions
    settings: EvaluationSettings
    engine: MethodEngine
    location: str
    """Folder or URL of the dataset, for reports."""
    train: str | Dataset | None
    """Separate training dataset, or the URL of one without recordings."""
    folder: Path | None
    """Folder for the results; if None, nothing is written."""
    started: Callable[[EvaluationStart], None] | None
    progress: Progress | None
    files: tuple[PredictionFile, ...]
    recorded: tuple[RecordedRun, ...]

    def evaluate_recordings(self, dataset: Dataset, specs: Sequence[BaselineSpec]) -> Evaluation:
        """Run detectors over recordings, and other methods on the dataset's episodes or on cuts of its recordings."""
        others = [spec for spec in specs if spec.task != "detection" and spec.task in self.settings.tasks]
        if self.recorded and not dataset.episodes and not others:
            raise UsageError(
                "agents on recordings are compared with methods for localization or root causes, but none is chosen; "
                "add one to --baselines or to --tasks"
            )
        results = None
        if self.folder is not None:
            check_writable(self.folder)
        with self.engine as engine:
            dataset.check_files(engine.workers)
            files = [file for file in self.files if is_about_recordings(file, dataset)]
            detectors = self._choose_detectors(dataset, specs, alarms=bool(others) and not dataset.episodes)
            if detectors or files:
                check_names(files, [spec.name for spec in detectors])
                plan = (
                    DetectionPlan.of(dataset, self.settings.split)
                    if self.train is None
                    else DetectionPlan.for_testing(dataset, self.train)
                )
                results = detect_online(
                    plan,
                    detectors,
                    self.settings,
                    engine,
                    folder=self.folder,
                    started=self.started,
                    progress=self.progress,
                    files=files,
                )
                results = replace(results, location=self.location)
            rest = replace(self, files=tuple(file for file in self.files if not is_about_recordings(file, dataset)))
            if dataset.episodes:
                evaluation = rest.evaluate_episodes(dataset, specs, recordings=results)
            elif others and (cuts := cut_recordings(dataset)) is not None:
                evaluation = rest.evaluate_episodes(cuts.dataset, others, recordings=results, cuts=cuts)
            else:
                evaluation = self._present_recordings(dataset, results)
        if self.folder is not None:
            checkpoint_path(self.folder, DETECTIONS_FILE).unlink(missing_ok=True)
        return evaluation

    def _present_recordings(self, dataset: Dataset, results: RecordingResults | None) -> Evaluation:
        """Return an evaluation of detectors on recordings only."""
        if results is None:
            raise DataError(
                f"{dataset.root} has only recordings, and no episode can be cut from them: this requires several "
                "services and an incident with a known root cause and enough telemetry around it; use --tasks detection"
            )
        evaluation = Evaluation(
            specs=results.specs,
            recordings=results,
            dataset=Path(dataset.root),
            digest=results.digest,
            settings={"isolation": results.isolation},
            policies=self.settings.policies,
            seed=self.settings.seed,
        )
        if self.folder is not None:
            evaluation.write(self.folder)
        return evaluation

    def _choose_detectors(self, dataset: Dataset, specs: Sequence[BaselineSpec], *, alarms: bool) -> list[BaselineSpec]:
        """Return the detectors that run over recordings, including the alarm detectors of localizers.

        Detectors that learn from labels are left out. Agents start from alarms that were raised online, so these are
        computed even if detection is not scored.
        """
        from faultset.baselines.registry import get_baseline

        scores_detection = "detection" in self.settings.tasks
        if not scores_detection and not self.recorded:
            return []
        detectors = [spec for spec in specs if spec.task == "detection" and "labels" not in spec.needs]
        chosen = detectors if scores_detection else []
        if alarms and "detected" in self.settings.protocols:
            names = [self.settings.alarm_detector] if self.settings.alarm_detector else list_alarm_detectors(dataset)
            chosen += [get_baseline(name) for name in names if all(spec.name != name for spec in chosen)]
        return chosen

    def evaluate_episodes(
        self,
        dataset: str | Path | Dataset,
        specs: Sequence[BaselineSpec],
        *,
        recordings: RecordingResults | None = None,
        cuts: CutEpisodes | None = None,
    ) -> Evaluation:
        """Run methods on episodes.

        `recordings`: results of detectors on recordings of the same dataset.
        `cuts`: the recordings from which the episodes were cut.
        """
        settings, folder, files, engine = self.settings, self.folder, self.files, self.engine
        with ExitStack() as stack:
            read_source = stack.enter_context(open_source(dataset, self.options.get("version"), engine.workers))
            if folder is not None:
                check_writable(folder)
            stack.enter_context(engine)
            _check_names(specs, files, self.recorded)
            read_training = None
            if self.train is not None:
                read_training = stack.enter_context(open_training_episodes(self.train, engine.workers))
            if any(file.sets_threshold_in_training for file in files) or not all(spec.own_threshold for spec in specs):
                # All detectors in a table use the same threshold rule. Here it must be calibrated on training episodes.
                settings = replace(settings, calibrate=True)
            source = read_source() if cuts is None else cuts.restore_identity(read_source())
            scope = define_scope(settings, source, None if read_training is None else read_training())
            if cuts is not None:
                scope = replace(scope, chosen_folds=cuts.select_folds(settings.split))
                if recordings is not None:
                    online = list_online_alarms(cuts, recordings, scope.choose_alarm_detector)
                    scope = replace(scope, online_alarms=online)
            scope.choose_answerable(specs)
            predicted = read_predictions(scope, files)
            agent_evaluation = AgentEvaluation(scope, self.recorded)
            agent_evaluation.check(specs)
            checkpoint = None
            if folder is not None:
                checkpoint = stack.enter_context(
                    open_checkpoint(folder, scope, specs, {file.name: file.code for file in files})
                )
            answers = run_methods(
                scope, specs, engine, checkpoint=checkpoint, started=self.started, progress=self.progress
            )
            agent_results = agent_evaluation.results(answers.rows)
            engine.close()
            evaluation = build_leaderboards(scope, answers, predicted, agent_results, files, recordings)
            if folder is not None and checkpoint is not None:
                evaluation.write(folder)
                if not answers.damage:
                    checkpoint.remove()
            answers.steps.finish()
            if answers.damage:
                raise _describe_damage(answers, scope, folder)
            return evaluation


def _describe_damage(answers: MethodAnswers, scope: EvaluationScope, folder: Path | None) -> DataError:
    first = str(next(iter(answers.damage.values()))).removesuffix("; restore the file")
    counts = f"{len(answers.damage)} of {count_text(len(scope.source.truths), 'episode')}"
    results = "the results" if folder is None else f"the results in {folder}"
    return DataError(
        f"{first}; damaged during the evaluation: {counts}, missing from {results}; "
        "restore the file, then run the same command again"
    )


def define_scope(
    settings: EvaluationSettings, source: DatasetSource, train: DatasetSource | None = None
) -> EvaluationScope:
    """Choose the detectors that raise alarms, the folds, and the training data."""
    if not settings.alarm_detector:
        settings = settings.with_default_alarm(source)
    training = None if train is None else build_training_data(train, source)
    if training is not None:
        settings = replace(settings, train=f"{training.name} {training.source.digest}")
    return EvaluationScope(source=source, settings=settings, training=training)


def build_leaderboards(
    scope: EvaluationScope,
    answers: MethodAnswers,
    predicted: Iterable[ResultRow] = (),
    agent_results: AgentResults | None = None,
    files: Iterable[PredictionFile] = (),
    recordings: RecordingResults | None = None,
) -> Evaluation:
    """Build the tables from the answers of methods, prediction files and agents, and from results on recordings."""
    agent_results = agent_results or AgentResults()
    rows = [row for row in (*answers.rows, *predicted, *agent_results.rows) if row.episode not in answers.damage]
    if answers.damage and not rows:
        raise next(iter(answers.damage.values()))
    policies = scope.settings.policies
    undecided = {spec.name for spec in answers.specs if not spec.own_threshold}
    if undecided:
        rows = apply_training_thresholds(rows, undecided, training_policy(policies))
    return Evaluation(
        rows=tuple(rows),
        recordings=recordings,
        specs=(*answers.specs, *(recordings.specs if recordings is not None else ())),
        dataset=None if scope.source.url else scope.source.folder,
        digest=scope.source.digest,
        settings={
            **_describe_settings(scope),
            "isolation": answers.isolation,
            "parameters": {spec.name: values for spec in answers.specs if (values := read_parameters(spec))},
            "predictions": {file.name: file.record for file in files},
            "reference_gaps": [*scope.source.reference_gaps(), *describe_skipped_series(rows)],
            **({"imported_files": dict(scope.source.imported_files)} if scope.source.imported_files else {}),
            **({"unlabelled": scope.source.unlabelled} if scope.source.unlabelled else {}),
            **({"agents_left_out": list(agent_results.left_out)} if agent_results.left_out else {}),
            **({"reused_fits": answers.reused_fits} if answers.reused_fits else {}),
        },
        agent_runs=agent_results.runs,
        inspected_services=agent_results.inspected,
        policies=policies,
        seed=scope.settings.seed,
    )


_LEFT_OUT = re.compile(r'"left_out_count":(\d+)')
"""Searched in the text of an answer, because parsing every answer would be slow."""


def describe_skipped_series(rows: Iterable[ResultRow]) -> list[str]:
    """Return a sentence with the largest number of series that methods skipped in an episode, if any."""
    matches = [(_LEFT_OUT.search(StoredAnswer.of(row.answer).text), row) for row in rows]
    counts = [(int(match[1]), row) for match, row in matches if match]
    if not counts:
        return []
    count, worst = max(counts, key=lambda pair: pair[0])
    service, metric = worst.answer["left_out"][0]
    return [
        f"methods that read metrics leave out series that never change or lack samples, at most {count} (first: "
        f"{metric} of {service} in {worst.episode}); each answer in results.parquet lists the first ones"
    ]


def _check_names(
    specs: Sequence[BaselineSpec], files: Sequence[PredictionFile], recorded: Sequence[RecordedRun]
) -> None:
    """Raise UsageError if two methods of an evaluation have the same name."""
    from faultset.baselines.registry import list_baselines

    # importing all methods takes a second, so do it only if needed
    names = [*(list_baselines() if files or recorded else ()), *(spec.name for spec in specs)]
    check_names(files, names)
    check_agent_names(recorded, [*names, *(file.name for file in files)])


def _describe_settings(scope: EvaluationScope) -> dict[str, object]:
    from faultset.evaluators.results.provenance import machine

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
