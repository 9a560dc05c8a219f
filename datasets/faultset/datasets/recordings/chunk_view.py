"""A chunk of a recording as the view of an episode, for checks that read views."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from faultset.datasets.format.context import EpisodeContext, RecordingContext
from faultset.datasets.format.incidents import Incident
from faultset.datasets.format.labels import Label, join_distinct
from faultset.datasets.format.recordings import Chunk
from faultset.datasets.views import EpisodeView


def chunk_context(context: RecordingContext, chunk: Chunk) -> EpisodeContext:
    """Return the context of a chunk as an episode with the recording's id; the reference is the whole chunk."""
    return context.of_episode(
        chunk.recording, start_ns=chunk.start_ns, end_ns=chunk.end_ns, reference_end_ns=chunk.end_ns
    )


class ChunkView(EpisodeView):
    """The telemetry of one chunk.

    Parameters
    ----------
    recording
        Folder of the recording.
    """

    def __init__(self, recording: Path, context: RecordingContext, chunk: Chunk) -> None:
        self._folder = recording / chunk.folder
        self._context = chunk_context(context, chunk)


def incidents_in(incidents: Iterable[Incident], chunk: Chunk) -> list[Incident]:
    """Return the incidents that were under way in a chunk."""
    return [
        incident
        for incident in incidents
        if (incident.inject_start_ns or 0) < chunk.end_ns and (incident.end_ns or chunk.end_ns) >= chunk.start_ns
    ]


def label_of_chunk(incidents: Iterable[Incident], chunk: Chunk) -> Label:
    """Return a label with the faults of all incidents in a chunk, to search the chunk for their names."""
    inside = incidents_in(incidents, chunk)
    return Label(
        episode=chunk.recording,
        fault=join_distinct(incident.fault or "" for incident in inside) or None,
        no_fault_kind=None if inside else "plain",
        targets=tuple(dict.fromkeys(target for incident in inside for target in incident.targets)),
        root_causes=(),
        system_level=None,
        fault_type=None,
        paper_number=None,
        category=None,
        parameters={incident.incident: dict(incident.parameters) for incident in inside},
        inject_start_ns=None,
        inject_done_ns=None,
        effective_ns=None,
        recover_start_ns=None,
        recover_done_ns=None,
        healthy_again_ns=None,
        verdict="unknown" if inside else "none",
        first_manifest_ns=None,
        seed=0,
        faults=tuple(fault for incident in inside for fault in incident.faults),
        view_start_ns=chunk.start_ns,
        view_end_ns=chunk.end_ns,
        reference_end_ns=chunk.end_ns,
        profile="chunk",
        workload={},
        host={},
        clock_offsets={},
    )
