"""`faultset judge`: verdicts of episodes that were collected before their application was calibrated, or with less."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json

_LARGEST = 64 << 20


@command("judge", short_help="Judge episodes again, with limits that were calibrated since.")
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

    A fault that clients did not feel has the verdict unknown where the latent test was not calibrated when it was
    collected. The tests of a collection run again on the recorded telemetry, so that a limit which was measured later
    decides: latent or silent. A fault that only left messages of a queue unprocessed is manifest.

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
        calibrations = from_json(read_regular(file, limit_bytes=_LARGEST).decode(errors="replace"), str(file))
    with report_progress("episodes") as progress:
        made = judge_again(dataset, out, calibrations=calibrations, version=version, progress=progress)
    judged = made.provenance["judged_from"]["judged"]
    left = sum(made.label(episode).verdict == UNKNOWN for episode in made.episodes)
    if as_json:
        facts = {"dataset": str(made.root), "version": made.version, "episodes": len(made.episodes)}
        show_json(facts | {"judged": judged, "unknown": left})
        return
    where = f"{made.root}, version {made.version}"
    click.echo(f"{judged} episodes have got another verdict, {left} are unknown still: {where}.")
    click.echo(f"Next:\n  evaluate {shlex.quote(str(made.root))}")
