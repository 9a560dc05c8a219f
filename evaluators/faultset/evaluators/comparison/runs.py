"""Results of one evaluation, read from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError, UsageError
from faultset.evaluators.comparison.records import RunFacts
from faultset.evaluators.leaderboards.formats import to_json
from faultset.evaluators.results.rows import NO_FAILURES, ResultRow, read_rows
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.evaluators.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class Run:
    """Rows of one evaluation and what was written beside them."""

    folder: Path
    rows: tuple[ResultRow, ...]
    board: Mapping[str, Any]
    """leaderboard.json; empty where it is missing."""

    @property
    def truths(self) -> dict[str, Truth]:
        """Scored episodes."""
        return {row.episode: row.truth for row in self.rows}

    @property
    def facts(self) -> RunFacts:
        """What the run says about itself."""
        first = self.rows[0]
        return RunFacts(
            folder=str(self.folder),
            dataset=first.dataset,
            version=first.version,
            digest=str(self.board.get("digest") or ""),
            split=first.split,
            code=first.code,
            seeds=tuple(sorted({row.seed for row in self.rows})),
            episodes=len(self.truths),
            methods=len({row.baseline for row in self.rows}),
            answers=len(self.rows),
            failures=sum(row.status not in NO_FAILURES for row in self.rows),
        )


def run_of(source: Run | Evaluation | str | Path, name: str) -> Run:
    """Return a run: as it is, read from a folder, or of an evaluation that was just made.

    Parameters
    ----------
    name
        Stands for the folder of an evaluation that has none.
    """
    if isinstance(source, Run):
        return source
    if isinstance(source, str | Path):
        return read_run(Path(source))
    return Run(folder=Path(name), rows=_compared(source.rows), board=to_json(source.board))


def _compared(rows: Iterable[ResultRow]) -> tuple[ResultRow, ...]:
    return tuple(row for row in rows if row.protocol in ("detected", "own", "oracle"))


def read_run(folder: Path) -> Run:
    """Read a folder that `evaluate` wrote; answers about training episodes and later alarms are left out.

    Raises
    ------
    UsageError
        When there is no such folder, or it holds no results.
    DataError
        When the results cannot be read.
    """
    path = folder if folder.suffix == ".parquet" else folder / "results.parquet"
    if not path.exists() and folder.is_dir():
        # `evaluate` keeps the results of every dataset in a folder of its own below `results`
        below = sorted(folder.glob("*/results.parquet"))
        if len(below) > 1:
            names = ", ".join(one.parent.name for one in below[:5])
            raise UsageError(f"{folder} holds the results of {len(below)} datasets ({names}); name one of them")
        path = below[0] if below else path
    if not path.is_file():
        raise UsageError(f"{folder} holds no results ({path.name} is missing); name a folder that evaluate wrote")
    rows = _compared(read_rows(path))
    if not rows:
        raise DataError(f"{path} holds no answer that can be compared; run evaluate again")
    board = path.parent / "leaderboard.json"
    try:
        content = json.loads(board.read_text(encoding="utf-8")) if board.is_file() else {}
    except ValueError as error:
        raise DataError(f"{board} is not JSON ({error}); run evaluate again, or remove it") from error
    return Run(folder=path.parent, rows=rows, board=content if isinstance(content, dict) else {})
