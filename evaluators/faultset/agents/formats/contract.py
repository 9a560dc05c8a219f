"""What a format of recorded runs has to offer so that its runs can be imported and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.trajectories.model import Trajectory


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What the user says that the files do not."""

    agent: str | None = None
    """Name of the agent, for sources that do not give it."""
    model: str | None = None
    """Name of the model, for sources that do not give it."""
    candidates: tuple[str, ...] = ()
    """Services that an answer may name; needed to find services in free text."""


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """One run as a format has read it."""

    key: str
    """Unique within its file and the same in every import; the run's name is made from it."""
    trajectory: Trajectory
    run: AgentRun
    """Without name, paths and hashes, which the import gives."""
    truth: RunTruth


@dataclass(frozen=True, kw_only=True)
class OwnScore:
    """What an answer is worth against its source's label, by the source's rule."""

    success: bool
    value: float
    """From 0 to 1; 1 for a success."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers, for instance of single fields."""


class AgentFormat(Protocol):
    """A layout of recorded runs. Made without arguments; holds no data."""

    name: str
    """As the user types it: `aiopslab`."""
    title: str
    """As people know it: `AIOpsLab`."""

    def files(self, path: Path) -> Sequence[Path]:
        """Find the files below a folder that hold runs, or the file itself, in a stable order; never read them."""
        ...

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the runs of one file; raise DataError, naming it, for one that cannot be imported."""
        ...

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        """Score an answer against the label that `runs` gave; None where that cannot be done from a recording.

        A run without an answer is a miss before this is asked.
        """
        ...

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Say why our result is not the recorded one, in a few words; empty when that is not known."""
        ...
