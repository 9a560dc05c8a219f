"""An evaluation: all answers, the tables computed from them, and the files that store both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import unknown_name
from faultset.evaluators.leaderboards.fault_loudness import Loudness
from faultset.evaluators.leaderboards.formats import leaderboard_frame, write_json, write_markdown
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.records import Failure, Leaderboard, Table
from faultset.evaluators.leaderboards.scores import score_episodes
from faultset.evaluators.recordings.results import RecordingResults
from faultset.evaluators.results.output_folder import FILES, check_writable, writing
from faultset.evaluators.results.rows import TASKS, ResultRow, write_rows
from faultset.evaluators.scoring.thresholds import ThresholdPolicy

if TYPE_CHECKING:
    import pandas as pd

    from faultset.agents.runs.record import AgentRun
    from faultset.agents.runs.trajectory_contents import InspectedServices
    from faultset.baselines.api.registry import BaselineSpec

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
        from faultset.evaluators.leaderboards.terminal import render_text

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
        from faultset.evaluators.reports.page import write_report

        folder = Path(folder)
        check_writable(folder)
        paths = tuple(folder / name for name in FILES)
        with writing(folder):
            write_rows(self.rows, paths[0])
            if self.recordings is not None:
                self.recordings.write(folder)
            write_json(self.board, paths[1])
            write_markdown(self.board, paths[2])
            write_report(
                self.board,
                self.rows,
                self.specs,
                self.dataset,
                paths[3],
                policies=self.policies,
                recordings=self.recordings,
            )
        return paths
