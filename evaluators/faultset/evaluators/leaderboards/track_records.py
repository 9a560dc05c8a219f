"""Results of the built-in methods on datasets with a leaderboard page and on imported systems.

The file is written by `python benchmarks/dataset_leaderboard.py DATASET --write` and by
`python benchmarks/external/system_records.py RESULTS`.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

_FILE = "track_records.csv"
MAIN_DATASET = "core-2"
"""The only dataset with records of detectors and diagnosers."""


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """The result of a method in the table of its task; localizers and diagnosers get the true onset."""

    baseline: str
    task: str
    dataset: str
    figure: str
    """Name of the metric."""
    value: float
    near_best: bool
    """Whether the value is in the 95 % interval of the best method; false in tables without a control."""
    beats_control: bool
    """Whether the paired test finds it significantly above the strongest control (Holm)."""

    def __str__(self) -> str:
        flags = (("best", self.near_best), ("beats the control", self.beats_control))
        remarks = [text for text, holds in flags if holds]
        return " ".join([f"{self.value:.2f}", *([f"({', '.join(remarks)})"] if remarks else [])])


@functools.cache
def read_track_records() -> Mapping[str, Sequence[TrackRecord]]:
    """Return the records of each baseline, one per dataset."""
    records: dict[str, list[TrackRecord]] = {}
    text = (files("faultset.evaluators.leaderboards") / _FILE).read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        record = TrackRecord(
            baseline=row["baseline"],
            task=row["task"],
            dataset=row["dataset"],
            figure=row["figure"],
            value=float(row["value"]),
            near_best=row["near_best"] == "yes",
            beats_control=row["beats_control"] == "yes",
        )
        records.setdefault(record.baseline, []).append(record)
    return records


def replace_track_records(dataset: str, records: Sequence[TrackRecord], path: Path | None = None) -> None:
    """Write the records of a dataset, by default into the file of this package; keep records of other datasets."""
    others = [record for rows in read_track_records().values() for record in rows if record.dataset != dataset]
    lines = sorted(
        [*others, *records], key=lambda record: (record.dataset, record.task, -record.value, record.baseline)
    )
    with (path or Path(__file__).with_name(_FILE)).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(TrackRecord.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        for record in lines:
            row = asdict(record)
            flags = {name: "yes" if row[name] else "" for name in ("near_best", "beats_control")}
            writer.writerow(row | flags | {"value": f"{record.value:.6g}"})
    read_track_records.cache_clear()
