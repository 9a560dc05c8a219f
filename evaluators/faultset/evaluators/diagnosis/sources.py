"""Open the episode that an incident is read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import DataError, UsageError
from faultset.core.output import Progress
from faultset.core.printable import count_text, quoted
from faultset.core.processes import scratch
from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets.dataset import Dataset, Episode, dataset_folder, is_episode, open_dataset
from faultset.datasets.format.episodes import EPISODES, TELEMETRY
from faultset.datasets.format.version_files import VERSIONS
from faultset.datasets.imports.cases import episode_id
from faultset.datasets.imports.contract import reference_end
from faultset.datasets.recordings.cuts import cut_view
from faultset.datasets.recordings.view import RecordingView
from faultset.datasets.remote.file_systems import copy_files, is_url, local_path, open_labels
from faultset.evaluators.diagnosis.text import read_moment

_MAX_LISTED = 3
_MIN_BEFORE_NS = 10 * SECOND_NS
_BEFORE_NS, _AFTER_NS = 300 * SECOND_NS, 120 * SECOND_NS
"""Time before and after the incident that is extracted from a recording; short, because recordings have an incident
every few minutes."""


@dataclass(frozen=True, kw_only=True)
class IncidentSource:
    """Location of the telemetry of an incident."""

    paths: tuple[str, ...]
    """A dataset, the folder of an episode, or files and folders of telemetry."""
    episode: str | None = None
    """Episode or recording of a dataset."""
    version: str | None = None
    """Version of a dataset; the newest by default."""
    incident: str | None = None
    """Name of an incident of the incident file, or id of an incident of a recording."""
    incidents: Path | None = None
    """Incident file, for telemetry files."""
    mapping: Path | None = None
    """Mapping file, for telemetry files."""
    at: str | None = None
    """Time of the incident. Telemetry files are read from half an hour before it to half an hour after, recordings from
    five minutes before it to two minutes after."""
    since_s: float | None = None
    """Time of the incident as seconds before the end of the telemetry; not for recordings."""


@contextmanager
def open_incident(source: IncidentSource, progress: Progress | None = None) -> Iterator[tuple[Episode, int | None]]:
    """Yield the episode of an incident, and when it began in UTC nanoseconds; None lets detectors decide.

    Telemetry files are imported, and parts of recordings written, into a temporary folder.
    """
    first = source.paths[0]
    is_single = len(source.paths) == 1
    if is_single and is_url(first):
        with _open_remote(first, source) as episode:
            yield episode, _choose_moment(episode, source)
        return
    folder = local_path(first)
    if is_single and is_episode(folder):
        _reject_options(source, "the folder of one episode", ("episode", "version", "incident", "incidents", "mapping"))
        episode = Episode(id=folder.resolve().name, path=folder)
        yield episode, _choose_moment(episode, source)
    elif is_single and (not folder.exists() or (folder / VERSIONS).is_dir()):
        _reject_options(source, "a dataset", ("incidents", "mapping"))
        if not dataset_folder(folder).exists():
            raise DataError(
                f"{first} must be an existing file or folder, or the name of a published dataset; give files of "
                "telemetry, a dataset, or the folder of an episode"
            )
        dataset = open_dataset(folder, source.version)
        if source.episode in dataset.recording_files or (not dataset.episodes and dataset.recording_files):
            with scratch("incident") as temporary:
                yield _cut_recording(dataset, source, Path(temporary))
            return
        episode = _choose_episode(dataset, source)
        dataset.check_files(episodes=[episode.id])
        yield episode, _choose_moment(episode, source)
    else:
        _reject_options(source, "telemetry files", ("episode", "version"))
        with scratch("incident") as temporary:
            episode = _import_telemetry(source, Path(temporary) / "dataset", progress)
            yield episode, _choose_moment(episode, source)


@contextmanager
def _open_remote(url: str, source: IncidentSource) -> Iterator[Episode]:
    _reject_options(source, "a dataset", ("incidents", "mapping"))
    with open_labels(url, source.version) as dataset:
        episode = _choose_episode(dataset, source)
        names = [name for name in episode.files if name.startswith(f"{TELEMETRY}/")]
        copy_files(url.rstrip("/"), dataset, [episode.id], names, dataset.root)
        yield episode


def _import_telemetry(source: IncidentSource, folder: Path, progress: Progress | None) -> Episode:
    from faultset.datasets.imports.telemetry.run import TelemetryOptions, import_telemetry

    options = TelemetryOptions(
        mapping=source.mapping, incidents=source.incidents, at=None if source.incidents else source.at, recording=False
    )
    import_telemetry(source.paths, folder, options, workers=1, progress=progress)
    return _choose_episode(open_dataset(folder), source)


def _cut_recording(dataset: Dataset, source: IncidentSource, folder: Path) -> tuple[Episode, int]:
    """Write the part of a recording around the time of the incident as an episode; return it and the time."""
    choices = _list_moments(dataset, source)
    matches = [
        (view, at_ns, segment)
        for view, at_ns in choices
        for segment in view.segments
        if segment.start_ns + _MIN_BEFORE_NS <= at_ns < segment.end_ns
    ]
    if not matches:
        ranges = [
            f"{utc_text(s.start_ns)} to {utc_text(s.end_ns)}"
            for view, _ in choices[:_MAX_LISTED]
            for s in view.segments
        ]
        raise UsageError(
            f"--at must be at least {_MIN_BEFORE_NS // SECOND_NS} s after the start of telemetry without a gap, got "
            f"{utc_text(choices[0][1])}; {source.paths[0]} has {', '.join(ranges)} UTC"
        )
    if len(matches) > 1:
        raise UsageError(
            f"{source.paths[0]} has {count_text(len(matches), 'recording')} of that time; choose one with --episode: "
            f"{', '.join(view.recording for view, _, _ in matches)}"
        )
    ((view, at_ns, segment),) = matches
    start_ns, end_ns = max(segment.start_ns, at_ns - _BEFORE_NS), min(segment.end_ns, at_ns + _AFTER_NS)
    healthy_ns = reference_end(start_ns, end_ns, at_ns, origin=view.recording)
    cut = cut_view(view, folder, start_ns=start_ns, end_ns=end_ns, reference_end_ns=healthy_ns)
    return Episode(id=cut.episode, path=folder / EPISODES / cut.episode), at_ns


def _list_moments(dataset: Dataset, source: IncidentSource) -> list[tuple[RecordingView, int]]:
    """Return the recordings that may be meant, each with the time of the incident in it."""
    names = [*dataset.recording_files] if source.episode is None else [source.episode]
    recordings = [dataset.recording(name) for name in names]
    if source.incident is None:
        if source.at is None:
            raise UsageError(
                f"{source.paths[0]} holds hours of telemetry; give the time of the incident with --at, or --incident"
            )
        views = [recording.view for recording in recordings]
        return [(view, read_moment(source.at, view.window[0])) for view in views]
    if source.episode is not None or source.at is not None:
        raise UsageError("--incident determines the recording and the time; leave out --episode and --at")
    for recording in recordings:
        incidents = recording.incidents()
        if source.incident in incidents.index:
            return [(recording.view, int(incidents.loc[[source.incident], "start_ns"].iloc[0]))]
    raise UsageError(
        f"--incident must be the id of an incident of {source.paths[0]}, got {quoted(source.incident)}; "
        f'"faultset dataset episodes {source.paths[0]}" lists them'
    )


def _choose_moment(episode: Episode, source: IncidentSource) -> int | None:
    if source.since_s is not None:
        return episode.context.view_end_ns - round(source.since_s * SECOND_NS)
    if source.at is not None:
        return read_moment(source.at, episode.context.view_start_ns)
    if source.incidents is None:
        return None
    from faultset.datasets.imports.telemetry.incidents import parse_moment, read_incidents

    entries = read_incidents(source.incidents).incidents
    chosen = [entry for entry in entries if source.incident in (entry.name, None)]
    return parse_moment(str(chosen[0].start)) if len(chosen) == 1 else None


def _reject_options(source: IncidentSource, kind: str, options: Sequence[str]) -> None:
    """Raise UsageError if an option is given that does not fit the kind of source."""
    for option in options:
        if getattr(source, option) is not None:
            raise UsageError(f"--{option} does not apply to {kind} ({', '.join(source.paths)}); leave it out")


def _choose_episode(dataset: Dataset, source: IncidentSource) -> Episode:
    if source.episode is not None and source.incident is not None:
        raise UsageError("--episode and --incident both choose an episode; leave out one of them")
    if source.episode is not None:
        return dataset[source.episode]
    if source.incident is not None:
        chosen = episode_id("telemetry", source.incident)
        if chosen not in dataset:
            raise UsageError(f"there is no incident {quoted(source.incident)}; use a name from the incident file")
        return dataset[chosen]
    if len(dataset) == 1:
        return dataset[dataset.episodes[0]]
    raise UsageError(
        f"{', '.join(source.paths)} has {count_text(len(dataset), 'episode')}; choose one with --episode or "
        f'--incident; "faultset dataset episodes {source.paths[0]}" lists them'
    )
