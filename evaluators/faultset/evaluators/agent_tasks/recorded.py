"""Recorded episodes as Inspect tasks: detection, localization and root cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from faultset.agents.interface.inspect_tools import LocalToolHost, inspect_tools, session_report
from faultset.agents.interface.session import (
    AgentSession,
    RecordedTask,
    compose_complaint,
    describe_situation,
    task_instructions,
)
from faultset.agents.runs.record import CANDIDATES, CLUSTER, QUESTION, REPORT, AgentRun, AskedQuestion
from faultset.agents.solvers import react
from faultset.core.errors import DataError, UsageError, unknown_name
from faultset.datasets import Dataset, open_dataset
from faultset.datasets.remote.file_systems import is_url, local_path
from faultset.datasets.tools.recording import ViewClock
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.training.folds import Fold, folds_of_split
from faultset.evaluators.agent_answers import AgentQuestion, RowContext, build_rows, find_alarms, list_questions
from faultset.evaluators.evaluation_call import evaluate
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.settings import default_detector
from faultset.evaluators.recordings.cut_episodes import CutEpisodes, cut_recordings
from faultset.evaluators.recordings.online_detection import list_online_alarms
from faultset.evaluators.results.rows import PROTOCOLS, ResultRow
from faultset.evaluators.results.truth import Truth, build_truth
from faultset.evaluators.scoring.localization import LOCALIZATION_METRICS
from faultset.evaluators.scoring.metrics import ScoredCase
from faultset.evaluators.scoring.registry import TASK_METRICS, score_correctness


def shared_dataset(question: AskedQuestion) -> Dataset:
    """Return the dataset of a sample's episode."""
    return _open(question.folder, question.version)


@lru_cache(maxsize=4)
def _open(folder: str, version: str) -> Dataset:
    return open_dataset(folder, version)


_SHOWN_METRICS = ("ac1", "ac3", "ac5", "mrr")
CORRECT = "correct"


@scorer(metrics={"*": [mean(), stderr(cluster=CLUSTER)]})
def answer_scorer() -> Scorer:
    """Score the submitted answer: AC@1, AC@3, AC@5 and MRR for localization, otherwise right or wrong.

    As in the leaderboards, localization and root cause are not scored for episodes without a fault.
    """

    async def score(state: TaskState, target: Target) -> Score:
        question = AskedQuestion.model_validate(state.metadata[QUESTION])
        dataset, episode = shared_dataset(question), str(state.sample_id)
        truth = build_truth(dataset.label(episode), dataset.view(episode).context)
        report = session_report(state.store)
        answer = json.dumps(report.get("answer"))
        values = score_report(question, report, truth)
        if values is None:
            return Score.unscored(reason="the episode has no fault", answer=answer)
        return Score(value=dict(values), answer=answer, explanation=report.get("status_reason") or None)

    return score


def score_report(question: AskedQuestion, report: Mapping[str, Any], truth: Truth) -> Mapping[str, float] | None:
    """Return the scores of a session's report; None if leaderboards do not score the episode."""
    row = _build_row(question, report, truth)
    if row.task != "detection" and not TASK_METRICS[row.task].is_scorable(truth):
        return None
    if row.task == "localization":
        case = ScoredCase(rows=(row,))
        return {metric.name: case.value(metric) for metric in LOCALIZATION_METRICS if metric.name in _SHOWN_METRICS}
    return {CORRECT: score_correctness(row)}


def _build_row(question: AskedQuestion, report: Mapping[str, Any], truth: Truth) -> ResultRow:
    run = AgentRun(
        run="sample",
        format="inspect",
        agent="agent",
        task=question.task,
        protocol=question.protocol,
        status=report.get("status", "no_answer"),
        status_reason=report.get("status_reason", ""),
        answer_json=None if report.get("answer") is None else json.dumps(report["answer"]),
        alarm_ns=question.alarm_ns,
        answered_ns=report.get("answered_ns"),
        steps=0,
        tool_calls=0,
        tool_errors=0,
        repeats=0,
    )
    context = RowContext(
        label="agent",
        kind="agent",
        settings="",
        code="",
        dataset=truth.app,
        version=question.version,
        split="",
        detector_of=lambda episode: question.alarm_detector or "",
        folds={},
        majority_labels={},
    )
    return build_rows(run, truth, context)[0]


MESSAGE_LIMIT = 200
Names = str | Sequence[str] | None


def _declare_task(name: str, session_task: RecordedTask, question: str) -> Callable[..., Task]:
    """Return an Inspect task; all tasks on recorded episodes have the same parameters."""

    def recorded_task(
        dataset: str = "",
        version: str | None = None,
        episodes: Names = None,
        split: str | None = None,
        protocol: str = "detected",
        alarm: str | None = None,
        complaint: bool = False,
        message_limit: int = MESSAGE_LIMIT,
    ) -> Task:
        opened = _open_recorded(dataset, version)
        if protocol not in PROTOCOLS:
            raise unknown_name("protocol", protocol, PROTOCOLS)
        if session_task == "detection" and (protocol != "detected" or alarm is not None or complaint):
            raise UsageError("detection takes no protocol, alarm or complaint; leave them out")
        cuts = None if opened.episodes else _cut_episodes(opened, session_task)
        opened = opened if cuts is None else cuts.dataset
        source = DatasetSource.of(opened).without_unlabelled()
        truths = _choose_truths(source, episodes, split, () if cuts is None else cuts.select_folds(split))
        detectors: dict[str, str] = {}
        alarms: Mapping[str, int | None] = {}
        if session_task != "detection" and protocol == "detected":
            detectors = {truth.episode: alarm or default_detector(truth.episode, source) for truth in truths}
            alarms = _compute_alarms(opened, detectors, split, cuts)
        source = source if cuts is None else cuts.restore_identity(source)
        task_of_rows = "rca" if session_task == "diagnosis" else session_task
        questions = [item for item in list_questions(truths, [task_of_rows], [protocol], alarms) if item.is_asked]
        if not questions:
            requirement = "an alarm" if protocol == "detected" else "a fault with a known onset"
            raise DataError(
                f"none of the {len(truths)} chosen episodes of {source.name} has {requirement}; choose other episodes"
            )
        truth_of = {truth.episode: truth for truth in truths}
        samples = [
            _build_sample(opened, item, truth_of[item.episode], detectors.get(item.episode), complaint=complaint)
            for item in questions
        ]
        return Task(
            dataset=MemoryDataset(samples, name=f"{source.name}-{source.version}"),
            setup=episode_tools(),
            solver=react(),
            scorer=answer_scorer(),
            message_limit=message_limit,
        )

    recorded_task.__name__ = recorded_task.__qualname__ = name
    recorded_task.__doc__ = question + _PARAMETERS
    return task(recorded_task)


_PARAMETERS = """

Parameters
----------
dataset
    Folder, or name of a dataset that comes with the project. Recordings are cut into episodes, as by `evaluate`.
version
    Version of the dataset; the newest by default.
episodes
    Only these episodes, comma-separated.
split
    Only the test episodes of this split.
protocol
    detected: start from the alarm of a detector; oracle: start from the true onset. Not for detection.
alarm
    Detector for "detected"; by default the one that `evaluate` uses. Not for detection.
complaint
    Give agents the vague complaint of a user instead of the alarm or the onset. Not for detection.
"""
detection = _declare_task("detection", "detection", "Ask whether the system has a fault.")
localization = _declare_task("localization", "localization", "Ask which service is the root cause.")
root_cause = _declare_task("root_cause", "diagnosis", "Ask for the system level and the type of the fault.")


def _cut_episodes(dataset: Dataset, session_task: RecordedTask) -> CutEpisodes:
    """Cut the episodes of a dataset of recordings."""
    if session_task == "detection":
        raise UsageError(
            f"{dataset.root} has only recordings, on which detectors run online; choose faultset/localization or "
            "faultset/root_cause"
        )
    cuts = cut_recordings(dataset)
    if cuts is None:
        raise DataError(
            f"{dataset.root} has only recordings, and no episode can be cut from them: this requires several services "
            "and an incident with a known root cause and enough telemetry around it; choose other data"
        )
    return cuts


def _choose_truths(
    source: DatasetSource, episodes: Names, split: str | None, folds: Sequence[Fold] = ()
) -> list[Truth]:
    names = [name for name in episodes.split(",") if name] if isinstance(episodes, str) else list(episodes or ())
    by_episode = {truth.episode: truth for truth in source.truths}
    for name in names:
        if name not in by_episode:
            raise unknown_name("episode", name, list(by_episode))
    chosen = dict.fromkeys(names or by_episode)
    if split is not None:
        folds = folds or folds_of_split(split, source.splits, source.truths)
        tested = {name for fold in folds for name in fold.test}
        chosen = {name: None for name in chosen if name in tested}
    return [by_episode[name] for name in chosen]


def _compute_alarms(
    dataset: Dataset, detectors: Mapping[str, str], split: str | None, cuts: CutEpisodes | None
) -> Mapping[str, int | None]:
    """Return the alarm of each episode; in recordings, detectors run online."""
    names = sorted({*detectors.values()})
    if cuts is not None:
        online = evaluate(cuts.origin, names, tasks=("detection",), split=split).recordings
        return {} if online is None else list_online_alarms(cuts, online, detectors.__getitem__)
    evaluation = evaluate(dataset, names, tasks=("detection",), alarm=names[0], split=split)
    return find_alarms(evaluation.rows, detectors.get)


def _build_sample(
    dataset: Dataset, question: AgentQuestion, truth: Truth, detector: str | None, *, complaint: bool
) -> Sample:
    view = dataset.view(question.episode)
    clock = _build_clock(view.context, question.alarm_ns)
    asked_question = AskedQuestion(
        folder=str(dataset.root.absolute()),
        version=dataset.version,
        task=question.task,
        protocol=question.protocol,
        alarm_ns=question.alarm_ns,
        alarm_detector=detector,
        complaint=compose_complaint(view, question.alarm_ns) if complaint and question.alarm_ns is not None else None,
    )
    situation = describe_situation(clock, asked_question.alarm_ns, asked_question.complaint)
    return Sample(
        id=question.episode,
        input=f"{task_instructions(question.task)} {situation}",
        target=_describe_answer(question.task, truth),
        metadata={
            QUESTION: asked_question.model_dump(),
            CANDIDATES: list(truth.candidates),
            CLUSTER: "/".join(truth.cluster),
        },
    )


def _describe_answer(session_task: str, truth: Truth) -> str:
    """Return the correct answer for readers of the log; scoring uses the dataset's label."""
    if session_task == "detection":
        return "fault" if truth.faulty else "no fault"
    if session_task == "localization":
        return ", ".join(" or ".join(cause) for cause in truth.causes) or "no service"
    return f"{truth.system_level} / {truth.fault_type}" if truth.faulty else "no fault"


def _build_clock(context: Any, alarm_ns: int | None) -> ViewClock:
    return ViewClock(context) if alarm_ns is None else ViewClock.after(context, alarm_ns)


@solver
def episode_tools() -> Solver:
    """Add the tools that read the episode and submit the answer."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        question = AskedQuestion.model_validate(state.metadata[QUESTION])
        view = shared_dataset(question).view(str(state.sample_id))
        tools = EpisodeTools(view, _build_clock(view.context, question.alarm_ns))
        session = AgentSession(tools, cast("RecordedTask", question.task))
        state.store.set(REPORT, session.report())
        state.tools.extend(inspect_tools(LocalToolHost(session)))
        return state

    return solve


def _open_recorded(dataset: str, version: str | None) -> Dataset:
    if not dataset:
        raise UsageError("the task needs a dataset; add for example -T dataset=datasets/sample")
    if is_url(dataset):
        raise UsageError(f"agents need a local dataset, but {dataset} is a URL; copy the dataset to a folder first")
    return open_dataset(local_path(dataset), version)
