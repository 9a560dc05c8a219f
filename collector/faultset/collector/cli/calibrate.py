"""`faultset calibrate`: measure limits of the latent test in episodes without a fault."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    least 300 service windows in plain episodes. With fewer windows there is no limit, and faults that clients do
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
        settings = {calibration.setting for calibration in calibrations}
        unchanged = [other for other in latent.load_calibrations() if other.setting not in settings]
        replace_text(out, latent.to_json([*calibrations, *unchanged]))
    records = [_to_record(calibration) for calibration in calibrations]
    if as_json:
        show_json(records)
        return
    for record in records:
        _print_record(record)


def _to_record(calibration: Calibration) -> dict[str, Any]:
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


def _print_record(record: dict[str, Any]) -> None:
    click.echo(
        f"{record['app']} on {record['platform']}, {record['load']} load, a sample every {record['step_s']:g} s: "
        f"{count_text(record['windows'], 'service window')} in {count_text(record['episodes'], 'episode')}"
    )
    if record["limit"] is None:
        click.echo(f"  no limit: {record['least_windows']} windows are needed")
        return
    click.echo(f"  limit {record['limit']:.2f}, the {record['quantile']:.0%} quantile")
    judged_count, exceeding_count = (
        record[f"windows_{name}_other_episodes"] for name in ("judged_by", "above_limit_of")
    )
    if judged_count:
        low, high = record["share_above_interval"]
        click.echo(
            f"  of {count_text(judged_count, 'window')}, {exceeding_count} exceed a limit that was measured on the "
            f"other episodes ({exceeding_count / judged_count:.2%}, 95 % "
            f"interval {low:.2%} to {high:.2%}; 1 % is expected)"
        )
