"""What a format of recorded runs has to offer so that its runs can be imported and scored."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.trajectory import Trajectory
from faultset.core.errors import DataError, FaultsetError, UsageError, missing_extra
from faultset.core.plugins import load_plugin, plugins, require_class
from faultset.core.printable import printable


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


_MOST_FILES = 1_000_000


def files_below(path: Path, wanted: Callable[[Path], bool], what: str) -> list[Path]:
    """Return the file itself, or all files below a folder that are wanted, sorted; links to folders are not followed.

    Raises
    ------
    DataError
        There is none.
    """
    if not path.exists():
        raise DataError(f"there is nothing at {printable(path)}; give {what}")
    if not path.is_dir():
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        found += [file for name in names if wanted(file := Path(folder) / name)]
        if len(found) > _MOST_FILES:
            raise DataError(f"{printable(path)} holds more than {_MOST_FILES:,} files; give a smaller folder")
    if not found:
        raise DataError(f"{printable(path)} holds no runs; give {what}")
    return sorted(found)


GROUP = "faultset.agent_formats"
T = TypeVar("T")
_log = logging.getLogger(__name__)


def agent_format_names() -> list[str]:
    """Return the names of all formats of recorded runs, without loading any."""
    return list(plugins(GROUP))


def agent_format(name: str) -> AgentFormat:
    """Return a format; raise UsageError for a name that is not known or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="format of runs", accept=_made)


def _made(name: str, loaded: Any) -> AgentFormat:
    require_class(loaded, "files", "runs", "score", "difference")
    made: AgentFormat = loaded()
    if made.name != name:
        raise UsageError(f'the format calls itself "{made.name}", and both names must be the same')
    return _GuardedAgentFormat(made)


class _GuardedAgentFormat:
    """A format whose every failure is one sentence about the data, whatever its reader did not foresee."""

    def __init__(self, inner: AgentFormat) -> None:
        self._inner = inner
        self.name, self.title = inner.name, inner.title

    def files(self, path: Path) -> Sequence[Path]:
        return self._named(path, lambda: self._inner.files(path))

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        return self._named(file, lambda: self._inner.runs(file, options))

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        return self._named(run.run, lambda: self._inner.score(run, truth))

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        return self._named(run.run, lambda: self._inner.difference(run, truth, success))

    def _named(self, origin: Path | str, read: Callable[[], T]) -> T:
        try:
            return read()
        except FaultsetError:
            raise
        except Exception as error:
            missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
            if missing is not None:
                raise missing from error
            _log.debug("%s", origin, exc_info=True)
            reason = (str(error).splitlines() or [""])[0][:200]
            raise DataError(
                f"{printable(origin)} cannot be read as a run of {self.title} ({type(error).__name__}: "
                f"{printable(reason)}); restore the file"
            ) from error
