"""Log lines: how many there are, and which kinds, with examples."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.datasets.explorer.content.time_grid import TimeGrid
from faultset.datasets.log_masks import masked_column
from faultset.datasets.recorded_tables import read_table
from faultset.datasets.views import EpisodeView

MOST_TEMPLATES = 150
EXAMPLES = 3
LONGEST_LINE = 600
"""Characters of an example that are shown."""
_BAD = ("error", "fatal")


def log_lines_by_kind(view: EpisodeView, grid: TimeGrid) -> dict[str, Any] | None:
    """Count lines by level and by template; None where no lines were recorded.

    Of many templates those are kept that are errors, that are new after the reference, or whose rate has changed most.
    """
    table = read_table(view, "logs", ("time", "service", "level", "message"))
    if not len(table):
        return None
    frame = pd.DataFrame(
        {
            "time": table["time"].cast(pa.int64()).to_numpy(),
            "service": table["service"].cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False),
            "level": table["level"].cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False),
            "template": masked_column(table["message"]).to_numpy(zero_copy_only=False),
            "row": np.arange(len(table)),
        }
    ).sort_values("time", kind="stable", ignore_index=True)
    frame["step"] = grid.cells(frame["time"].to_numpy())
    level = frame["level"]
    kinds = {"error": level.isin(_BAD), "warning": level == "warning"}
    kinds["other"] = ~kinds["error"] & ~kinds["warning"]
    levels = {name: np.bincount(frame.loc[rows, "step"], minlength=grid.steps).tolist() for name, rows in kinds.items()}
    templates, left_out = _templates(frame, table["message"], view, grid)
    return {"levels": levels, "templates": templates, "left_out": left_out}


def _templates(
    frame: pd.DataFrame, messages: pa.ChunkedArray, view: EpisodeView, grid: TimeGrid
) -> tuple[list[dict[str, Any]], int]:
    start_ns, split_ns = view.reference
    keys = ["service", "level", "template"]
    frame = frame.assign(before=frame["time"] < split_ns, number=frame.groupby(keys, sort=False).ngroup())
    found = frame.groupby("number").agg(
        service=("service", "first"),
        level=("level", "first"),
        template=("template", "first"),
        lines=("time", "size"),
        before=("before", "sum"),
        first=("time", "first"),
    )
    ratio = (view.window[1] - split_ns) / max(split_ns - start_ns, 1)
    after = found["lines"] - found["before"]
    change = np.abs(np.log((after + 1) / (found["before"] * ratio + 1)))
    found = found.assign(change=change, bad=found["level"].isin(_BAD), new=found["before"] == 0)
    chosen = found.sort_values(["bad", "new", "change", "lines"], ascending=False, kind="stable").head(MOST_TEMPLATES)
    kept = frame[frame["number"].isin(chosen.index)]
    by_number: dict[Hashable, pd.DataFrame] = dict(iter(kept.groupby("number")))
    rows = []
    for number, row in chosen.iterrows():
        lines = by_number[number]
        spread = np.unique(np.linspace(0, len(lines) - 1, EXAMPLES).astype(int))
        rows.append(
            {
                "service": row["service"],
                "level": row["level"],
                "text": row["template"][:LONGEST_LINE],
                "lines": int(row["lines"]),
                "before": int(row["before"]),
                "first": grid.seconds(int(row["first"])),
                "change": round(float(row["change"]), 3),
                "counts": np.bincount(lines["step"], minlength=grid.steps).tolist(),
                "examples": [
                    [grid.seconds(int(lines["time"].iloc[place])), _line(messages, int(lines["row"].iloc[place]))]
                    for place in spread
                ],
            }
        )
    return rows, len(found) - len(chosen)


def _line(messages: pa.ChunkedArray, row: int) -> str:
    return messages[row].as_py()[:LONGEST_LINE]
