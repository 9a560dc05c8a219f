"""Put results of localizers on imported systems into the track records of `faultset list baselines`.

    python benchmarks/external/system_records.py RESULTS...

RESULTS are folders that `evaluate --baselines all` wrote for datasets with one application. The folder's name is the
name of the system.
"""

from __future__ import annotations

from pathlib import Path

import click

from faultset.evaluators.comparison.runs import read_run
from faultset.evaluators.comparison.systems import compare_systems
from faultset.evaluators.leaderboards.track_records import TrackRecord, replace_track_records


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


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(results: tuple[Path, ...]) -> None:
    """Replace the track records of each system."""
    for folder in results:
        replace_track_records(folder.resolve().name, list_system_records(folder))


if __name__ == "__main__":
    main()
