"""Stored results of evaluations, and the differences between their data, code and settings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError, UsageError
from faultset.evaluators.leaderboards.formats import to_json
from faultset.evaluators.results.rows import NO_FAILURES, ResultRow, read_rows
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.evaluators.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference in data, code or settings between two runs."""

    what: str
    old: str
    new: str
    category: str
    """`data`, `code` (of methods or scoring), or `setting` (of the user)."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a run."""

    folder: str
    dataset: str
    version: str
    digest: str
    split: str
    code: str
    seeds: tuple[int, ...]
    episodes: int
    methods: int
    answers: int
    failures: int


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

    `name`: folder to show in reports if `source` is an evaluation.
    """
    if isinstance(source, Run):
        return source
    if isinstance(source, str | Path):
        return read_run(Path(source))
    return Run(folder=Path(name), rows=_select_compared(source.rows), board=to_json(source.board))


def _select_compared(rows: Iterable[ResultRow]) -> tuple[ResultRow, ...]:
    return tuple(row for row in rows if row.protocol in ("detected", "own", "oracle"))


def read_run(folder: Path) -> Run:
    """Read a folder that `evaluate` wrote, except answers to training episodes, delayed alarms and truncated views."""
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
    ("dataset", "dataset", "data"),
    ("version", "dataset version", "data"),
    ("digest", "sha256 of the version", "data"),
    ("split", "split", "setting"),
    ("code", "code version", "code"),
    ("seeds", "seeds", "setting"),
)
"""Compared facts with their titles and categories."""
_WITHOUT_EFFECT = ("reused_fits",)
"""Settings that do not affect answers."""


def find_changes(old: Run, new: Run) -> tuple[Change, ...]:
    """Return the differences in data, then in code, then in settings."""
    common = {row.baseline for row in old.rows} & {row.baseline for row in new.rows}
    changes = [
        Change(what=what, old=_format_value(before.get(key)), new=_format_value(after.get(key)), category=category)
        for before, after in zip(_group_conditions(old, common), _group_conditions(new, common), strict=True)
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
        for what, category in [key]
    ]
    return tuple(sorted(changes, key=lambda change: ("data", "code", "setting").index(change.category)))


def _group_conditions(run: Run, methods: Collection[str]) -> list[dict[tuple[str, str], Any]]:
    """Return dictionaries (title, category) -> value: facts, libraries, settings, settings and code of methods."""
    settings = _flatten(run.board.get("settings") or {})
    rows = [row for row in run.rows if row.baseline in methods]
    return [
        *({(title, category): getattr(run.facts, name)} for name, title, category in _FACTS),
        {(name, "code"): version for name, version in json.loads(run.rows[0].libraries or "{}").items()},
        {
            (name.replace("_", " "), "code" if name.startswith("scorers ") else "setting"): value
            for name, value in settings.items()
            if name not in _WITHOUT_EFFECT
        },
        {(f"settings of {row.baseline}", "code"): row.settings for row in rows},
        {(f"code of {row.baseline}", "code"): row.method_code for row in rows},
    ]


def _flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} {key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _format_value(value: object) -> str:
    if value is None or value == "":
        return "not recorded"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
