"""Counting log lines that complain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa

    from faultset.baselines.windows import Stretch

KEYWORDS = "error|fail|exception|problem|timeout|refused|fatal|panic"
BAD_LEVELS = ("error", "fatal")


Name = TypeVar("Name", bound=Hashable)


def log_excess(found: Mapping[Name, float], usual: Mapping[Name, float], length_ratio: float) -> dict[Name, float]:
    """Lines beyond what the reference, scaled by the ratio of window lengths, leads to expect.

    >>> log_excess({"cart": 2, "front": 1}, {"front": 1}, 0.5)
    {'cart': 2.0, 'front': 0.5}
    """
    return {name: max(0.0, count - length_ratio * usual.get(name, 0.0)) for name, count in found.items()}


def keyword_excess(logs: pa.Table, stretch: Stretch) -> dict[str, float]:
    """Count lines with a keyword per service in a stretch, beyond what its healthy part had.

    Lines at level error or fatal count too when the table has a column `level`.
    """
    return {service: count for (service,), count in excess_by(logs, stretch, ("service",)).items()}


def excess_by(logs: pa.Table, stretch: Stretch, owner: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    """Count them by the columns that tell whose a line is, such as service and pod; lines of nobody are left out."""
    hit = pc.match_substring_regex(logs["message"], KEYWORDS, ignore_case=True)  # type: ignore[attr-defined]
    if "level" in logs.column_names:
        levels = logs["level"].cast("string")
        for level in BAD_LEVELS:
            hit = pc.or_kleene(hit, pc.equal(levels, level))  # type: ignore[attr-defined]
    lines = logs.select(["time", *owner]).filter(hit)
    times = lines["time"].cast("int64").to_numpy()
    owners = list(zip(*(lines[column].cast("string").to_pylist() for column in owner), strict=True))
    counts: list[dict[tuple[str, ...], float]] = []
    for start, end in ((stretch.start_ns, stretch.end_ns), (stretch.healthy_start_ns, stretch.healthy_end_ns)):
        here = Counter(owners[row] for row in np.flatnonzero((times >= start) & (times < end)))
        counts.append({names: float(here[names]) for names in sorted(names for names in here if None not in names)})
    return log_excess(counts[0], counts[1], stretch.length_ratio)
