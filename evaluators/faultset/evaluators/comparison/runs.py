"""Stored results of evaluations, and the differences between their data, code and settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError, UsageError
from faultset.evaluators.comparison.records import Change, RunFacts
from faultset.evaluators.leaderboards.formats import to_json
from faultset.evaluators.results.rows import NO_FAILURES, ResultRow, read_rows
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.evaluators.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class Run:
    """The rows and the leaderboard of an evaluation."""

    folder: Path
    rows: tuple[ResultRow, ...]
    board: Mapping[str, Any]
    """Content of leaderboard.json; empty if it is missing."""

    @property
    def truths(self) -> dict[str, Truth]:
        """Episode -> its truth, for all scored episodes."""
        return {row.episode: row.truth for row in self.rows}

    @property
    def facts(self) -> RunFacts:
        """Facts about the run."""
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


def load_run(source: Run | Evaluation | str | Path, name: str) -> Run:
    """Return the run of an evaluation, or read it from a folder.

    Parameters
    ----------
    name
        Folder to show in reports if `source` is an evaluation.
    """
    if isinstance(source, Run):
        return source
    if isinstance(source, str | Path):
        return read_run(Path(source))
    return Run(folder=Path(name), rows=_select_compared(source.rows), board=to_json(source.board))


def _select_compared(rows: Iterable[ResultRow]) -> tuple[ResultRow, ...]:
    return tuple(row for row in rows if row.protocol in ("detected", "own", "oracle"))


def read_run(folder: Path) -> Run:
    """Read a folder that `evaluate` wrote, except answers to training episodes, delayed alarms and truncated views.

    Raises
    ------
    UsageError
        The folder does not exist or has no results.
    DataError
        The results cannot be read.
    """
    path = folder if folder.suffix == ".parquet" else folder / "results.parquet"
    if not path.exists() and folder.is_dir():
        # by default `evaluate` writes into results/DATASET
        nested = sorted(folder.glob("*/results.parquet"))
        if len(nested) > 1:
            names = ", ".join(results.parent.name for results in nested[:5])
            raise UsageError(
                f"{folder} must have one results.parquet, but has {len(nested)} ({names}); name one folder"
            )
        path = nested[0] if nested else path
    if not path.is_file():
        raise UsageError(f"{folder} has no results ({path.name} is missing); name a folder that evaluate wrote")
    rows = _select_compared(read_rows(path))
    if not rows:
        raise DataError(f"{path} has no answers to compare; run evaluate again")
    board = path.parent / "leaderboard.json"
    try:
        content = json.loads(board.read_text(encoding="utf-8")) if board.is_file() else {}
    except ValueError as error:
        raise DataError(
            f"{board} must be JSON, but cannot be read ({error}); run evaluate again or remove it"
        ) from error
    return Run(folder=path.parent, rows=rows, board=content if isinstance(content, dict) else {})


_FACTS = (
    ("dataset", "data"),
    ("version", "data"),
    ("digest", "data"),
    ("split", "setting"),
    ("code", "code"),
    ("seeds", "setting"),
)
_WITHOUT_EFFECT = ("reused_fits",)
"""Settings that do not affect answers."""
_TITLES = {"version": "dataset version", "digest": "sha256 of the version", "code": "code version"}


def find_changes(old: Run, new: Run) -> tuple[Change, ...]:
    """Return the differences in data, then in code, then in settings."""
    changes = [
        *_compare_facts(old, new),
        *_compare_libraries(old, new),
        *_compare_settings(old, new),
        *_compare_methods(old, new),
        *_compare_codes(old, new),
    ]
    return tuple(sorted(changes, key=lambda change: ("data", "code", "setting").index(change.category)))


def _compare_facts(old: Run, new: Run) -> Iterator[Change]:
    for name, category in _FACTS:
        before, after = getattr(old.facts, name), getattr(new.facts, name)
        if before != after:
            yield Change(
                what=_TITLES.get(name, name), old=_format_value(before), new=_format_value(after), category=category
            )


def _compare_libraries(old: Run, new: Run) -> Iterator[Change]:
    before, after = (json.loads(run.rows[0].libraries or "{}") for run in (old, new))
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield Change(
                what=name, old=_format_value(before.get(name)), new=_format_value(after.get(name)), category="code"
            )


def _compare_settings(old: Run, new: Run) -> Iterator[Change]:
    before, after = (_flatten(run.board.get("settings") or {}) for run in (old, new))
    for name in sorted({*before, *after}):
        if name not in _WITHOUT_EFFECT and before.get(name) != after.get(name):
            yield Change(
                what=name.replace("_", " "),
                old=_format_value(before.get(name)),
                new=_format_value(after.get(name)),
                category="code" if name.startswith("scorers ") else "setting",
            )


def _flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} {key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _compare_methods(old: Run, new: Run) -> Iterator[Change]:
    """Yield methods whose settings differ."""
    before, after = ({row.baseline: row.settings for row in run.rows} for run in (old, new))
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield Change(what=f"settings of {name}", old=before[name], new=after[name], category="code")


def _compare_codes(old: Run, new: Run) -> Iterator[Change]:
    """Yield methods whose code differs or is recorded in only one run."""
    before, after = ({row.baseline: row.method_code for row in run.rows} for run in (old, new))
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield Change(
                what=f"code of {name}", old=_format_value(before[name]), new=_format_value(after[name]), category="code"
            )


def _format_value(value: object) -> str:
    if value is None or value == "":
        return "not recorded"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
