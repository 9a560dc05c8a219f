"""`faultset dataset doctor`, `import`, `export` and `publish`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import DURATION, command, json_option, list_option
from faultset.core.errors import DataError, UsageError
from faultset.core.output import is_quiet, show_json, show_records
from faultset.core.plugins import plugins
from faultset.core.printable import count_text, list_counts, printable, size_text
from faultset.core.times import duration_text
from faultset.datasets.cli.versions import dataset_argument, version_option

if TYPE_CHECKING:
    from faultset.datasets.exports.exporter import ExportPlan
    from faultset.datasets.imports.importer import ImportResult
    from faultset.datasets.imports.telemetry.reports import TelemetryReport


@command("doctor", short_help="Recognise the format of external data and list its data issues.")
@click.argument("path")
@click.option("--input", "input_file", metavar="FILE", help="File to examine if a case has several.")
@json_option
def doctor(path: str, input_file: str | None, as_json: bool) -> None:
    """Recognise the format of the data at PATH and list its issues before you import it.

    PATH may be a benchmark, or files of your own telemetry.
    For a faultset dataset, which may be at a URL that fsspec supports, count the episodes without a healthy reference.
    Nothing is written. Exit with 3 if the format is unknown or a case cannot be imported.

    \b
    Example:
      faultset dataset doctor RE2/RE2-OB
    """
    from faultset.core.output import report_progress
    from faultset.datasets import examine
    from faultset.datasets.remote.file_systems import local_folder

    with local_folder(path) as folder, report_progress("steps") as progress:
        examination = examine(folder, display_name=path, input_file=input_file, progress=progress)
    if as_json:
        show_json(asdict(examination))
    else:
        click.echo(examination.summary)
        if examination.data_issues:
            click.echo()
            show_records(map(asdict, examination.data_issues), columns=("severity", "location", "problem", "handling"))
        click.echo()
        click.echo("Next:")
        click.echo(f"  {examination.next}")
    errors = [issue for issue in examination.data_issues if issue.severity == "error"]
    if errors:
        raise DataError(f"{path} cannot be imported as it is: {count_text(len(errors), 'issue')}; see the list above")


@command(
    "import",
    short_help="Read another benchmark's data, or your own telemetry, into a dataset.",
    epilog=f"Formats: {', '.join(plugins('faultset.importers'))}.",
)
@click.argument("name", metavar="FORMAT")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of cases to read concurrently.", show_default="cores"
)
@click.option(
    "--input",
    "input_file",
    metavar="FILE",
    help='File to read if a case has several with the same telemetry; "dataset doctor" lists them.',
)
@click.option("--skip-bad", is_flag=True, help="Skip unreadable cases instead of creating no version.")
@click.option("--incidents", metavar="FILE", help="telemetry: times and causes of incidents.")
@click.option("--mapping", metavar="FILE", help="telemetry: names of services, roles, columns.")
@click.option("--at", metavar="TIME", help="telemetry: cut one episode around a time.")
@click.option(
    "--recording/--episodes", default=None, help="telemetry: one recording, or episodes.", show_default="by length"
)
@click.option("--redact/--no-redact", default=True, help="telemetry: hide passwords and tokens.")
@click.option("--redact-patterns", "redact_patterns", multiple=True, metavar="REGEX", help="telemetry: hide more text.")
@click.option("--dry-run", is_flag=True, help="telemetry: recognise files and write a mapping file only.")
@json_option
def import_(
    name: str,
    paths: tuple[Path, ...],
    out: Path,
    workers: int | None,
    input_file: str | None,
    skip_bad: bool,
    as_json: bool,
    **telemetry: Any,
) -> None:
    """Import the data at PATH, in FORMAT, into the dataset folder OUT.

    Each case becomes an episode or a recording; telemetry and truth are in separate folders. Repeat the command to
    resume an interrupted import. "faultset dataset doctor PATH" reports issues of the data beforehand.

    FORMAT telemetry reads any mix of files from your monitoring and writes OUT.mapping.yaml to edit.

    \b
    Example:
      faultset dataset import rcaeval RE2/RE2-OB re2-ob/
      faultset dataset import telemetry traces/ metrics.json shop --incidents incidents.yaml
    """
    from faultset.core.output import report_progress
    from faultset.datasets import import_dataset

    if name == "telemetry":
        if input_file is not None:
            raise UsageError("--input is for benchmarks, not for telemetry; leave it out")
        result = import_files(paths, out, telemetry, workers=workers, skip_bad=skip_bad)
        if result is None:
            return
    else:
        path = _get_only_path(name, paths, telemetry)
        with report_progress("cases") as progress:
            result = import_dataset(
                name,
                path,
                out,
                workers=workers,
                skip_bad=skip_bad,
                input_file=input_file,
                progress=progress,
                announce=show_cost,
            )
    _show_import(result, out, as_json, telemetry if name == "telemetry" else None)


def _get_only_path(name: str, paths: tuple[Path, ...], telemetry: Mapping[str, Any]) -> Path:
    """Return the single path to import; refuse several paths and options that only the format telemetry has."""
    path, *others = paths
    if others:
        raise UsageError(f"{name} reads one PATH, got {len(paths)}; give their common folder")
    for option, value in telemetry.items():
        if option != "redact" and (value or (option == "recording" and value is not None)):
            raise UsageError(f"--{option.replace('_', '-')} is for the format telemetry, not for {name}; leave it out")
    return path


def _show_import(result: ImportResult, out: Path, as_json: bool, telemetry: Mapping[str, Any] | None) -> None:
    """Print the result of an import; `telemetry` holds the options of the format telemetry, None for other formats."""
    if as_json:
        show_json(
            {
                "dataset": str(out),
                "version": result.version,
                "cases": result.cases,
                "recordings": result.recordings,
                "written": result.written,
                "left_out": dict(result.left_out),
            }
        )
        return
    for key, reason in result.left_out.items():
        click.echo(f"Skipped {key}: {reason}", err=True)
    count = result.cases - len(result.left_out)
    earlier = f" and {count - result.written} before" if result.written < count else ""
    units = list_counts(episode=count - result.recordings, recording=result.recordings)
    click.echo(f"{units} in {out}: {result.written} written now{earlier}.")
    click.echo(f"Version {result.version}." if result.is_new else f"Version {result.version} already contains them.")
    click.echo(next_commands(out, telemetry, has_recordings=result.recordings > 0))


MAX_GB = 2


@command("export", short_help="Write a dataset as wide tables or in another benchmark's layout.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--as", "name", metavar="LAYOUT", required=True, help=f"One of {', '.join(plugins('faultset.exporters'))}."
)
@version_option
@click.option("--step", "step_s", type=DURATION, default="1s", help="Step of wide tables.")
@list_option("--roles", help="Roles of the metrics to export, for instance cpu,latency.", show_default="all")
@click.option("--per-service", is_flag=True, help="Write windows per service, with the same columns in all apps.")
@click.option("--yes", is_flag=True, help=f"Allow more than {MAX_GB} GB.")
@click.option("--dry-run", is_flag=True, help="Print the expected size; write nothing.")
@json_option
def export(
    dataset: Path,
    out: Path,
    name: str,
    version: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write DATASET to the new folder OUT in a different layout.

    Wide tables have one row per step and one column per service and metric; labels are in a separate file. Episodes
    that a layout cannot hold, for instance those without a fault, are skipped and counted. The expected size is printed
    first; more than 2 GB need --yes.

    \b
    Example:
      faultset dataset export data/ training/ --as wide-parquet --roles cpu,memory,latency
      faultset dataset export data/ cases/ --as rcaeval
    """
    from faultset.core.output import report_progress
    from faultset.datasets import ExportOptions, export_dataset

    def announce(plan: ExportPlan) -> None:
        _show_plan(plan)
        if dry_run:
            raise click.exceptions.Exit(0)

    options["roles"] = options["roles"] or None
    with report_progress("episodes") as progress:
        result = export_dataset(
            name,
            dataset,
            out,
            version=version,
            options=ExportOptions(**options),
            progress=progress,
            max_bytes=None if yes else MAX_GB * 1_000_000_000,
            announce=announce,
        )
    if as_json:
        content = {"out": str(out), "episodes": result.episodes, "recordings": result.recordings}
        show_json(content | {"left_out": dict(result.left_out)})
        return
    for reason, count in sorted(Counter(result.left_out.values()).items()):
        click.echo(f"Skipped {count}: {reason}.", err=True)
    click.echo(f"{list_counts(episode=result.episodes, recording=result.recordings)} in {out}.")
    if result.opening:
        click.echo(f"Next:\n  {result.opening}")


def _show_plan(plan: ExportPlan) -> None:
    units = list_counts(episode=plan.faulty + plan.healthy, recording=plan.recordings)
    faulty = f" ({plan.faulty} with a fault, {plan.healthy} without)" if plan.faulty + plan.healthy else ""
    click.echo(
        f"{units}{faulty}, about {size_text(plan.expected_bytes)}, about {duration_text(plan.expected_s)}",
        err=True,
    )


@command("publish", short_help="Copy a version of a dataset to an object store.")
@dataset_argument
@click.argument("url")
@version_option
@click.option("--threads", type=click.IntRange(1, 64), default=8, help="Number of files to copy concurrently.")
@json_option
def publish(dataset: Path, url: str, version: str | None, threads: int, as_json: bool) -> None:
    """Copy a version of DATASET to URL: s3://, gs://, az://, file:// or another that fsspec can write.

    The version file is copied last, so that readers never see an incomplete version. Repeat the command to resume.
    Existing versions are kept; files that they share with the new one are not copied again.

    \b
    Example:
      faultset dataset publish data/ s3://bucket/data
      evaluate s3://bucket/data --out results
    """
    from faultset.core.output import report_progress
    from faultset.datasets.remote.writing import publish_dataset

    with report_progress("episodes") as progress:
        result = publish_dataset(dataset, url, version=version, threads=threads, progress=progress)
    if as_json:
        show_json(asdict(result))
        return
    state = "is published" if result.is_new else "already exists"
    click.echo(
        f"Version {result.version} {state} at {result.url}: {result.copied} of "
        f"{count_text(result.files, 'file')} copied."
    )
    click.echo(f"Next:\n  faultset dataset verify {shlex.quote(result.url)}")


_MAX_LISTED = 12
"""Maximum number of lines per list."""
_TABLES = ("metrics", "spans", "logs", "events", "objects")


def show_cost(cost: object) -> None:
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
    """Return the commands to run after an import; `telemetry` has the options of the format telemetry, None for
    others.
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
