"""Recorded runs of agents as result rows, under the same rules as baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.agents.formats.contract import ImportedRun, ImportOptions, agent_format
from faultset.agents.imports import run_name
from faultset.agents.interface.session import SESSION_TASKS, RecordedTask
from faultset.agents.runs.record import RUNS_FILE, AgentRun, read_runs, trajectory_file
from faultset.agents.runs.trajectory_contents import InspectedServices, find_inspected_services
from faultset.agents.trajectory import Trajectory, read_trajectory
from faultset.baselines.contract import Diagnosis, Ranking
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import count_text, printable
from faultset.evaluators.execution.runners.answers import InvalidAnswer, check_diagnosis, check_ranking
from faultset.evaluators.execution.runners.messages import CheckedAnswer
from faultset.evaluators.execution.settings import EvaluationScope, majority_labels
from faultset.evaluators.results.provenance import code_version, library_versions, settings_hash
from faultset.evaluators.results.rows import ResultRow, Status, StoredAnswer, answer_text
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec


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
    def is_asked(self) -> bool:
        """Return whether agents get the question; all but detection need an alarm."""
        return self.task == "detection" or self.alarm_ns is not None


def list_questions(
    truths: Iterable[Truth], tasks: Sequence[str], protocols: Sequence[str], alarms: Mapping[str, int | None]
) -> Iterator[AgentQuestion]:
    """Yield the questions on tested episodes.

    Localization and diagnosis share a session if both are evaluated. For an episode without a fault, they are asked
    only after a false alarm, as for baselines.

    `alarms`: episode -> alarm of the detector, UTC nanoseconds.
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
    """Return the alarm of each episode: the one passed to baselines, or that of the episode's detector."""
    alarms: dict[str, int | None] = {}
    for row in rows:
        if row.protocol == "detected" and row.alarm_source is not None:
            alarms[row.episode] = row.given_alarm_ns
        elif row.baseline == detector_of(row.episode) and row.task == "detection" and row.protocol == "detected":
            alarms.setdefault(row.episode, row.alarm_ns)
    return alarms


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
    rows = []
    for task in TASKS_OF[run.task]:
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
        protocol="oracle" if protocol == "oracle" else "detected",
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


def _check_answer(
    run: AgentRun, task: str, answer: Mapping[str, Any], truth: Truth
) -> tuple[Status, str, CheckedAnswer]:
    origin = {"agent_run": run.run}
    no_answer = CheckedAnswer(text=answer_text(origin))
    if run.status != "ok":
        return run.status, run.status_reason, no_answer
    try:
        if task == "detection":
            # the alarm is at the time of the answer, even if the agent describes an earlier fault
            alarm_ns = run.answered_ns if answer.get("fault") else None
            return "ok", "", CheckedAnswer(alarm_ns=alarm_ns, text=answer_text({"consecutive": None, **origin}))
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
        return "invalid", str(error), no_answer
    return "ok", "", CheckedAnswer(text=answer_text({**StoredAnswer(checked.text), **origin}), ranking=checked.ranking)


def _rank_scores(answer: Mapping[str, Any]) -> dict[str, float]:
    names: Sequence[str] = list(dict.fromkeys(answer.get("services") or ()))
    if answer.get("ordered", True):
        return {name: float(len(names) - position) for position, name in enumerate(names)}
    return dict.fromkeys(names, 1.0)


def _get_label_word(answer: Mapping[str, Any], key: str) -> str | None:
    """Return the level or type in the spelling of labels."""
    word = answer.get(key)
    return word.strip().title() if isinstance(word, str) else None


_SCORED_ELSEWHERE = ("mitigation",)
"""Tasks that are judged on a live episode."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A run of an agent on a faultset episode."""

    run: AgentRun
    trajectory: Trajectory | None
    """None if its file is damaged or missing; the answer still counts."""

    @property
    def label(self) -> str:
        """Return the agent's name in tables, with its model if it has one."""
        return self.run.agent if self.run.model is None else f"{self.run.agent} ({self.run.model})"


def read_recorded_runs(paths: Iterable[str | Path]) -> list[RecordedRun]:
    """Read the runs at all paths; repeated runs of one agent on one question are numbered as trials."""
    runs: dict[str, RecordedRun] = {}
    for path in dict.fromkeys(map(Path, paths)):
        scored = [recorded for recorded in _read_path(path) if recorded.run.task not in _SCORED_ELSEWHERE]
        foreign = next((recorded.run for recorded in scored if recorded.run.task not in SESSION_TASKS), None)
        if foreign is not None:
            raise DataError(
                f"{printable(path)} must hold runs of faultset/detection, faultset/localization or "
                f"faultset/root_cause, but holds runs of {printable(foreign.dataset or foreign.task)}; "
                "score other runs with faultset agents import and faultset agents score"
            )
        if not scored:
            raise DataError(f"{printable(path)} holds no runs on recorded episodes; give other logs with --agents")
        runs |= {recorded.run.run: recorded for recorded in scored}
    trials: Counter[tuple[str | None, ...]] = Counter()
    numbered = []
    for recorded in runs.values():
        run = recorded.run
        question = (recorded.label, run.episode, run.task, run.protocol)
        run = run.model_copy(update={"trial": trials[question]})
        numbered.append(RecordedRun(run=run, trajectory=recorded.trajectory))
        trials[question] += 1
    return numbered


def check_agent_names(runs: Iterable[RecordedRun], method_names: Collection[str]) -> None:
    """Raise UsageError if an agent and a method of the evaluation have the same name."""
    name = next((recorded.label for recorded in runs if recorded.label in method_names), None)
    if name is not None:
        raise UsageError(f'an agent and a method are both called "{name}"; leave one of them out')


def _read_path(path: Path) -> Sequence[RecordedRun]:
    if not (path / RUNS_FILE).is_file():
        return _read_logs(path)
    recorded = []
    for run in read_runs(path):
        trajectory = None
        with suppress(DataError):
            trajectory = read_trajectory(trajectory_file(path, run))
        recorded.append(RecordedRun(run=run, trajectory=trajectory))
    return recorded


def _read_logs(path: Path) -> Sequence[RecordedRun]:
    """Read logs from oldest to newest; a retried sample replaces the failed one of the same task."""
    logs = agent_format("inspect")
    by_key: dict[str, ImportedRun] = {}
    for file in logs.files(path):
        for imported in logs.runs(file, ImportOptions()):
            earlier = by_key.get(imported.key)
            if earlier is None or imported.run.status != "harness_error" or earlier.run.status == "harness_error":
                by_key[imported.key] = imported
    return [
        RecordedRun(run=imported.run.model_copy(update={"run": run_name(key)}), trajectory=imported.trajectory)
        for key, imported in by_key.items()
    ]


@dataclass(frozen=True, kw_only=True)
class AgentResults:
    """Answers of agents and their runs."""

    rows: tuple[ResultRow, ...] = ()
    runs: tuple[AgentRun, ...] = ()
    inspected: Mapping[str, InspectedServices] = field(default_factory=dict)
    """Run -> what the agent inspected."""
    left_out: tuple[str, ...] = ()
    """Sentences about agents without rows because all their runs failed."""


class AgentEvaluation:
    """Turns recorded runs of agents into rows for the tested episodes of a dataset.

    Raises
    ------
    DataError
        A run is on an episode that is not in the dataset.
    UsageError
        The split tests an episode more than once.
    """

    def __init__(self, scope: EvaluationScope, runs: Sequence[RecordedRun]) -> None:
        self._scope, self._runs, self._settings = scope, runs, scope.settings
        self._truths = {truth.episode: truth for truth in scope.source.truths}
        if runs:
            scope.check_single_tests("an agent gives")
        self._folds = {episode: fold.number for fold in scope.folds for episode in fold.test}
        self._majority = majority_labels(scope)
        foreign = next((recorded.run for recorded in runs if recorded.run.episode not in self._truths), None)
        if foreign is not None:
            raise DataError(
                f"the runs given with --agents are about the episode {printable(str(foreign.episode)[:60])}, which is "
                f"not in {scope.source.name}; evaluate the dataset that the agents were run on"
            )

    def check(self, specs: Iterable[BaselineSpec]) -> None:
        """Raise UsageError if no chosen baseline computes the alarms that the runs started from."""
        settings, detectors = self._settings, self._settings.alarm_detectors
        has_alarms = bool(self._scope.online_alarms) or any(
            spec.name in detectors or spec.task != "detection" for spec in specs if spec.task in settings.tasks
        )
        runs = [recorded.run for recorded in self._runs]
        if not has_alarms and any(run.protocol == "detected" and run.task != "detection" for run in runs):
            raise UsageError(
                f"the agents started from the alarm of {detectors[0]}, but no chosen baseline computes it; add it or a "
                "localizer to --baselines"
            )

    def results(self, rows: Iterable[ResultRow]) -> AgentResults:
        """Return the rows of all runs.

        `rows`: rows of the baselines, with the alarms passed to them.
        """
        alarms = find_alarms(rows, self._scope.choose_alarm_detector)
        tested = [self._truths[episode] for episode in self._folds]
        by_label: dict[str, list[RecordedRun]] = {}
        for recorded in self._runs:
            by_label.setdefault(recorded.label, []).append(recorded)
        agent_rows: list[ResultRow] = []
        left_out: list[str] = []
        for label, agent_runs in by_label.items():
            for task in self._settings.tasks:
                runs = [recorded.run for recorded in agent_runs if task in TASKS_OF[recorded.run.task]]
                if runs and all(run.status == "harness_error" for run in runs):
                    left_out.append(
                        f"{label} is left out of {task}: no run succeeded ({count_text(len(runs), 'failure')}, first: "
                        f"{printable(runs[0].status_reason)})"
                    )
                    continue
                for protocol in sorted({run.protocol or "detected" for run in runs}):
                    if task != "detection" and protocol not in self._settings.protocols:
                        continue
                    protocol_runs = [run for run in runs if (run.protocol or "detected") == protocol]
                    questions = list_questions(tested, [task], [protocol], alarms)
                    agent_rows += self._build_agent_rows(label, task, protocol_runs, questions)
        inspected = {
            recorded.run.run: find_inspected_services(
                recorded.trajectory, self._truths[str(recorded.run.episode)].candidates
            )
            for recorded in self._runs
            if recorded.trajectory is not None
        }
        runs = tuple(recorded.run for recorded in self._runs)
        return AgentResults(rows=tuple(agent_rows), runs=runs, inspected=inspected, left_out=tuple(left_out))

    def _build_agent_rows(
        self, label: str, task: str, runs: Sequence[AgentRun], questions: Iterable[AgentQuestion]
    ) -> Iterator[ResultRow]:
        """Yield the rows of an agent for a task and protocol; questions without a run give empty rows."""
        context = self._build_context(label, runs)
        by_episode: dict[str | None, list[AgentRun]] = {}
        for run in runs:
            by_episode.setdefault(run.episode, []).append(run)
        trials = sorted({run.trial or 0 for run in runs})
        for question in questions:
            truth = self._truths[question.episode]
            if not question.is_asked:
                reason = f"{self._scope.choose_alarm_detector(question.episode)} raised no alarm"
                yield from (
                    build_empty_row(truth, context, task, question.protocol, trial, "no_alarm", reason)
                    for trial in trials
                )
                continue
            answered = by_episode.get(question.episode, ())
            for run in answered:
                self._check_alarm(run, question)
                yield from (row for row in build_rows(run, truth, context) if row.task == task)
            if not answered:
                reason = "no run on this episode"
                yield build_empty_row(truth, context, task, question.protocol, trials[0], "missing", reason)

    def _check_alarm(self, run: AgentRun, question: AgentQuestion) -> None:
        if question.task != "detection" and run.alarm_ns != question.alarm_ns:
            raise DataError(
                f"a run of {printable(run.agent)} on episode {question.episode} did not start from the alarm of "
                f"{self._scope.choose_alarm_detector(question.episode)}; choose the detector of the runs with --alarm "
                "and their split with --split"
            )

    def _build_context(self, label: str, runs: Sequence[AgentRun]) -> RowContext:
        return RowContext(
            label=label,
            kind="control" if runs[0].model is None else "agent",
            settings=settings_hash({"runs": label}),
            code=", ".join(sorted({f"{run.agent} {run.agent_version}" for run in runs})),
            dataset=self._scope.source.name,
            version=self._scope.source.version,
            split=self._scope.split,
            detector_of=self._scope.choose_alarm_detector,
            folds=self._folds,
            majority_labels=self._majority,
        )
