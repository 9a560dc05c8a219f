"""An evaluation: all answers, the tables computed from them, and the files that store both."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError, UsageError, unknown_name
from faultset.core.files import replace_text
from faultset.evaluators.execution.dataset_source import DatasetSource, open_source
from faultset.evaluators.leaderboards.formats import leaderboard_frame, write_json, write_markdown
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.records import Failure, Leaderboard, Table
from faultset.evaluators.leaderboards.scores import score_episodes
from faultset.evaluators.recordings.online_detection import RecordingResults
from faultset.evaluators.results.rows import (
    FILES,
    PROTOCOLS,
    TASKS,
    ResultRow,
    check_writable,
    read_rows,
    write_rows,
    writing,
)
from faultset.evaluators.results.truth import Loudness, Truth
from faultset.evaluators.scoring.thresholds import ThresholdPolicy, choose_policies

if TYPE_CHECKING:
    import pandas as pd

    from faultset.agents.runs.record import AgentRun
    from faultset.agents.runs.trajectory_contents import InspectedServices
    from faultset.baselines.registry import BaselineSpec
    from faultset.datasets.dataset import Dataset


_TEXT_COLUMNS = 120


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All answers of an evaluation and the tables computed from them."""

    rows: tuple[ResultRow, ...] = field(default=(), repr=False)
    """One row per answer to an episode."""
    recordings: RecordingResults | None = None
    """Answers of detectors on recordings."""
    specs: tuple[BaselineSpec, ...] = field(default=(), repr=False)
    """The baselines, for the report."""
    dataset: Path | None = None
    """Dataset folder, for the report."""
    digest: str = ""
    """SHA-256 of the dataset version's file list."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings, for the report."""
    policies: tuple[ThresholdPolicy, ...] = field(default=(), repr=False)
    """Threshold policies in addition to `reference`."""
    seed: int = 0
    """Seed of the bootstrap."""
    agent_runs: tuple[AgentRun, ...] = field(default=(), repr=False)
    """Runs of agents; their answers are among the rows."""
    inspected_services: Mapping[str, InspectedServices] = field(default_factory=dict, repr=False)
    """Run -> what the agent inspected, if its trajectory is available."""

    def __repr__(self) -> str:
        """Return the tables that `evaluate` prints."""
        from faultset.evaluators.leaderboards.formats import render_text

        return render_text(self.board, _TEXT_COLUMNS)

    @cached_property
    def board(self) -> Leaderboard:
        """Return all tables with their provenance and warnings."""
        return build_leaderboard(
            self.rows,
            recorded_rows=() if self.recordings is None else self.recordings.rows,
            recorded_tables=() if self.recordings is None else self.recordings.tables(self.seed),
            digest=self.digest,
            settings={**self.settings, **({} if self.recordings is None else {"recordings": self.recordings.summary})},
            seed=self.seed,
            policies=self.policies,
            agent_runs=self.agent_runs,
            inspected_services=self.inspected_services,
            reconstructions=[spec.name for spec in self.specs if getattr(spec, "reconstruction", False)],
        )

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return one table per task, protocol, application, verdict, group of methods and loudness of faults."""
        return self.board.tables

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Return the failures of methods; each counts as a wrong answer."""
        return self.board.failures

    def leaderboard(
        self, task: str | None = None, *, intervals: bool = False, faults: Loudness | None = "all"
    ) -> pd.DataFrame:
        """Return the tables as one frame with one row per method and table.

        Parameters
        ----------
        task
            Only the tables of detection, localization or rca, with the metrics of that task.
        intervals
            Add the columns `<metric>_low` and `<metric>_high` with the bounds of 95 % intervals.
        faults
            Only the tables of "all", "gray" or "loud" faults; None for every table.

        Returns
        -------
        pandas.DataFrame
            Columns `task`, `protocol`, `app`, `verdict`, `faults` (all, gray or loud), `group`, `threshold_rule`,
            `rank`, `baseline`, `kind`, `reconstruction`, one per metric (NaN if unknown), `settings_low` and
            `settings_high` (range over declared settings), `failed` and `cannot` (numbers of answers), `cpu_s` (median
            per answer), `episodes` (with a fault), `control` (the strongest control), `vs_control` (the difference to
            it, with the bounds of its interval), `p` (Holm-corrected) and `beats_control`.
        """
        if task is not None and task not in TASKS:
            raise unknown_name("task", task, TASKS)
        chosen = [table for table in self.tables if task in (None, table.task) and faults in (None, table.faults)]
        return leaderboard_frame(chosen, intervals=intervals)

    def episode_values(self, task: str) -> pd.DataFrame:
        """Return the value of every metric on every episode; the tables of a task are computed from it.

        Parameters
        ----------
        task
            detection, localization or rca.

        Returns
        -------
        pandas.DataFrame
            One row per method, protocol, episode and metric, with the columns `protocol`, `app`, `verdict`,
            `baseline`, `kind`, `episode`, `metric` and `value` (mean over seeds). Metrics that need all answers, such
            as `mcc`, are only in `leaderboard`.
        """
        if task not in TASKS:
            raise unknown_name("task", task, TASKS)
        return score_episodes(self.rows, self.policies).frame(task)

    def write(self, folder: str | Path) -> tuple[Path, ...]:
        """Write results.parquet, leaderboard.json, leaderboard.md and report.html into a folder.

        Returns
        -------
        tuple of Path
            The files.
        """
        from faultset.evaluators.reports.page import render

        folder = Path(folder)
        check_writable(folder)
        paths = tuple(folder / name for name in FILES)
        with writing(folder):
            write_rows(self.rows, paths[0])
            if self.recordings is not None:
                self.recordings.write(folder)
            write_json(self.board, paths[1])
            write_markdown(self.board, paths[2])
            page = render(
                self.board,
                self.rows,
                self.specs,
                self.dataset,
                policies=self.policies,
                recordings=self.recordings,
                results=folder,
            )
            replace_text(paths[3], page, durable=False)
        return paths


def score(
    dataset: str | Path | Dataset,
    answers: pd.DataFrame | Sequence[ResultRow] | str | Path,
    *,
    version: str | None = None,
    seed: int = 0,
) -> Evaluation:
    """Score answers to the episodes of a dataset.

    Parameters
    ----------
    dataset
        Folder, URL, or opened dataset with the ground truth.
    answers
        Rows or a `results.parquet` of an earlier evaluation, or a frame with one row per answer and the columns
        - `episode`, `baseline` (name of the method), `task` (detection, localization or rca);
        - detection: `alarm_ns`, missing if no alarm was raised;
        - localization: `ranking`, a mapping from services to scores or a list of services, best first;
        - root cause: `system_level` and `fault_type`;
        - optional: `protocol` (detected or oracle; "oracle" by default, "detected" for detection), `given_alarm_ns`,
          `seed`, `kind` (method, rule or control), `cpu_seconds`; `status` and `reason` of a missing answer.
    version
        Version of the dataset; the newest by default.
    seed
        Seed of the randomised tests.

    Raises
    ------
    UsageError
        A column is missing or holds an invalid answer.
    DataError
        An answer is about an episode that is not in the dataset.

    Examples
    --------
    >>> import pandas as pd
    >>> from faultset.evaluators import score
    >>> rows = pd.DataFrame({"episode": ["e1"], "baseline": "agent", "task": "localization", "ranking": [["geo"]]})
    >>> score("datasets/sample", rows).leaderboard("localization")  # doctest: +SKIP
    """
    with open_source(dataset, version, workers=1) as read_source:
        source = read_source()
    return Evaluation(
        rows=_read_answers(answers, source),
        dataset=None if source.url else source.folder,
        digest=source.digest,
        settings={"source": source.url or str(source.folder), "answers": "computed elsewhere"},
        policies=tuple(choose_policies([])),
        seed=seed,
    )


def _read_answers(
    answers: pd.DataFrame | Sequence[ResultRow] | str | Path, source: DatasetSource
) -> tuple[ResultRow, ...]:
    truths = {truth.episode: truth for truth in source.truths}
    if isinstance(answers, str | Path):
        path = Path(answers)
        answers = read_rows(path / "results.parquet" if path.is_dir() else path)
    if isinstance(answers, Sequence):
        rows = [_set_truth(row, truths, source) for row in answers]
    else:
        rows = [_build_row(record, truths, source) for record in answers.to_dict("records")]
    if not rows:
        raise UsageError("there is no answer to score; give at least one")
    return tuple(rows)


def _find_truth(episode: str, truths: Mapping[str, Truth], source: DatasetSource) -> Truth:
    if episode not in truths:
        raise DataError(
            f'an answer is about the episode "{episode}", which is not in {source.name} version {source.version}; '
            "choose the version that was answered, or leave the answer out"
        )
    return truths[episode]


def _set_truth(row: ResultRow, truths: Mapping[str, Truth], source: DatasetSource) -> ResultRow:
    from dataclasses import replace

    return replace(row, truth=_find_truth(row.episode, truths, source), dataset=source.name, version=source.version)


def _build_row(record: Mapping[Any, Any], truths: Mapping[str, Truth], source: DatasetSource) -> ResultRow:
    fields = {str(name): value for name, value in record.items() if not _is_missing(value)}
    for name in ("episode", "baseline", "task"):
        if name not in fields:
            raise UsageError(f'every answer must have episode, baseline and task, but one has no "{name}"')
    task = str(fields["task"])
    protocol = str(fields.get("protocol", "detected" if task == "detection" else "oracle"))
    if task not in TASKS or protocol not in PROTOCOLS:
        raise UsageError(
            f'an answer has the task "{task}" and the protocol "{protocol}"; tasks are {", ".join(TASKS)}, '
            f"protocols {', '.join(PROTOCOLS)}"
        )
    truth = _find_truth(str(fields["episode"]), truths, source)
    alarm_ns = fields.get("given_alarm_ns", truth.onset_ns if protocol == "oracle" else None)
    return ResultRow(
        baseline=str(fields["baseline"]),
        kind=str(fields.get("kind", "method")),
        needs=(),
        settings="",
        dataset=source.name,
        version=source.version,
        split=str(fields.get("split", "none")),
        fold=0,
        task=task,
        protocol=protocol,
        seed=int(fields.get("seed", 0)),
        status=fields.get("status", "ok"),
        reason=str(fields.get("reason", "")),
        given_alarm_ns=None if alarm_ns is None or task == "detection" else int(alarm_ns),
        alarm_source="truth" if protocol == "oracle" else None,
        alarm_ns=int(fields["alarm_ns"]) if task == "detection" and "alarm_ns" in fields else None,
        answer={name: fields[name] for name in ("system_level", "fault_type") if task == "rca" and name in fields},
        ranking=_read_ranking(fields.get("ranking", {}), truth) if task == "localization" else {},
        cpu_seconds=float(fields["cpu_seconds"]) if "cpu_seconds" in fields else None,
        truth=truth,
    )


def _read_ranking(value: Any, truth: Truth) -> dict[str, float]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise UsageError(
                f"the ranking of {truth.episode} must be a list of services or a mapping in JSON, got {value[:60]!r}"
            ) from None
    if isinstance(value, Mapping):
        scores = {str(name): float(number) for name, number in value.items()}
    elif isinstance(value, Iterable):
        names = [str(name) for name in value]
        scores = {name: float(len(names) - i) for i, name in reversed(list(enumerate(names)))}
    else:
        raise UsageError(f"the ranking of {truth.episode} must be a list of services or a mapping, got {value!r}")
    return {name: number for name, number in scores.items() if name in truth.candidates}


def _is_missing(value: object) -> bool:
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NAType", "NaTType")
    )
