"""`faultset diagnose`: suspects for one incident, with evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import DURATION, OUTPUT_FILE, command, complete_names, json_option, list_option
from faultset.core.errors import UsageError
from faultset.core.output import show_json

if TYPE_CHECKING:
    from faultset.datasets.dataset import Episode
    from faultset.evaluators.diagnosis.records import IncidentAnalysis

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command(short_help="Find suspects for one incident, with evidence.")
@click.argument("paths", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--episode", metavar="ID", help="Episode or recording; needed if there are several.")
@click.option("--version", metavar="VERSION", help="Version of the dataset.", show_default="the newest")
@click.option("--incident", metavar="NAME", help="Incident by its name in the incident file, or its id in a recording.")
@click.option("--incidents", type=EXISTING_FILE, help="Incident file, for telemetry files.")
@click.option("--mapping", type=EXISTING_FILE, help="Mapping file, for telemetry files.")
@click.option("--at", metavar="TIME", help="When the problem was noticed, in UTC: 14:03:20 or 2026-11-28T14:03:20.")
@click.option("--since", "since_s", type=DURATION, help="Like --at, as a duration before the end of the telemetry.")
@list_option(
    "--methods",
    help="Localizers to run instead of the default panel.",
    shell_complete=complete_names("faultset.baselines"),
)
@click.option("--html", type=OUTPUT_FILE, help="Also write a page that shows suspects and telemetry on one time axis.")
@json_option
def diagnose(methods: tuple[str, ...], html: Path | None, as_json: bool, **options: Any) -> None:
    """Run detectors and a panel of localizers on one incident, and show what changed for each suspect.

    SOURCE is a dataset (folder, name or URL), the folder of one episode, or any mix of files and folders of telemetry
    as in "dataset import telemetry". No label is needed, and none is read. Without --at or --since, detectors decide
    when the incident began; a recording needs --at or --incident. "No evidence" means that episodes without a fault
    often look the same.

    \b
    Example:
      faultset diagnose sample --episode a5edb68659bc
      faultset diagnose traces/ metrics.json logs/ --at 2026-11-28T14:03:20Z --html incident.html
    """
    from faultset.core.output import report_progress
    from faultset.evaluators.diagnosis.analysis import diagnose as analyse
    from faultset.evaluators.diagnosis.sources import IncidentSource, open_incident
    from faultset.evaluators.diagnosis.text import analysis_text

    source = IncidentSource(**options)
    if source.at is not None and source.since_s is not None:
        raise UsageError("--at and --since cannot be combined, because both set the time of the incident; give one")
    with report_progress("MB read") as progress, open_incident(source, progress) as (episode, moment_ns):
        analysis = analyse(episode, at_ns=moment_ns, methods=methods)
        size = None if html is None else _write_page(episode, html, analysis)
    if as_json:
        show_json(analysis.to_dict())
    else:
        click.echo(analysis_text(analysis))
    if size is not None:
        click.echo(f"{html}, {size / 1e6:.1f} MB. Open it in a browser.", err=True)


def _write_page(episode: Episode, html: Path, analysis: IncidentAnalysis) -> int:
    from faultset.datasets.explorer.page import write_incident_page
    from faultset.evaluators.diagnosis.text import agreement_text, answer_lanes

    incident: dict[str, Any] = {
        "moment_ns": analysis.moment_ns,
        "summary": agreement_text(analysis),
        "suspects": analysis.to_dict()["suspects"],
    }
    return write_incident_page(episode, html, incident, {episode.id: answer_lanes(analysis)})
