"""LLM agents: import recorded runs, score them by their source's labels, and offer episodes to agents.

`import_runs` imports runs in the formats of other projects, `read_runs` returns them as records, `score_runs` scores
them. All return records and print nothing.

solvers      agents and controls for Inspect
interface    the tools of an episode: for Inspect, over MCP, and with AIOpsLab's contract
trajectory   agent trajectories in ATIF
runs         records of runs: answer, status, usage, and their tables
formats      formats of recorded runs, extensible by plug-ins
testing      the contract check for formats
imports      import and scoring of recorded runs
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
