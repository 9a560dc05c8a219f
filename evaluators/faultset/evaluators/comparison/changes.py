"""Differences of two runs in data, code and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from faultset.evaluators.comparison.records import Change
from faultset.evaluators.comparison.runs import Run

_FACTS = (
    ("dataset", "data"),
    ("version", "data"),
    ("digest", "data"),
    ("split", "setting"),
    ("code", "code"),
    ("seeds", "setting"),
)
_WITHOUT_EFFECT = ("fits_used_again",)
"""What settings say of a run that no answer can depend on."""
_TITLES = {"version": "dataset version", "digest": "sha256 of the version", "code": "code version"}


def changes_between(old: Run, new: Run) -> tuple[Change, ...]:
    """List differences of data first, then of code, then of settings."""
    found = [*_facts(old, new), *_libraries(old, new), *_settings(old, new), *_methods(old, new), *_codes(old, new)]
    return tuple(sorted(found, key=lambda change: ("data", "code", "setting").index(change.weight)))


def _facts(old: Run, new: Run) -> Iterator[Change]:
    for name, weight in _FACTS:
        before, after = getattr(old.facts, name), getattr(new.facts, name)
        if before != after:
            yield Change(what=_TITLES.get(name, name), old=_text(before), new=_text(after), weight=weight)


def _libraries(old: Run, new: Run) -> Iterator[Change]:
    before, after = (json.loads(run.rows[0].libraries or "{}") for run in (old, new))
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield Change(what=name, old=_text(before.get(name)), new=_text(after.get(name)), weight="code")


def _settings(old: Run, new: Run) -> Iterator[Change]:
    before, after = (_flat(run.board.get("settings") or {}) for run in (old, new))
    for name in sorted({*before, *after}):
        if name not in _WITHOUT_EFFECT and before.get(name) != after.get(name):
            yield Change(
                what=name.replace("_", " "),
                old=_text(before.get(name)),
                new=_text(after.get(name)),
                weight="code" if name.startswith("scorers ") else "setting",
            )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} {key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _methods(old: Run, new: Run) -> Iterator[Change]:
    """Methods whose own settings differ; their names say what was run, the hash that it was not the same."""
    before, after = ({row.baseline: row.settings for row in run.rows} for run in (old, new))
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield Change(what=f"settings of {name}", old=before[name], new=after[name], weight="code")


def _codes(old: Run, new: Run) -> Iterator[Change]:
    """Methods whose own code differs, or is recorded in one run only."""
    before, after = ({row.baseline: row.method_code for row in run.rows} for run in (old, new))
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield Change(what=f"code of {name}", old=_text(before[name]), new=_text(after[name]), weight="code")


def _text(value: object) -> str:
    if value is None or value == "":
        return "not recorded"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
