"""Checks of the answers to episodes that lack evidence."""

from __future__ import annotations

from faultset.baselines.api.contract import Detection
from faultset.baselines.testing.episodes import EMPTY, UNUSUAL_DATA, no_rows
from faultset.baselines.testing.trial import BaselineTrial


def check_declared_tables(trial: BaselineTrial) -> None:
    """No table is read that is not declared."""
    assert trial.expected is not None
    missing = ", ".join(sorted(trial.undeclared))
    where = "needs" if trial.undeclared == {"alarm_place"} else "tables"
    assert not trial.undeclared, f"{trial.spec.name}: reads {missing}; add that to {where}"


def check_missing_tables(trial: BaselineTrial) -> None:
    """Each declared table may be missing, or have no rows."""
    for table in trial.spec.tables:
        for edit, circumstance in ((lambda rows: None, "missing"), (no_rows, "empty")):
            view = trial.examples.altered(f"table {table} {circumstance}", {table: edit})
            trial.assert_sound(trial.answer(view), view, f"table {table} {circumstance}")


def check_no_evidence(trial: BaselineTrial) -> None:
    """Without any rows, a baseline that reads tables abstains."""
    view = trial.examples.altered("no rows", EMPTY)
    found = trial.answer(view)
    trial.assert_sound(found, view, "no table has a row")
    silent = found.alarm_ns is None if isinstance(found, Detection) else found.abstains
    assert silent or not trial.spec.tables, (
        f"{trial.spec.name}: must abstain when no table has a row, but gives {found}"
    )


def check_unusual_data(trial: BaselineTrial) -> None:
    """Constant series, single samples, gaps, unknown services and meaningless states are survived."""
    for circumstance, edits in UNUSUAL_DATA.items():
        if edits.keys() & {*trial.spec.tables}:
            view = trial.examples.altered(circumstance, edits)
            trial.assert_sound(trial.answer(view), view, circumstance)


def check_single_candidate(trial: BaselineTrial) -> None:
    """The list of candidates may have one service."""
    only = {"services": ["geo"], "calls": [], "workload_entry": "geo"}
    view = trial.examples.altered("single candidate", {}, context=lambda known: known | only)
    trial.assert_sound(trial.answer(view), view, "a single candidate")
