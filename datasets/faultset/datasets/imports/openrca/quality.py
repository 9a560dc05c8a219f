"""Data issues of a system of OpenRCA's data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import csv_header
from faultset.datasets.imports.contract import DataIssue
from faultset.datasets.imports.openrca.rows import duration_factor, span_names
from faultset.datasets.imports.openrca.systems import AFTER_NS, BEFORE_NS, SLOT_NS, System, slot_name, slots

_SAMPLED = 20_000
_CONSISTENT = 0.9


def look(system: System) -> Iterator[DataIssue]:
    """Yield the data_issues of a system."""
    far = [r for r in system.records if r.stated_ns is None or abs(r.stated_ns - r.time_ns) > 60 * SECOND_NS]
    if far:
        yield DataIssue(
            severity="warning",
            place=f"{system.app}/record.csv",
            found=f"timestamp and datetime (UTC+8) disagree in {len(far)} of {len(system.records)} records",
            handling="timestamp is taken",
        )
    for start, records in slots(system):
        place = f"{system.app}/{slot_name(start)}"
        if not system.day_folders(start - BEFORE_NS, start + SLOT_NS + AFTER_NS):
            yield DataIssue(severity="error", place=place, found="there is no telemetry", handling="it is left out")
        if len(records) > 1:
            yield DataIssue(
                severity="note",
                place=place,
                found=f"{len(records)} records lie in one half hour",
                handling="they are one episode with several root causes",
            )
    for folder in sorted((system.root / "telemetry").glob("????_??_??")):
        missing = [kind for kind in ("metric", "trace", "log") if not any((folder / kind).glob("*.csv"))]
        if missing:
            yield DataIssue(
                severity="note",
                place=f"{system.app}/{folder.name}",
                found=f"there are no files of {', '.join(missing)}",
                handling="these tables are empty",
            )
        for path in sorted((folder / "trace").glob("*.csv")):
            yield from _durations(system, path)


def _durations(system: System, path: Path) -> Iterator[DataIssue]:
    """Yield a warning where children begin after their parents have ended: the unit is too small then."""
    import pandas as pd

    place = f"{system.app}/{path.parent.parent.name}/{path.name}"
    try:
        names = span_names(csv_header(path))
        frame = pd.read_csv(path, dtype=str, nrows=_SAMPLED, encoding="utf-8-sig", keep_default_na=False)
    except (DataError, ValueError, OSError) as error:
        yield DataIssue(severity="error", place=place, found=str(error), handling="its cases cannot be imported")
        return
    if not all(names[ours] for ours in ("trace", "span", "parent", "duration", "time")):
        return
    keys = {ours: frame[name] for ours, name in names.items() if name}
    spans = pd.DataFrame({"trace": keys["trace"], "span": keys["span"], "parent": keys["parent"]})
    spans["start"] = pd.to_numeric(keys["time"], errors="coerce") * 1e6
    spans["length"] = pd.to_numeric(keys["duration"], errors="coerce") * duration_factor(names)
    both = spans.merge(spans, left_on=["trace", "parent"], right_on=["trace", "span"], suffixes=("", "_up"))
    late = both["start"] > both["start_up"] + both["length_up"] + 1e6
    if len(both) and float(np.mean(late)) > 1 - _CONSISTENT:
        yield DataIssue(
            severity="warning",
            place=place,
            found=f"{int(late.sum())} of {len(both)} spans begin after their parent has ended",
            handling="durations are read as for the other files; their unit may be another",
        )
