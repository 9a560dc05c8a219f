"""A format whose every failure is one sentence about the data, whatever its reader did not foresee."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from faultset.core.errors import DataError, FaultsetError
from faultset.core.printable import printable
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, ImportFormat

T = TypeVar("T")
_log = logging.getLogger(__name__)


class GuardedFormat:
    """An import format as the rest of the program uses it; see `ImportFormat` for its members."""

    def __init__(self, inner: ImportFormat) -> None:
        self._inner = inner
        self.name, self.title, self.weakness = inner.name, inner.title, inner.weakness
        self.layout = inner.layout

    def recognises(self, path: Path) -> bool:
        """Say whether a folder or file looks like this format; what cannot be looked at does not."""
        try:
            return self._inner.recognises(path)
        except Exception:
            _log.debug("%s", path, exc_info=True)
            return False

    def cases(self, path: Path) -> Sequence[Case]:
        """Find all cases below a path."""
        return self._named(str(path), lambda: self._inner.cases(path))

    def load(self, case: Case) -> ForeignEpisode:
        """Read one case."""
        return self._named(case.key, lambda: self._inner.load(case))

    def data_issues(self, path: Path, cases: Sequence[Case]) -> Sequence[DataIssue]:
        """Look at the data and its cases without importing them and report their data issues."""
        return self._named(str(path), lambda: self._inner.data_issues(path, cases))

    def _named(self, origin: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except FaultsetError:
            raise
        except Exception as error:
            _log.debug("%s", origin, exc_info=True)
            reason = (str(error).splitlines() or [""])[0][:200]
            raise DataError(
                f"{printable(origin)} cannot be read as {self.title} data ({type(error).__name__}: "
                f"{printable(reason)}); restore its files"
            ) from error
