"""The contract of a format of recorded runs."""

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
    """Information from the user that the files may lack."""

    agent: str | None = None
    """Name of the agent, for sources that have none."""
    model: str | None = None
    """Name of the model, for sources that have none."""
    candidates: tuple[str, ...] = ()
    """Services that an answer may name; needed to recognise services in free text."""


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """One run as read by a format."""

    key: str
    """Unique within its file and stable across imports; determines the run's name."""
    trajectory: Trajectory
    run: AgentRun
    """The record without name, paths and hashes, which the import adds."""
    truth: RunTruth


@dataclass(frozen=True, kw_only=True)
class SourceScore:
    """The score of an answer by its source's label and rule."""

    success: bool
    value: float
    """From 0 to 1; 1 for a success."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further scores, for example of individual fields."""


class AgentFormat(Protocol):
    """A format of recorded runs; created without arguments and stateless."""

    name: str
    """Name on the command line, such as `aiopslab`."""
    title: str
    """Display name, such as `AIOpsLab`."""

    def files(self, path: Path) -> Sequence[Path]:
        """Return the files with runs below a folder, or the file itself, in a stable order, without reading them."""
        ...

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the runs of one file; raise DataError with the file's name if it cannot be imported."""
        ...

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> SourceScore | None:
        """Score an answer by the label that `runs` returned; None if a recording cannot show it.

        Not called for a run without an answer, which is a miss.
        """
        ...

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Explain in a few words why the result differs from the recorded one; empty if unknown."""
        ...


_MAX_FILES = 1_000_000


def files_below(path: Path, accept: Callable[[Path], bool], expected: str) -> list[Path]:
    """Return the file itself, or all accepted files below a folder, sorted; links to folders are not followed.

    Raises
    ------
    DataError
        There is no such file; the message says what was expected.
    """
    if not path.exists():
        raise DataError(f"{printable(path)} does not exist; give {expected}")
    if not path.is_dir():
        return [path]
    files = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        files += [file for name in names if accept(file := Path(folder) / name)]
        if len(files) > _MAX_FILES:
            raise DataError(f"{printable(path)} holds more than {_MAX_FILES:,} files; give a smaller folder")
    if not files:
        raise DataError(f"{printable(path)} holds no runs; give {expected}")
    return sorted(files)


def get_data_suffix(file: Path) -> str:
    """Return the suffix of a file, ignoring `.gz`.

    Examples
    --------
    >>> get_data_suffix(Path("run.json.gz")), get_data_suffix(Path("run.csv"))
    ('.json', '.csv')
    """
    return Path(file.stem).suffix if file.suffix == ".gz" else file.suffix


GROUP = "faultset.agent_formats"
T = TypeVar("T")
_log = logging.getLogger(__name__)


def agent_format_names() -> list[str]:
    """Return the names of all formats of recorded runs, without loading any."""
    return list(plugins(GROUP))


def agent_format(name: str) -> AgentFormat:
    """Return a format; raise UsageError for an unknown name or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="format of runs", accept=_build)


def _build(name: str, loaded: Any) -> AgentFormat:
    require_class(loaded, "files", "runs", "score", "difference")
    instance: AgentFormat = loaded()
    if instance.name != name:
        raise UsageError(
            f'the format must have the name "{name}" of its entry point, got "{instance.name}"; rename one'
        )
    return _GuardedAgentFormat(instance)


class _GuardedAgentFormat:
    """Wraps a format and turns every unexpected error into one sentence about the data."""

    def __init__(self, inner: AgentFormat) -> None:
        self._inner = inner
        self.name, self.title = inner.name, inner.title

    def files(self, path: Path) -> Sequence[Path]:
        return self._guard(path, lambda: self._inner.files(path))

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        return self._guard(file, lambda: self._inner.runs(file, options))

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> SourceScore | None:
        return self._guard(run.run, lambda: self._inner.score(run, truth))

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        return self._guard(run.run, lambda: self._inner.difference(run, truth, success))

    def _guard(self, origin: Path | str, read: Callable[[], T]) -> T:
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
                f"{printable(reason)}); give another file, or choose another format"
            ) from error
