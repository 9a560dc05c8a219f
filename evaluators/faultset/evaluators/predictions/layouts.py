"""The layouts that a prediction file may have: which columns it holds, and what each says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faultset.baselines.api.contract import Task
from faultset.core.errors import DataError
from faultset.core.printable import quoted


@dataclass(frozen=True, kw_only=True)
class PredictionLayout:
    """Columns of one kind of prediction file."""

    task: Task
    required: tuple[str, ...]
    optional: tuple[str, ...]
    key: tuple[str, ...]
    """Columns that no two rows have the same values in."""
    constant: tuple[str, ...] = ()
    """Columns that have one value in all rows of an episode."""

    def fits(self, columns: Sequence[str]) -> bool:
        """Whether a file has all required columns, and no others than the optional ones."""
        return set(self.required) <= set(columns) <= {*self.required, *self.optional}


SCORES = PredictionLayout(
    task="detection",
    required=("episode", "time", "score"),
    optional=("threshold",),
    key=("episode", "time"),
    constant=("threshold",),
)
ALARMS = PredictionLayout(task="detection", required=("episode", "alarm"), optional=(), key=("episode",))
RANKINGS = PredictionLayout(
    task="localization",
    required=("episode", "service", "score"),
    optional=("protocol",),
    key=("episode", "service"),
    constant=("protocol",),
)
DIAGNOSES = PredictionLayout(
    task="rca", required=("episode", "level", "type"), optional=("protocol",), key=("episode",), constant=("protocol",)
)
LAYOUTS = (SCORES, ALARMS, RANKINGS, DIAGNOSES)

TEXTS = ("episode", "service", "level", "type", "protocol")
TIMES = ("time", "alarm")
NUMBERS = ("score", "threshold")


def layout_of(columns: Sequence[str], origin: str) -> PredictionLayout:
    """Tell by its columns what a prediction file holds.

    Raises
    ------
    DataError
        A column occurs twice, or the columns are those of no layout, or of several at once.
    """
    repeated = sorted({name for name in columns if list(columns).count(name) > 1})
    if repeated:
        raise DataError(f"{origin} has the column {quoted(repeated[0])} more than once; keep one of them")
    found = next((layout for layout in LAYOUTS if layout.fits(columns)), None)
    if found is None:
        wanted = "; ".join(
            ", ".join([*layout.required, *(f"[{name}]" for name in layout.optional)]) for layout in LAYOUTS
        )
        present = ", ".join(quoted(name) for name in list(columns)[:8])
        raise DataError(f"{origin} has the columns {present}, wanted is one of: {wanted}; write one task to a file")
    return found
