"""`faultset judge`: update the verdicts of episodes with a newer calibration."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json

_MAX_FILE_BYTES = 64 << 20


@command("judge", short_help="Judge episodes again with a newer calibration.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that faultset calibrate has written; by default the limits that come with this release.",
)
@click.option("--version", metavar="V", help="Version to judge; the newest by default.")
@json_option
def judge(dataset: Path, out: Path, file: Path | None, version: str | None, as_json: bool) -> None:
    """Write DATASET to the new folder OUT, with a verdict where it was unknown.

    If clients did not notice a fault and the latent test was not calibrated at that time, the verdict is unknown. This
    command repeats the tests on the recorded telemetry with limits that were measured later, and decides between
    latent and silent. A fault that only left messages of a queue unprocessed is manifest.

    \b
    Example:
      faultset judge faultset-data/ judged/ --calibration calibration.json
    """
    from faultset.collector.verdicts.latent import from_json
    from faultset.collector.verdicts.later_verdicts import UNKNOWN, judge_again
    from faultset.core.command_line.progress import report_progress
    from faultset.core.reading.regular_files import read_regular

    calibrations = None
    if file is not None:
        calibrations = from_json(read_regular(file, limit_bytes=_MAX_FILE_BYTES).decode(errors="replace"), str(file))
    with report_progress("episodes") as progress:
        judged_dataset = judge_again(dataset, out, calibrations=calibrations, version=version, progress=progress)
    judged = judged_dataset.provenance["judged_from"]["judged"]
    unknown = sum(judged_dataset.label(episode).verdict == UNKNOWN for episode in judged_dataset.episodes)
    if as_json:
        facts = {
            "dataset": str(judged_dataset.root),
            "version": judged_dataset.version,
            "episodes": len(judged_dataset.episodes),
        }
        show_json(facts | {"judged": judged, "unknown": unknown})
        return
    where = f"{judged_dataset.root}, version {judged_dataset.version}"
    click.echo(f"{judged} episodes have a new verdict, {unknown} are still unknown: {where}.")
    click.echo(f"Next:\n  evaluate {shlex.quote(str(judged_dataset.root))}")
