"""What agents are asked: the same tasks, protocols and episodes as baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from faultset.agents.interface.session import RecordedTask
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth

TASKS_OF: Mapping[str, tuple[str, ...]] = {
    "detection": ("detection",),
    "localization": ("localization",),
    "diagnosis": ("rca",),
    "all": ("localization", "rca"),
}
"""Task of a session -> tasks that its answer is scored at. Detection is asked apart, without telling of an alarm."""


@dataclass(frozen=True, kw_only=True)
class AgentQuestion:
    """One session that every agent gets."""

    episode: str
    task: RecordedTask
    protocol: str
    alarm_ns: int | None
    """Alarm that is told; None in detection, and where no alarm was raised, so that nobody is asked."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that the answer is scored at."""
        return TASKS_OF[self.task]

    @property
    def is_asked(self) -> bool:
        """Whether there is something to ask."""
        return self.task == "detection" or self.alarm_ns is not None


def questions_of(
    truths: Iterable[Truth], tasks: Sequence[str], protocols: Sequence[str], alarms: Mapping[str, int | None]
) -> Iterator[AgentQuestion]:
    """Yield the questions about tested episodes.

    Localization and diagnosis are asked in one session where both are wanted. Without a fault they are only asked
    after a false alarm, as baselines are.

    Parameters
    ----------
    alarms
        Episode -> alarm of the detector, UTC nanoseconds.
    """
    both = {"localization", "rca"} <= {*tasks}
    task: RecordedTask | None = (
        "all" if both else "localization" if "localization" in tasks else "diagnosis" if "rca" in tasks else None
    )
    for truth in truths:
        if "detection" in tasks:
            yield AgentQuestion(episode=truth.episode, task="detection", protocol="detected", alarm_ns=None)
        if task is None:
            continue
        if "detected" in protocols:
            yield AgentQuestion(
                episode=truth.episode, task=task, protocol="detected", alarm_ns=alarms.get(truth.episode)
            )
        if "oracle" in protocols and truth.faulty and truth.onset_ns is not None:
            yield AgentQuestion(episode=truth.episode, task=task, protocol="oracle", alarm_ns=truth.onset_ns)


def alarms_of_rows(rows: Iterable[ResultRow], detector_of: Callable[[str], str | None]) -> dict[str, int | None]:
    """Return the alarm of each episode: the one that baselines were given, or that of the episode's detector."""
    alarms: dict[str, int | None] = {}
    for row in rows:
        if row.protocol == "detected" and row.alarm_source is not None:
            alarms[row.episode] = row.given_alarm_ns
        elif row.baseline == detector_of(row.episode) and row.task == "detection" and row.protocol == "detected":
            alarms.setdefault(row.episode, row.alarm_ns)
    return alarms
