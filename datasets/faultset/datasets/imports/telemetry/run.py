"""Import files of telemetry: stage them, plan episodes or a recording, and pass both to the common importer."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import yaml

from faultset.core.errors import DataError, UsageError, suggest
from faultset.core.files import replace_text, translate_write_errors
from faultset.core.locks import lock_folder
from faultset.core.output import Progress, StepCounter
from faultset.core.printable import count_text, quoted, size_text
from faultset.core.times import duration_text
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.imports.importer import ImportResult, ImportSource, import_dataset
from faultset.datasets.imports.telemetry.assembly import PLAN, AssemblyPlan
from faultset.datasets.imports.telemetry.incidents import (
    LONG_NS,
    EpisodeWindow,
    IncidentFile,
    TelemetryRecordingPlan,
    find_stretches,
    incident_windows,
    list_recording_windows,
    parse_moment,
    plan_recording,
    read_incidents,
    whole_window,
    window_around,
)
from faultset.datasets.imports.telemetry.mapping import TelemetryMapping, read_mapping
from faultset.datasets.imports.telemetry.naming import ServiceNames, infer_kinds, list_roles
from faultset.datasets.imports.telemetry.reports import TelemetryReport, build_report, sum_counts
from faultset.datasets.imports.telemetry.rows import STAGED, Redactor
from faultset.datasets.imports.telemetry.staging import FileFacts, InputFile, list_inputs, stage_files

_BYTES_PER_S = 12e6
"""Speed of reading JSON on a slow core; tables and text are faster."""
_STEP_BYTES = 1_000_000
STAGE_SUFFIX = ".staged"


@dataclass(frozen=True, kw_only=True)
class TelemetryOptions:
    """Options of an import of telemetry files."""

    mapping: Path | str | None = None
    """Mapping file; names are inferred without it."""
    incidents: Path | str | None = None
    """Incident file."""
    app: str = "app"
    """Name of the application, used only if `mapping` is None."""
    at: str | None = None
    """Time to cut one episode around."""
    window: tuple[int, int] | None = None
    """Start and end of the telemetry to use, in UTC nanoseconds; all by default."""
    recording: bool | None = None
    """Whether to write one recording instead of episodes; by default if more than two hours are covered without a gap
    and `at` is not set."""
    redact: bool = True
    """Whether to hide secrets in known formats in messages and attributes."""
    redact_patterns: Sequence[str] = ()
    """Regular expressions for additional texts to hide."""


@dataclass(frozen=True, kw_only=True)
class StagedTelemetry:
    """Staged rows with their mapping and report."""

    folder: Path
    mapping: TelemetryMapping
    report: TelemetryReport


def import_telemetry(
    paths: Sequence[Path | str],
    out: Path | str,
    options: TelemetryOptions | None = None,
    *,
    workers: int | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
    announce: Callable[[object], None] | None = None,
    report: Callable[[TelemetryReport], None] | None = None,
) -> ImportResult:
    """Import files of telemetry into a dataset and create a version.

    Run an interrupted import again to finish it.

    Parameters
    ----------
    paths
        Files and folders of any mix of formats, plain or compressed; they are only read.
    out
        Dataset folder: new, empty, or written by an earlier import of the same files.
    workers
        Processes that write episodes; one per processor by default.
    skip_bad
        Leave out incidents that cannot become episodes. Otherwise they are an error, and no version is created.
    progress
        Called with the number of megabytes read and the total.
    announce
        Called with the expected cost of reading, as text, and later with the `ImportCost` of writing the cases.
    report
        Called with the recognised files and services, before episodes are written.

    Raises
    ------
    UsageError
        An option, the mapping file or the incident file is wrong.
    DataError
        A path does not exist, no file holds telemetry, or `out` holds other data.
    """
    options = options or TelemetryOptions()
    check_options(options)
    out = Path(out)
    with stage_telemetry(paths, staging_folder(out), options, progress=progress, announce=announce) as telemetry:
        if report is not None:
            report(telemetry.report)
        recording = plan_long_recording(telemetry, options)
        windows = [] if recording is not None else plan_windows(telemetry, options)
        write_plan(telemetry, windows, recording)
        # The path identifies the import: the same files with another plan are another source.
        digest = hashlib.sha256((telemetry.folder / PLAN).read_bytes()).hexdigest()[:12]
        path = f"{' '.join(str(Path(path).resolve()) for path in paths)} (plan {digest})"
        files = telemetry.report.files
        details = {
            "files": {file.name: file.format for file in files if not file.refusal},
            "refused": [file.refusal for file in files if file.refusal],
            "dropped": dict(sum_counts(file.dropped for file in files)),
            "redacted": sum(file.redacted for file in files),
            "redaction": options.redact,
            "mapping": asdict(telemetry.mapping),
        }
        source = ImportSource(path=path, details=details)
        result = import_dataset(
            "telemetry", telemetry.folder, out, workers=workers, skip_bad=skip_bad, announce=announce, source=source
        )
        shutil.rmtree(telemetry.folder, ignore_errors=True)
    return result


def examine_telemetry(
    paths: Sequence[Path | str],
    options: TelemetryOptions | None = None,
    *,
    folder: Path,
    progress: Progress | None = None,
    announce: Callable[[object], None] | None = None,
) -> TelemetryReport:
    """Return what an import would recognise; the staged rows are kept in `folder` for a later import."""
    with stage_telemetry(paths, folder, options or TelemetryOptions(), progress=progress, announce=announce) as staged:
        return staged.report


@contextmanager
def stage_telemetry(
    paths: Sequence[Path | str],
    folder: Path,
    options: TelemetryOptions,
    *,
    progress: Progress | None = None,
    announce: Callable[[object], None] | None = None,
) -> Iterator[StagedTelemetry]:
    """Read files into a folder that is locked within the block; see `import_telemetry`."""
    mapping = TelemetryMapping(app=options.app) if options.mapping is None else read_mapping(Path(options.mapping))
    Redactor(options.redact, options.redact_patterns)  # refuses an invalid pattern before anything is read
    inputs = list_inputs([Path(path) for path in paths])
    if not inputs:
        raise DataError(f"{', '.join(map(str, paths))} holds no file; give files or folders of telemetry")
    if announce is not None:
        size = sum(file.size for file in inputs)
        count, duration = count_text(len(inputs), "file"), duration_text(size / _BYTES_PER_S)
        announce(f"{count}, {size_text(size)}: about {duration} to read")
    with translate_write_errors(folder), translate_disk_full(folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, "import"):
        facts = stage_files(
            inputs,
            folder,
            mapping,
            lambda: Redactor(options.redact, options.redact_patterns),
            _build_counter(inputs, progress),
        )
        usable = [file for file in facts if file.rows]
        if not usable:
            shutil.rmtree(folder, ignore_errors=True)
            raise DataError(_explain_no_telemetry(facts))
        yield StagedTelemetry(folder=folder, mapping=mapping, report=build_report(folder, facts, mapping))


def check_options(options: TelemetryOptions) -> None:
    """Raise UsageError or DataError for wrong options and files, before gigabytes are read."""
    if options.at is not None and options.incidents is not None:
        raise UsageError("--at and --incidents are mutually exclusive; give one of them")
    if options.at is not None and options.recording:
        raise UsageError("--at cuts an episode, and --recording writes a recording; give one of them")
    if options.at is not None:
        parse_moment(options.at)
    if options.incidents is not None:
        read_incidents(Path(options.incidents))
    if options.mapping is not None:
        read_mapping(Path(options.mapping))


def staging_folder(out: Path) -> Path:
    """Return the folder for the staged rows of an import into `out`."""
    return out.parent / f"{out.name}{STAGE_SUFFIX}"


def _build_counter(inputs: Sequence[InputFile], progress: Progress | None) -> Callable[[int], None]:
    """Return a function that counts bytes and shows megabytes."""
    total = max(1, sum(file.size for file in inputs) // _STEP_BYTES)
    steps = StepCounter(total, progress)
    read = shown = 0

    def advance(count: int) -> None:
        nonlocal read, shown
        read += count
        if read // _STEP_BYTES > shown:
            steps.add(read // _STEP_BYTES - shown)
            shown = read // _STEP_BYTES

    return advance


def _explain_no_telemetry(facts: Sequence[FileFacts]) -> str:
    refusals = [file.refusal for file in facts if file.refusal]
    if len(refusals) == 1:
        return f"no telemetry: {refusals[0]}"
    if not refusals:
        return "the files hold no telemetry; give others, or correct the mapping file"
    return f"none of {len(facts):,} files holds telemetry (first: {refusals[0]}); give others, or a mapping file"


def plan_long_recording(telemetry: StagedTelemetry, options: TelemetryOptions) -> TelemetryRecordingPlan | None:
    """Return the recording to build; None if the telemetry is short or the options ask for episodes."""
    if options.recording is False or options.at is not None:
        return None
    report = telemetry.report
    data = options.window or (report.start_ns, report.end_ns)
    files = [file for file in report.files if file.rows]
    ranges = [(file.first_ns[table], file.last_ns[table]) for file in files for table in file.rows]
    stretches = find_stretches(ranges, data)
    longest_ns = max((end_ns - start_ns for start_ns, end_ns in stretches), default=0)
    if not longest_ns or (options.recording is None and longest_ns <= LONG_NS):
        return None
    entries = IncidentFile() if options.incidents is None else read_incidents(Path(options.incidents))
    incidents, healthy = list_recording_windows(entries, data)
    rows = sum_counts(file.rows for file in files).total()
    return plan_recording(stretches, rows, _name_causes(incidents, report.names), healthy)


def plan_windows(telemetry: StagedTelemetry, options: TelemetryOptions) -> list[EpisodeWindow]:
    """Return the windows of the episodes to build, whose causes are services of the telemetry."""
    data = options.window or (telemetry.report.start_ns, telemetry.report.end_ns)
    if options.at is not None:
        return [window_around(parse_moment(options.at), data)]
    if options.incidents is None:
        return [whole_window(data)]
    windows = incident_windows(read_incidents(Path(options.incidents)), data)
    return _name_causes(windows, telemetry.report.names)


def _name_causes(windows: Sequence[EpisodeWindow], names: ServiceNames) -> list[EpisodeWindow]:
    """Replace the causes of windows with the services of the telemetry that they name."""

    def find(cause: str, window: EpisodeWindow) -> str:
        service = names.find(cause)
        if service is None:
            raise UsageError(
                f"the cause of {quoted(window.key)} is {quoted(cause)}, but the telemetry has no such service; "
                f"{suggest(cause, names.services)}"
            )
        return service

    return [
        replace(window, causes=tuple(dict.fromkeys(find(cause, window) for cause in window.causes)))
        for window in windows
    ]


def write_plan(
    telemetry: StagedTelemetry, windows: Sequence[EpisodeWindow], recording: TelemetryRecordingPlan | None = None
) -> None:
    """Write what `TelemetryImport` needs into the staging folder."""
    facts = telemetry.report.files
    types: dict[str, str] = {}
    metrics: dict[str, str] = {}
    declared: dict[str, Mapping[str, str]] = {}
    for file in facts:
        types |= file.types
        declared |= file.roles
        for metric, kind in file.metrics.items():
            if metrics.get(metric, "unknown") == "unknown":
                metrics[metric] = kind
    kinds = infer_kinds(metrics, types)
    AssemblyPlan(
        app=telemetry.mapping.app,
        windows=tuple(windows),
        folders={
            table: [(file.folder, file.first_ns[table], file.last_ns[table]) for file in facts if file.rows.get(table)]
            for table in STAGED
        },
        services=telemetry.report.names.of_origin,
        names=telemetry.report.names.of_name,
        kinds=kinds,
        calls=telemetry.mapping.calls,
        roles=list_roles(metrics | kinds, declared, telemetry.mapping.roles),
        recording=recording,
    ).write(telemetry.folder)


def write_mapping(path: Path, report: TelemetryReport, app: str) -> str:
    """Write a mapping file with the inferred names of services, and return a phrase about the result.

    An existing file is kept, because the user may have edited it.
    """
    aliases = {
        alias: service
        for service, tables in report.names.aliases.items()
        for alias in sorted({alias for aliases in tables.values() for alias in aliases})
    }
    services = yaml.safe_dump({"services": aliases}, sort_keys=True, allow_unicode=True).rstrip()
    text = _MAPPING.format(app=app, services=services)
    if path.exists():
        is_same = path.is_file() and path.read_bytes() == text.encode()
        return "holds these names" if is_same else "exists and was not changed; --mapping reads it"
    with translate_write_errors(path):
        replace_text(path, text)
    return "holds these names; to change them, edit it and repeat the command with --mapping and another folder"


_MAPPING = """\
# How faultset reads this telemetry. Edit it and give it with --mapping.
app: {app}
# zone of times without one
time_zone: UTC
# name in the data: service in the dataset; null for rows that belong to no service
{services}
# metric or pattern: role (cpu, memory, latency, errors, traffic, saturation, ...)
roles: {{}}
# calls that traces do not show, as [caller, callee]
calls: []
# files that need help: match, and skip, service, pod, time, time_zone, pattern, signal, columns, ...
files: []
"""
