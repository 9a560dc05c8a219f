"""Counting log lines that complain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa

    from faultset.baselines.windows import Stretch

KEYWORDS = "error|fail|exception|problem|timeout|refused|fatal|panic"
BAD_LEVELS = ("error", "fatal")


def log_excess(found: Mapping[str, float], usual: Mapping[str, float], length_ratio: float) -> dict[str, float]:
    """Lines beyond what the reference, scaled by the ratio of window lengths, leads to expect.

    >>> log_excess({"cart": 2, "front": 1}, {"front": 1}, 0.5)
    {'cart': 2.0, 'front': 0.5}
    """
    return {service: max(0.0, count - length_ratio * usual.get(service, 0.0)) for service, count in found.items()}


def keyword_excess(logs: pa.Table, stretch: Stretch) -> dict[str, float]:
    """Count lines with a keyword per service in a stretch, beyond what its healthy part had.

    Lines at level error or fatal count too when the table has a column `level`.
    """
    hit = pc.match_substring_regex(logs["message"], KEYWORDS, ignore_case=True)  # type: ignore[attr-defined]
    if "level" in logs.column_names:
        levels = logs["level"].cast("string")
        for level in BAD_LEVELS:
            hit = pc.or_kleene(hit, pc.equal(levels, level))  # type: ignore[attr-defined]
    lines = logs.select(["time", "service"]).filter(hit)
    times = lines["time"].cast("int64").to_numpy()
    owners = np.array(lines["service"].cast("string").to_pylist(), dtype=object)
    counts: list[dict[str, float]] = []
    for start, end in ((stretch.start_ns, stretch.end_ns), (stretch.healthy_start_ns, stretch.healthy_end_ns)):
        here = [name for name in owners[(times >= start) & (times < end)] if name is not None]
        names, found = np.unique(here, return_counts=True) if here else ((), ())
        counts.append({str(name): float(count) for name, count in zip(names, found, strict=True)})
    return log_excess(counts[0], counts[1], stretch.length_ratio)
