"""Tables of a leaderboard as one data frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from faultset.evaluators.leaderboards.records import Table
from faultset.evaluators.results.rows import CANNOT, NO_FAILURES

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("task", "protocol", "app", "verdict", "group", "threshold_rule", "rank", "baseline", "kind")
"""First columns of the frame."""
COSTS = ("failed", "cannot", "cpu_s", "episodes", "control", "vs_control", "vs_control_low", "vs_control_high", "p")
"""Last columns of the frame."""


def leaderboard_frame(tables: Iterable[Table], *, intervals: bool = False) -> pd.DataFrame:
    """Return a line for each method in each table: keys, metrics, costs."""
    import pandas as pd

    lines: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    for table in tables:
        for entry in table.entries:
            line: dict[str, Any] = {
                "task": table.task,
                "protocol": table.protocol,
                "app": table.app,
                "verdict": table.verdict,
                "group": table.group,
                "threshold_rule": table.threshold_rule,
                "rank": entry.rank,
                "baseline": entry.baseline,
                "kind": entry.kind,
                "failed": sum(n for status, n in entry.failed.items() if status not in NO_FAILURES),
                "cannot": entry.failed.get(CANNOT, 0),
                "cpu_s": entry.seconds,
                "episodes": table.episodes,
                "control": table.strongest_control,
                "p": entry.adjusted_p,
            }
            if entry.against is not None:
                difference = entry.against.difference
                line |= {"vs_control": difference.value}
                line |= {"vs_control_low": difference.low, "vs_control_high": difference.high}
            for metric in table.metrics:
                estimate = entry.metrics[metric.name]
                line[metric.name] = estimate.value
                metrics[metric.name] = None
                if intervals:
                    line[f"{metric.name}_low"], line[f"{metric.name}_high"] = estimate.low, estimate.high
                    metrics |= {f"{metric.name}_low": None, f"{metric.name}_high": None}
            lines.append(line)
    return pd.DataFrame(lines, columns=[*KEYS, *metrics, *COSTS])
