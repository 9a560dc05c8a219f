"""Questions to agents, and their runs as result rows, under the same rules as baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from faultset.agents.interface.session import RecordedTask, SessionTask
from faultset.agents.runs.record import AgentRun
from faultset.baselines.api.contract import Diagnosis, Ranking
from faultset.evaluators.execution.runners.answers import InvalidAnswer, check_diagnosis, check_ranking
from faultset.evaluators.execution.runners.messages import CheckedAnswer
from faultset.evaluators.results.provenance import code_version, library_versions
from faultset.evaluators.results.rows import Protocol, ResultRow, Status
from faultset.evaluators.results.stored_answers import StoredAnswer, answer_text
from faultset.evaluators.results.truth import Truth

TASKS_OF: Mapping[str, tuple[str, ...]] = {
    "detection": ("detection",),
    "localization": ("localization",),
    "diagnosis": ("rca",),
    "all": ("localization", "rca"),
}
"""Session task -> tasks its answer is scored for. Detection has its own session, which mentions no alarm."""


@dataclass(frozen=True, kw_only=True)
class AgentQuestion:
    """A question that every agent gets."""

    episode: str
    task: RecordedTask
    protocol: str
    alarm_ns: int | None
    """Alarm passed to the agent; None for detection, and if no alarm was raised."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the tasks the answer is scored for."""
        return TASKS_OF[self.task]

    @property
    def is_asked(self) -> bool:
        """Return whether agents get the question; all but detection need an alarm."""
        return self.task == "detection" or self.alarm_ns is not None


def list_questions(
    truths: Iterable[Truth], tasks: Sequence[str], protocols: Sequence[str], alarms: Mapping[str, int | None]
) -> Iterator[AgentQuestion]:
    """Yield the questions on tested episodes.

    Localization and diagnosis share a session if both are evaluated. For an episode without a fault, they are asked
    only after a false alarm, as for baselines.

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


def find_alarms(rows: Iterable[ResultRow], detector_of: Callable[[str], str | None]) -> dict[str, int | None]:
    """Return the alarm of each episode: the alarm passed to baselines, or that of the episode's detector."""
    alarms: dict[str, int | None] = {}
    for row in rows:
        if row.protocol == "detected" and row.alarm_source is not None:
            alarms[row.episode] = row.given_alarm_ns
        elif row.baseline == detector_of(row.episode) and row.task == "detection" and row.protocol == "detected":
            alarms.setdefault(row.episode, row.alarm_ns)
    return alarms


_SESSION_TASKS: Mapping[str, SessionTask] = {
    "detection": "detection",
    "localization": "localization",
    "diagnosis": "diagnosis",
    "all": "all",
}


@dataclass(frozen=True, kw_only=True)
class RowContext:
    """Values shared by all rows of one agent."""

    label: str
    kind: str
    settings: str
    code: str
    dataset: str
    version: str
    split: str
    detector_of: Callable[[str], str]
    folds: Mapping[str, int]
    """Tested episode -> its fold."""
    majority_labels: Mapping[int, tuple[str, str] | None]
    """Fold -> most frequent (system level, fault type) of its training labels."""


def build_rows(run: AgentRun, truth: Truth, context: RowContext) -> list[ResultRow]:
    """Return one row per task that a run answers."""
    rows = []
    for task in TASKS_OF[_SESSION_TASKS[run.task]]:
        status, reason, checked = _check_answer(run, task, run.answer or {}, truth)
        row = build_empty_row(truth, context, task, run.protocol or "detected", run.trial or 0, status, reason)
        rows.append(
            replace(
                row,
                given_alarm_ns=None if task == "detection" else run.alarm_ns,
                alarm_ns=checked.alarm_ns,
                answer=StoredAnswer(checked.text),
                ranking=checked.ranking,
                seconds=run.seconds,
            )
        )
    return rows


def build_empty_row(
    truth: Truth, context: RowContext, task: str, protocol: str, trial: int, status: Status, reason: str
) -> ResultRow:
    """Return a row of an agent; its trial number takes the place of a seed."""
    fold = context.folds.get(truth.episode, 0)
    source = None if task == "detection" else "truth" if protocol == "oracle" else context.detector_of(truth.episode)
    return ResultRow(
        baseline=context.label,
        kind=context.kind,
        needs=(),
        settings=context.settings,
        dataset=context.dataset,
        version=context.version,
        split=context.split,
        fold=fold,
        task=task,
        protocol=_to_protocol(protocol),
        seed=trial,
        status=status,
        reason=reason,
        alarm_source=source,
        answer=StoredAnswer("{}"),
        majority_label=context.majority_labels.get(fold) if task == "rca" else None,
        code=code_version(),
        method_code=context.code,
        libraries=library_versions(),
        truth=truth,
    )


def _to_protocol(name: str) -> Protocol:
    return "oracle" if name == "oracle" else "detected"


def _check_answer(
    run: AgentRun, task: str, answer: Mapping[str, Any], truth: Truth
) -> tuple[Status, str, CheckedAnswer]:
    origin = {"agent_run": run.run}
    nothing = CheckedAnswer(text=answer_text(origin))
    if run.status != "ok":
        return run.status, run.status_reason, nothing
    try:
        if task == "detection":
            return "ok", "", _build_detection(run, answer, origin)
        if task == "localization":
            checked = check_ranking(Ranking(scores=_rank_scores(answer)), truth.candidates)
        else:
            checked = check_diagnosis(
                Diagnosis(
                    system_level=_get_label_word(answer, "system_level"),
                    fault_type=_get_label_word(answer, "fault_type"),
                )
            )
    except InvalidAnswer as error:
        return "invalid", str(error), nothing
    return "ok", "", CheckedAnswer(text=_append_text(checked.text, origin), ranking=checked.ranking)


def _build_detection(run: AgentRun, answer: Mapping[str, Any], origin: Mapping[str, str]) -> CheckedAnswer:
    """Return an alarm at the time of the answer, even if the agent describes an earlier fault."""
    alarm_ns = run.answered_ns if answer.get("fault") else None
    return CheckedAnswer(alarm_ns=alarm_ns, text=answer_text({"consecutive": None, **origin}))


def _rank_scores(answer: Mapping[str, Any]) -> dict[str, float]:
    names: Sequence[str] = list(dict.fromkeys(answer.get("services") or ()))
    if answer.get("ordered", True):
        return {name: float(len(names) - position) for position, name in enumerate(names)}
    return dict.fromkeys(names, 1.0)


def _get_label_word(answer: Mapping[str, Any], key: str) -> str | None:
    """Return the level or type in the spelling of labels."""
    word = answer.get(key)
    return word.strip().title() if isinstance(word, str) else None


def _append_text(text: str, more: Mapping[str, str]) -> str:
    return answer_text({**StoredAnswer(text), **more})
