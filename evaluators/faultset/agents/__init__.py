"""LLM agents beside algorithms: recorded runs of agents come in, and are scored against their own labels.

`import_runs` reads runs in the formats of other projects, `read_runs` gives them as records, `score_runs` scores them.
All return records and print nothing.

solvers      agents and controls for Inspect
interface    the tools of an episode: for Inspect, over MCP, behind AIOpsLab's contract
trajectory   what an agent did, step by step, as ATIF
runs         the record of a run, its answer, how it ended, and the tables that hold them
formats      the formats of other projects, open to other distributions
testing      the check of what a format promises
imports      importing and scoring recorded runs
cli          the commands
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.agents.imports import ImportedRuns, ScoredRun, import_runs, score_runs
    from faultset.agents.runs.record import AgentRun, RunTruth, read_runs
    from faultset.agents.trajectory import Trajectory, read_trajectory

__all__ = [
    "AgentRun",
    "ImportedRuns",
    "RunTruth",
    "ScoredRun",
    "Trajectory",
    "import_runs",
    "read_runs",
    "read_trajectory",
    "score_runs",
]

__getattr__, __dir__ = lazy_names(__name__)
