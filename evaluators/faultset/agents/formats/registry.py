"""Formats of recorded runs, found through the entry-point group `faultset.agent_formats`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from faultset.agents.formats.contract import AgentFormat, ImportedRun, ImportOptions, OwnScore
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.core.errors import DataError, FaultsetError, UsageError, missing_extra
from faultset.core.plugins import load_plugin, plugins, require_class
from faultset.core.printable import printable

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
