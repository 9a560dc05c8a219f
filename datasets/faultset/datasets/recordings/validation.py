"""Check the chunks of recordings before anything is computed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.output import Progress, StepCounter
from faultset.core.printable import quoted
from faultset.datasets.cache import read_checked_files, store_checked_files
from faultset.datasets.format.context import CONTEXT_FILE, RecordingContext, read_recording_context
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.incidents import Incident, read_chunk_journals, read_incidents, read_truth_rows
from faultset.datasets.format.recordings import RECORDINGS, Chunk, chunk_files, listed_chunks, read_chunks
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES
from faultset.datasets.format.version_files import FileRecord
from faultset.datasets.metrics.roles import catalogue_with
from faultset.datasets.recordings.window_view import chunk_context
from faultset.datasets.validation import check_unit, table_problems

_INSTANTS = ("inject_start", "inject_done", "recover_start", "recover_done", "healthy_again")
Problem = tuple[str, str, str]
"""File below the recording's folder, check, and description; see `Finding.check`."""


def recording_problems(folder: Path, recording: str, numbers: list[int] | None = None) -> Iterator[Problem]:
    """Yield the problems with the content of a recording."""
    context = read_recording_context(folder)
    if context.recording != recording:
        yield CONTEXT_FILE, "context", f"belongs to recording {context.recording}"
        return
    catalogue_with(context.metric_roles)
    chunks = read_chunks(folder, numbers)
    for chunk in chunks:
        yield from chunk_problems(folder, context, chunk)
    for incident in read_incidents(folder, chunks):
        for problem in incident_problems(incident, context, chunks):
            yield f"{chunks[-1].folder}/{table_file('incidents')}", "label", problem
    read_chunk_journals(folder, chunks)


def chunk_problems(folder: Path, context: RecordingContext, chunk: Chunk) -> Iterator[Problem]:
    """Yield the problems with the tables of a chunk."""
    episode_context = chunk_context(context, chunk)
    for table in context.tables:
        path = f"{chunk.folder}/{table_file(table)}"
        for check, problem in table_problems(folder / path, table, episode_context):
            yield path, check, problem.replace("outside the view", "outside the chunk")
    for table in CHUNK_TRUTH_TABLES:
        path = f"{chunk.folder}/{table_file(table)}"
        for row in read_truth_rows(folder, [chunk], table):
            if row["episode"] != chunk.recording:
                yield path, "rows", f"has rows of another recording ({quoted(row['episode'])})"
                break
            if row.get("end") is not None and row["end"] < row["start"]:
                yield path, "label", "has an interval that ends before it starts"
                break


def incident_problems(incident: Incident, context: RecordingContext, chunks: tuple[Chunk, ...]) -> Iterator[str]:
    """Yield the contradictions within an incident and with its recording."""
    name = f"incident {incident.incident}"
    services = {*incident.targets, *(cause.service for cause in incident.root_causes if cause.service)}
    for service in sorted(services - set(context.services)):
        yield f"{name}: {quoted(service)} is a target or root cause but not among the services"
    if incident.verdict not in ("manifest", "latent", "silent", "unknown"):
        yield f'{name}: verdict "{incident.verdict}" must be manifest, latent, silent or unknown'
    start_ns = incident.inject_start_ns or 0
    if not any(chunk.start_ns <= start_ns < chunk.end_ns for chunk in chunks):
        yield f"{name} does not start in a chunk of the recording"
    instants = [at_ns for field in _INSTANTS if (at_ns := getattr(incident, f"{field}_ns")) is not None]
    if instants != sorted(instants):
        yield f"{name}: {', '.join(_INSTANTS)} are not in order"


def expected_files(folder: Path, files: Mapping[str, FileRecord]) -> list[str]:
    """Return the paths of all files that a recording with the listed chunks must have."""
    context = read_recording_context(folder)
    names = [CONTEXT_FILE]
    for number in listed_chunks(files):
        names += [f"chunks/{number:04d}/{name}" for name in chunk_files(context.tables)]
    return names


def check_recording_files(
    root: Path, recordings: Mapping[str, Mapping[str, FileRecord]], progress: Progress | None = None
) -> None:
    """Check the files of recordings; unchanged files that passed before are not read again."""
    cache = read_checked_files(root)
    steps = StepCounter(len(recordings), progress)
    for recording, files in recordings.items():

        def check(folder: Path, recording: str = recording, files: Mapping[str, FileRecord] = files) -> None:
            for name, _, problem in recording_problems(folder, recording, listed_chunks(files)):
                raise DataError(f"{folder / name}: {problem}; restore the file")

        unit = f"{RECORDINGS}/{recording}"
        list_expected = partial(expected_files, files=files)
        if results := check_unit(root, unit, files, cache, list_expected=list_expected, check=check):
            store_checked_files(root, results)
        steps.add()
