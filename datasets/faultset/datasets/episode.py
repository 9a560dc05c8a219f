"""One episode of a dataset with its truth, for scoring and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.labels import Label
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.format.truth import read_evidence, read_journal, read_label
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

    from faultset.datasets.tools.recording import ViewClock
    from faultset.datasets.tools.toolset import EpisodeTools


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode: what a method sees of it, and what really happened. Files are read when they are asked for."""

    id: str
    """Opaque id."""
    path: Path
    """Its folder."""
    files: Mapping[str, FileRecord] = field(default_factory=dict, repr=False)
    """Path below the folder -> what the version recorded of the file."""

    @property
    def view(self) -> EpisodeView:
        """The episode as a method sees it."""
        return EpisodeView(self.path)

    @property
    def context(self) -> EpisodeContext:
        """All that is known beforehand."""
        return self.view.context

    @property
    def label(self) -> Label:
        """What really happened."""
        return read_label(self.path)

    @property
    def evidence(self) -> pd.DataFrame:
        """The checks that were made and what they saw, a row for each."""
        return read_evidence(self.path)

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The records of what was done to the platform, in order."""
        return read_journal(self.path)

    def tools(self, clock: ViewClock | None = None, *, algorithms: bool = True) -> EpisodeTools:
        """Return the questions that an operator may ask of the view; the truth cannot be reached from them.

        Parameters
        ----------
        clock
            What counts as now; the end of the view by default.
        algorithms
            Also offer the tools that do a part of an algorithm's work.
        """
        from faultset.datasets.tools.toolset import EpisodeTools

        return EpisodeTools(self.view, clock, algorithms=algorithms)
