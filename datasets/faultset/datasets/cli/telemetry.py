"""`faultset dataset import telemetry`: its report and the mapping file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.output import is_quiet
from faultset.core.printable import count_text, printable

if TYPE_CHECKING:
    from faultset.datasets.imports.importer import ImportResult
    from faultset.datasets.imports.telemetry.reports import TelemetryReport

_MAX_LISTED = 12
"""Maximum number of lines per list."""
_TABLES = ("metrics", "spans", "logs", "events", "objects")


def show_cost(cost: object) -> None:
    """Print the expected cost of an import."""
    if not is_quiet():
        click.echo(f"{cost}.", err=True)


def import_files(
    paths: Sequence[Path], out: Path, options: Mapping[str, Any], *, workers: int | None, skip_bad: bool
) -> ImportResult | None:
    """Import telemetry files and print a report; return None after a dry run."""
    from faultset.core.output import report_progress
    from faultset.datasets.imports.telemetry.run import (
        TelemetryOptions,
        examine_telemetry,
        import_telemetry,
        staging_folder,
        write_mapping,
    )

    chosen = dict(options)
    dry_run = chosen.pop("dry_run")
    telemetry = TelemetryOptions(**chosen)
    mapping = out.parent / f"{out.name}.mapping.yaml"

    def report(recognised: TelemetryReport) -> None:
        show_report(recognised)
        if telemetry.mapping is None:
            state = write_mapping(mapping, recognised, telemetry.app)
            click.echo(f"{mapping} {state}.", err=True)

    with report_progress("MB read") as progress:
        if dry_run:
            report(
                examine_telemetry(paths, telemetry, folder=staging_folder(out), progress=progress, announce=show_cost)
            )
            names = " ".join(shlex.quote(str(path)) for path in paths)
            click.echo(
                f"Next:\n  faultset dataset import telemetry {names} {shlex.quote(str(out))} --mapping {mapping}"
            )
            return None
        return import_telemetry(
            paths,
            out,
            telemetry,
            workers=workers,
            skip_bad=skip_bad,
            progress=progress,
            announce=show_cost,
            report=report,
        )


def next_commands(out: Path, telemetry: Mapping[str, Any] | None, *, has_recordings: bool = False) -> str:
    """Return the commands to run after an import.

    Parameters
    ----------
    telemetry
        Options `at` and `incidents` of an import of telemetry; None for other formats.
    """
    folder = shlex.quote(str(out))
    commands = ["Next:", f"faultset dataset verify {folder}"]
    if telemetry is not None or has_recordings:
        commands.append(f"faultset dataset explore {folder}")
    if telemetry is None or telemetry["incidents"] is not None:
        commands.append(f"evaluate {folder}")
    else:
        at = telemetry["at"]
        commands.append(f"faultset diagnose {folder}" + (f" --at {shlex.quote(at)}" if at else ""))
    return "\n  ".join(commands)


def show_report(report: TelemetryReport) -> None:
    """Print formats, services, and refused, dropped and changed records."""
    from faultset.core.times import rfc3339
    from faultset.datasets.imports.telemetry.reports import describe_formats, sum_counts

    _echo(f"Recognised, from {rfc3339(report.start_ns)} to {rfc3339(report.end_ns)}:")
    for line in describe_formats(report.files):
        _echo(f"  {line}")
    _echo(f"{count_text(len(report.names.services), 'service')}:")
    for service in report.names.services[:_MAX_LISTED]:
        _echo(f"  {service}: {_describe_aliases(report.names.aliases[service], service)}")
    _echo_rest(len(report.names.services))
    for name, service, reason in report.names.linked[:_MAX_LISTED]:
        _echo(f"  {name} counts as {service}: {reason}")
    _echo_rest(len(report.names.linked))
    for issue in report.issues:
        _echo(f"Note: {issue}.")
    for title, counts in (
        ("Dropped", sum_counts(f.dropped for f in report.files)),
        ("Changed", sum_counts(f.notes for f in report.files)),
    ):
        for reason, count in counts.most_common(_MAX_LISTED):
            _echo(f"{title} {count:,}: {reason}.")
    redacted = sum(file.redacted for file in report.files)
    if redacted:
        _echo(f"Changed {redacted:,}: secrets are hidden (--no-redact keeps them).")
    copies = sum(bool(file.copy_of) for file in report.files)
    refused = [file.refusal for file in report.files if file.refusal and not (file.copy_of and copies > 1)]
    for refusal in refused[:_MAX_LISTED]:
        _echo(f"Refused: {refusal}.")
    _echo_rest(len(refused))
    if copies > 1:
        _echo(f"Refused: {copies:,} files that are copies of others.")


def _echo(text: str) -> None:
    if not is_quiet():
        click.echo(printable(text), err=True)


def _echo_rest(count: int) -> None:
    if count > _MAX_LISTED:
        _echo(f"  and {count - _MAX_LISTED:,} more")


def _describe_aliases(aliases: Mapping[str, Sequence[str]], service: str) -> str:
    texts = []
    for table in _TABLES:
        others = [alias for alias in aliases.get(table, ()) if alias != service]
        if table in aliases:
            texts.append(f"{table} as {', '.join(others[:3])}" if others else table)
    return ", ".join(texts)
