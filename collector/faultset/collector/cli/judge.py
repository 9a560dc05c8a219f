"""`faultset judge`: update the verdicts of episodes with a newer calibration, and judge incidents of recordings."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import command, json_option
from faultset.core.output import show_json
from faultset.core.printable import count_text

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset

_MAX_FILE_BYTES = 64 << 20


@command("judge", short_help="Judge episodes and incidents without a verdict.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File written by `faultset calibrate`, for episodes; by default the limits that come with this release.",
)
@click.option("--version", metavar="V", help="Version to judge; the newest by default.")
@json_option
def judge(dataset: Path, out: Path, file: Path | None, version: str | None, as_json: bool) -> None:
    """Write a copy of DATASET to the new folder OUT in which unknown verdicts are judged again.

    A verdict is unknown if clients did not notice the fault and the latent test had no limit when the episode was
    recorded. For episodes, this command repeats the tests with limits that were measured later. A fault is also
    manifest if messages of a queue were not processed.

    For incidents of recordings, the limit is the score that 1 % of the services exceed in healthy windows of the same
    length, in the recordings with the same settings. The false alarms of the tests in healthy windows are printed, and
    are on the card.

    \b
    Example:
      faultset judge faultset-data/ judged/ --calibration calibration.json
    """
    from faultset.collector.verdicts.latent import from_json
    from faultset.collector.verdicts.later_verdicts import judge_again
    from faultset.core.output import report_progress
    from faultset.core.regular_files import read_regular
    from faultset.datasets.format.cards import read_false_alarms

    calibrations = None
    if file is not None:
        calibrations = from_json(read_regular(file, limit_bytes=_MAX_FILE_BYTES).decode(errors="replace"), str(file))
    with report_progress("episodes and recordings") as progress:
        judged_dataset = judge_again(dataset, out, calibrations=calibrations, version=version, progress=progress)
    facts = _count_verdicts(judged_dataset)
    alarms = read_false_alarms(judged_dataset.provenance)
    if as_json:
        show_json(facts | {"false_alarms": [asdict(row) for row in alarms]})
        return
    for row in alarms:
        click.echo(f"{row.app}, {count_text(row.recordings, 'recording')} with load {row.load}, healthy windows:")
        click.echo(f"  false alarms of the client test: {row.client_alarms_text}")
        click.echo(f"  limit of the latent test for the median window length: {row.limit_text}")
        click.echo(
            f"  false alarms of the latent test, with the limit from the other recordings: {row.latent_alarms_text}"
        )
    target = f"{judged_dataset.root}, version {judged_dataset.version}"
    if facts["episodes"] or not facts["incidents"]:
        judged = count_text(facts["judged"], "episode")
        click.echo(f"{judged} with a new verdict, {facts['unknown']} still unknown: {target}.")
    if facts["incidents"]:
        judged = count_text(facts["incidents_judged"], "incident")
        unknown = f"{facts['incidents_unknown']} of {facts['incidents']} still unknown"
        click.echo(f"{judged} with a new verdict, {unknown}: {target}.")
    click.echo(f"Next:\n  evaluate {shlex.quote(str(judged_dataset.root))}")


def _count_verdicts(dataset: Dataset) -> dict[str, Any]:
    """Count the episodes and incidents of a judged dataset, with new and with unknown verdicts."""
    from faultset.collector.verdicts.later_verdicts import UNKNOWN
    from faultset.datasets.format.cards import JUDGED_FROM

    source = dataset.provenance[JUDGED_FROM]
    incidents = [incident for recording in dataset.recordings() for incident in recording.truth.incidents]
    return {
        "dataset": str(dataset.root),
        "version": dataset.version,
        "episodes": len(dataset.episodes),
        "judged": source["judged"],
        "unknown": sum(dataset.label(episode).verdict == UNKNOWN for episode in dataset.episodes),
        "incidents": len(incidents),
        "incidents_judged": source.get("incidents_judged", 0),
        "incidents_unknown": sum(incident.verdict == UNKNOWN for incident in incidents),
    }
