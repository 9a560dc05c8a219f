"""Counting log lines that report errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow.compute as pc

from faultset.baselines.api.tables import read_table

if TYPE_CHECKING:
    import pyarrow as pa

    from faultset.baselines.features.windows import TimeWindow
    from faultset.datasets.views import EpisodeView

KEYWORDS = "error|fail|exception|problem|timeout|refused|fatal|panic"
BAD_LEVELS = ("error", "fatal")


Name = TypeVar("Name", bound=Hashable)


def log_excess(found: Mapping[Name, float], reference: Mapping[Name, float], length_ratio: float) -> dict[Name, float]:
    """Lines beyond what the reference, scaled by the ratio of window lengths, leads to expect.

    >>> log_excess({"cart": 2, "front": 1}, {"front": 1}, 0.5)
    {'cart': 2.0, 'front': 0.5}
    """
    return {name: max(0.0, count - length_ratio * reference.get(name, 0.0)) for name, count in found.items()}


def error_lines(episode: EpisodeView, *, levels: bool = True) -> pa.Table:
    """Return the lines with a keyword, and with `levels` those at level error or fatal: time, service, pod, message."""
    columns = ("time", "service", "pod", "message")

    def make() -> pa.Table:
        logs = read_table(episode, "logs", (*columns, "level") if levels else columns)
        hit = keyword_mask(episode)
        if levels:
            level = logs["level"].cast("string")
            for bad in BAD_LEVELS:
                hit = pc.or_kleene(hit, pc.equal(level, bad))  # type: ignore[attr-defined]
        return logs.select(list(columns)).filter(hit)

    return episode.once(("error lines", levels), make)


def keyword_mask(episode: EpisodeView) -> pa.ChunkedArray:
    """Tell which lines of an episode have a keyword in their text."""

    def make() -> pa.ChunkedArray:
        messages = read_table(episode, "logs", ("message",))["message"]
        return pc.match_substring_regex(messages, KEYWORDS, ignore_case=True)  # type: ignore[attr-defined]

    return episode.once("lines with a keyword", make)


def error_line_excess(lines: pa.Table, time_window: TimeWindow) -> dict[str, float]:
    """Count error lines per service in a time window, beyond what its healthy part had."""
    return {service: count for (service,), count in excess_by(lines, time_window, ("service",)).items()}


def excess_by(lines: pa.Table, time_window: TimeWindow, owner: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    """Count them by the columns that tell whose a line is, such as service and pod; lines of nobody are left out."""
    times = lines["time"].cast("int64").to_numpy()
    owners = list(zip(*(lines[column].cast("string").to_pylist() for column in owner), strict=True))
    counts: list[dict[tuple[str, ...], float]] = []
    for start, end in (
        (time_window.start_ns, time_window.end_ns),
        (time_window.healthy_start_ns, time_window.healthy_end_ns),
    ):
        here = Counter(owners[row] for row in np.flatnonzero((times >= start) & (times < end)))
        counts.append({names: float(here[names]) for names in sorted(names for names in here if None not in names)})
    return log_excess(counts[0], counts[1], time_window.length_ratio)
