"""Which episodes of a dataset become tasks, and what is asked of each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from faultset.agents.interface.session import SESSION_TASKS, RecordedTask
from faultset.core.errors import DataError, UsageError
from faultset.core.suggestions import unknown_name
from faultset.datasets import Dataset
from faultset.evaluators.agent_tasks.grading import TaskLabel, label_of
from faultset.evaluators.results.truth import UNFELT, Truth, truth_of

_UNSEEN = ("silent", UNFELT)


@dataclass(frozen=True, kw_only=True)
class EpisodeTask:
    """One episode as a task."""

    name: str
    """Says nothing of the episode, not even which it is."""
    truth: Truth
    label: TaskLabel

    @property
    def episode(self) -> str:
        """Its id in the dataset."""
        return self.truth.episode


@dataclass(frozen=True, kw_only=True)
class ChosenTasks:
    """Episodes that become tasks, and why others do not."""

    tasks: tuple[EpisodeTask, ...]
    left_out: dict[str, str]


def tasks_of(dataset: Dataset, task: str, episodes: Sequence[str] = ()) -> ChosenTasks:
    """Choose episodes for tasks.

    A fault of which neither clients nor telemetry are known to have shown anything is left out, and where the
    place is asked for, one that lies outside the candidates.

    Parameters
    ----------
    task
        What is asked: detection, localization, diagnosis or all.
    episodes
        Only these; all by default.

    Raises
    ------
    UsageError
        The task or an episode is unknown.
    DataError
        No episode is left.
    """
    asked: RecordedTask | None = next((one for one in SESSION_TASKS if one == task), None)
    if asked is None:
        raise UsageError(f'the task "{task}" is unknown; tasks are {", ".join(SESSION_TASKS)}')
    for one in episodes:
        if one not in dataset.episodes:
            raise unknown_name("episode", one, dataset.episodes)
    tasks, left_out = [], {}
    for episode in episodes or dataset.episodes:
        truth = truth_of(dataset.label(episode), dataset.view(episode).context)
        reason = _why_not(truth, asked)
        if reason:
            left_out[episode] = reason
            continue
        name = f"episode-{hashlib.sha256(f'{dataset.version}/{episode}/{asked}'.encode()).hexdigest()[:12]}"
        tasks.append(EpisodeTask(name=name, truth=truth, label=label_of(truth, asked)))
    if not tasks:
        raise DataError(f"no episode can be a task: {next(iter(left_out.values()), 'the dataset has none')}")
    return ChosenTasks(tasks=tuple(tasks), left_out=left_out)


def _why_not(truth: Truth, task: RecordedTask) -> str:
    if truth.faulty and truth.verdict in _UNSEEN:
        return "nothing is known to have shown the fault"
    if truth.faulty and task in ("localization", "all") and not truth.causes:
        return "the root cause is no candidate"
    return ""
