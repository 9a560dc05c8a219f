"""`faultset calibrate`: limits of the latent test from episodes without a fault."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.core.command_line.console import OUTPUT_FILE, command
from faultset.core.command_line.output import json_option, show_json

if TYPE_CHECKING:
    from faultset.collector.verdicts.latent import Calibration


@command("calibrate")
@click.argument("datasets", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=OUTPUT_FILE, help="Write the calibration file here.")
@json_option
def calibrate(datasets: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Calibrate the latent test: measure how much the telemetry of services changes without a fault.

    Each application, platform, load and sampling interval has a limit of its own: what 1 % of at least 300 windows of
    services in plain episodes exceed. With fewer windows there is no limit, and faults that clients do not feel have
    the verdict unknown. With --out, the file holds what was measured and, for everything else, the limits that come
    with this release.

    \b
    Example:
      faultset calibrate plain-1/ plain-2/ --out calibration.json
    """
    from faultset.collector.verdicts import latent
    from faultset.core.errors import DataError
    from faultset.core.files import replace_text
    from faultset.datasets.dataset import open_dataset

    found = latent.measure_calibrations(open_dataset(path) for path in datasets)
    if not found:
        raise DataError(
            "these datasets have no plain episode without a fault; collect some with "
            "collect --faults noop --normal 60 --no-fault plain"
        )
    if out is not None:
        groups = {(one.app, one.platform, one.step_s, one.load) for one in found}
        kept = [
            one for one in latent.load_calibrations() if (one.app, one.platform, one.step_s, one.load) not in groups
        ]
        replace_text(out, latent.to_json([*found, *kept]))
    if as_json:
        show_json([_record(one) for one in found])
        return
    for one in found:
        _print(one)


def _record(one: Calibration) -> dict[str, object]:
    from faultset.collector.verdicts import latent

    exceeding, judged = one.unseen
    return {
        "app": one.app,
        "platform": one.platform,
        "load": one.load,
        "step_s": one.step_s,
        "episodes": one.episodes,
        "windows": len(one.windows),
        "least_windows": latent.LEAST_WINDOWS,
        "quantile": latent.QUANTILE,
        "limit": one.threshold,
        "windows_judged_by_other_episodes": judged,
        "windows_above_limit_of_other_episodes": exceeding,
        "share_above_interval": latent.binomial_interval(exceeding, judged) if judged else None,
    }


def _print(one: Calibration) -> None:
    from faultset.collector.verdicts import latent

    click.echo(
        f"{one.app} on {one.platform}, {one.load} load, a sample every {one.step_s:g} s: "
        f"{len(one.windows)} windows of services in {one.episodes} episodes"
    )
    if one.threshold is None:
        click.echo(f"  no limit: {latent.LEAST_WINDOWS} windows are needed")
        return
    click.echo(f"  limit {one.threshold:.2f}, the {latent.QUANTILE:.0%} quantile")
    exceeding, judged = one.unseen
    if judged:
        low, high = latent.binomial_interval(exceeding, judged)
        click.echo(
            f"  with the limit of the other episodes, {exceeding} of {judged} windows exceed it "
            f"({exceeding / judged:.2%}, 95 % interval {low:.2%} to {high:.2%}; wanted is 1 %)"
        )
