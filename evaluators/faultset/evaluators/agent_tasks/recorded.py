"""Recorded episodes as Inspect tasks: detection, localization and root cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import Generate, Solver, TaskState, solver

from faultset.agents.interface.inspect_tools import LocalToolHost, inspect_tools
from faultset.agents.interface.session import AgentSession, RecordedTask, problem_text
from faultset.agents.runs.inspect_metadata import CANDIDATES, CLUSTER, QUESTION, REPORT, AskedQuestion
from faultset.agents.solvers.model_agents import react
from faultset.core.errors import DataError, UsageError
from faultset.core.suggestions import unknown_name
from faultset.datasets import Dataset, open_dataset
from faultset.datasets.remote.file_systems import is_url, local_path
from faultset.datasets.tools.clock import ViewClock
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.training.folds import folds_of_split
from faultset.evaluators.agent_evaluation.rows import AgentQuestion, alarms_of_rows, questions_of
from faultset.evaluators.agent_tasks.scores import answer_scorer
from faultset.evaluators.agent_tasks.shared_datasets import shared_dataset
from faultset.evaluators.evaluation_call import evaluate
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.settings import default_detector
from faultset.evaluators.results.rows import PROTOCOLS
from faultset.evaluators.results.truth import Truth

MESSAGE_LIMIT = 200
Names = str | Sequence[str] | None


@task
def detection(
    dataset: str = "",
    version: str | None = None,
    episodes: Names = None,
    split: str | None = None,
    message_limit: int = MESSAGE_LIMIT,
) -> Task:
    """Ask of each episode whether the system has a fault.

    Parameters
    ----------
    dataset
        Folder, or name of a dataset of the project.
    version
        The newest by default.
    episodes
        Only these, comma-separated.
    split
        Only the test episodes of this split.
    """
    return _task("detection", dataset, version, episodes, split, "detected", None, message_limit)


@task
def localization(
    dataset: str = "",
    version: str | None = None,
    episodes: Names = None,
    split: str | None = None,
    protocol: Literal["detected", "oracle"] = "detected",
    alarm: str | None = None,
    message_limit: int = MESSAGE_LIMIT,
) -> Task:
    """Ask which service is the root cause; other parameters as in `detection`.

    Parameters
    ----------
    protocol
        detected: an alarm of a detector starts the work; oracle: the true onset does.
    alarm
        Detector of "detected"; as in `evaluate` by default.
    """
    return _task("localization", dataset, version, episodes, split, protocol, alarm, message_limit)


@task
def root_cause(
    dataset: str = "",
    version: str | None = None,
    episodes: Names = None,
    split: str | None = None,
    protocol: Literal["detected", "oracle"] = "detected",
    alarm: str | None = None,
    message_limit: int = MESSAGE_LIMIT,
) -> Task:
    """Ask on which system level the fault is and of which type; parameters as in `localization`."""
    return _task("diagnosis", dataset, version, episodes, split, protocol, alarm, message_limit)


def _task(
    asked: RecordedTask,
    dataset: str,
    version: str | None,
    episodes: Names,
    split: str | None,
    protocol: str,
    alarm: str | None,
    message_limit: int,
) -> Task:
    opened = _open(dataset, version)
    source = DatasetSource.of(opened)
    truths = _chosen_truths(source, episodes, split)
    detectors: dict[str, str] = {}
    alarms: Mapping[str, int | None] = {}
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    if asked != "detection" and protocol == "detected":
        detectors = {truth.episode: alarm or default_detector(truth.episode, source) for truth in truths}
        alarms = _alarms(opened, detectors, split)
    task_of_rows = "rca" if asked == "diagnosis" else asked
    questions = [one for one in questions_of(truths, [task_of_rows], [protocol], alarms) if one.is_asked]
    if not questions:
        raise DataError(
            f"{source.name} has nothing to ask: none of the {len(truths)} chosen episodes has "
            + ("an alarm" if protocol == "detected" else "a fault with a known onset")
        )
    by_episode = {truth.episode: truth for truth in truths}
    samples = [_sample(opened, one, by_episode[one.episode], detectors.get(one.episode)) for one in questions]
    return Task(
        dataset=MemoryDataset(samples, name=f"{source.name}-{source.version}"),
        setup=episode_tools(),
        solver=react(),
        scorer=answer_scorer(),
        message_limit=message_limit,
    )


def _chosen_truths(source: DatasetSource, episodes: Names, split: str | None) -> list[Truth]:
    names = [name for name in episodes.split(",") if name] if isinstance(episodes, str) else list(episodes or ())
    by_episode = {truth.episode: truth for truth in source.truths}
    for name in names:
        if name not in by_episode:
            raise unknown_name("episode", name, list(by_episode))
    chosen = dict.fromkeys(names or by_episode)
    if split is not None:
        tested = {one for fold in folds_of_split(split, source.splits, source.truths) for one in fold.test}
        chosen = {name: None for name in chosen if name in tested}
    return [by_episode[name] for name in chosen]


def _alarms(dataset: Dataset, detectors: Mapping[str, str], split: str | None) -> Mapping[str, int | None]:
    names = sorted({*detectors.values()})
    evaluated = evaluate(dataset, names, tasks=("detection",), alarm=names[0], split=split)
    return alarms_of_rows(evaluated.rows, detectors.get)


def _sample(dataset: Dataset, question: AgentQuestion, truth: Truth, detector: str | None) -> Sample:
    context = dataset.view(question.episode).context
    about = AskedQuestion(
        folder=str(dataset.root.absolute()),
        version=dataset.version,
        task=question.task,
        protocol=question.protocol,
        alarm_ns=question.alarm_ns,
        alarm_detector=detector,
    )
    return Sample(
        id=question.episode,
        input=problem_text(question.task, _clock(context, question.alarm_ns), question.alarm_ns),
        target=_target(question.task, truth),
        metadata={
            QUESTION: about.model_dump(),
            CANDIDATES: list(truth.candidates),
            CLUSTER: "/".join(truth.cluster),
        },
    )


def _target(asked: str, truth: Truth) -> str:
    """Return the right answer for people who read the log; scoring uses the dataset's label."""
    if asked == "detection":
        return "fault" if truth.faulty else "no fault"
    if asked == "localization":
        return ", ".join(" or ".join(cause) for cause in truth.causes) or "no service"
    return f"{truth.system_level} / {truth.fault_type}" if truth.faulty else "no fault"


def _clock(context: Any, alarm_ns: int | None) -> ViewClock:
    return ViewClock(context) if alarm_ns is None else ViewClock.after(context, alarm_ns)


@solver
def episode_tools() -> Solver:
    """Give the agent the tools of its episode and the submission."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        question = AskedQuestion.model_validate(state.metadata[QUESTION])
        view = shared_dataset(question).view(str(state.sample_id))
        tools = EpisodeTools(view, _clock(view.context, question.alarm_ns))
        session = AgentSession(tools, cast("RecordedTask", question.task))
        state.store.set(REPORT, session.report())
        state.tools.extend(inspect_tools(LocalToolHost(session)))
        return state

    return solve


def _open(dataset: str, version: str | None) -> Dataset:
    if not dataset:
        raise UsageError("which dataset? name it with -T dataset=..., for instance -T dataset=datasets/sample")
    if is_url(dataset):
        raise UsageError(f"agents read local datasets, and {dataset} is a URL; copy the dataset to a folder first")
    return open_dataset(local_path(dataset), version)
