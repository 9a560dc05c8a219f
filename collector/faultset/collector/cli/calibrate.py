"""`faultset calibrate`: measure limits of the latent test in episodes without a fault."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.core.console import OUTPUT_FILE, command, json_option
from faultset.core.output import show_json
from faultset.core.printable import count_text

if TYPE_CHECKING:
    from faultset.collector.verdicts.latent import Calibration


@command("calibrate", short_help="Measure the limits of the latent test on episodes without a fault.")
@click.argument("datasets", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=OUTPUT_FILE, help="Write the calibration file here.")
@json_option
def calibrate(datasets: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Calibrate the latent test: measure how much the telemetry of services changes without a fault.

    Each combination of application, platform, load and sampling interval gets its own limit: the 99 % quantile of at
    least 300 windows of services in plain episodes. With fewer windows there is no limit, and faults that clients do
    not notice get the verdict unknown. The file that --out writes contains the measured limits, and this release's
    limits for all other combinations.

    \b
    Example:
      faultset calibrate plain-1/ plain-2/ --out calibration.json
    """
    from faultset.collector.verdicts import latent
    from faultset.core.errors import DataError
    from faultset.core.files import replace_text
    from faultset.datasets.dataset import open_dataset

    calibrations = latent.measure_calibrations(open_dataset(path) for path in datasets)
    if not calibrations:
        raise DataError(
            "The datasets need plain episodes without a fault, but have none. Collect some with "
            "collect --faults noop --normal 60 --no-fault plain"
        )
    if out is not None:
        groups = {
            (calibration.app, calibration.platform, calibration.step_s, calibration.load)
            for calibration in calibrations
        }
        unchanged = [
            calibration
            for calibration in latent.load_calibrations()
            if (calibration.app, calibration.platform, calibration.step_s, calibration.load) not in groups
        ]
        replace_text(out, latent.to_json([*calibrations, *unchanged]))
    if as_json:
        show_json([_to_record(calibration) for calibration in calibrations])
        return
    for calibration in calibrations:
        _print_calibration(calibration)


def _to_record(calibration: Calibration) -> dict[str, object]:
    from faultset.collector.verdicts import latent
    from faultset.collector.verdicts.exact_tests import compute_binomial_interval

    exceeding_count, judged_count = calibration.false_alarms
    return {
        "app": calibration.app,
        "platform": calibration.platform,
        "load": calibration.load,
        "step_s": calibration.step_s,
        "episodes": calibration.episodes,
        "windows": len(calibration.windows),
        "least_windows": latent.MIN_WINDOWS,
        "quantile": latent.QUANTILE,
        "limit": calibration.threshold,
        "windows_judged_by_other_episodes": judged_count,
        "windows_above_limit_of_other_episodes": exceeding_count,
        "share_above_interval": compute_binomial_interval(exceeding_count, judged_count) if judged_count else None,
    }


def _print_calibration(calibration: Calibration) -> None:
    from faultset.collector.verdicts import latent
    from faultset.collector.verdicts.exact_tests import compute_binomial_interval

    click.echo(
        f"{calibration.app} on {calibration.platform}, {calibration.load} load, "
        f"a sample every {calibration.step_s:g} s: "
        f"{count_text(len(calibration.windows), 'window')} of services in {count_text(calibration.episodes, 'episode')}"
    )
    if calibration.threshold is None:
        click.echo(f"  no limit: {latent.MIN_WINDOWS} windows are needed")
        return
    click.echo(f"  limit {calibration.threshold:.2f}, the {latent.QUANTILE:.0%} quantile")
    exceeding_count, judged_count = calibration.false_alarms
    if judged_count:
        low, high = compute_binomial_interval(exceeding_count, judged_count)
        click.echo(
            f"  of {count_text(judged_count, 'window')}, {exceeding_count} exceed a limit that was measured on the "
            f"other episodes ({exceeding_count / judged_count:.2%}, 95 % "
            f"interval {low:.2%} to {high:.2%}; 1 % is expected)"
        )
