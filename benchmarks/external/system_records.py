"""Put results of localizers on imported systems into the track records of `faultset list baselines`.

    python benchmarks/external/system_records.py RESULTS...

RESULTS are folders that `evaluate --baselines all` wrote for datasets with one application. The folder's name is the
name of the system.
"""

from __future__ import annotations

import sys
from pathlib import Path

from faultset.evaluators.comparison.runs import read_run
from faultset.evaluators.comparison.systems import compare_systems
from faultset.evaluators.leaderboards.track_records import FILE, TrackRecord, read_track_records, replace_track_records

RECORDS = Path(__file__).parents[2] / "evaluators" / "faultset" / "evaluators" / "leaderboards" / FILE


def list_system_records(folder: Path) -> list[TrackRecord]:
    """Return AC@1 of each localizer with the true onset."""
    name = folder.resolve().name
    table = compare_systems({name: read_run(folder).rows})
    return [
        TrackRecord(
            baseline=row.baseline,
            task=table.task,
            dataset=name,
            figure=table.metric,
            value=row.values[name].value,
            near_best=name in row.near_best,
            beats_control=name in row.beats_control,
        )
        for row in table.rows
    ]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        records = list_system_records(Path(argument))
        replace_track_records(RECORDS, records[0].dataset, records)
        read_track_records.cache_clear()
