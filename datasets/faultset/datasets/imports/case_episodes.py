"""Writing one foreign case as an episode."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.datasets.format.context import IMPORTED, EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter, table_file
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.format.summaries import EpisodeSummary, summarize_episode
from faultset.datasets.format.truth import evidence_table
from faultset.datasets.imports.contract import Case, ForeignEpisode, ImportFormat
from faultset.datasets.imports.inputs import input_evidence
from faultset.datasets.imports.spans import with_normalised_ids
from faultset.datasets.imports.windows import EMPTY_VIEW
from faultset.datasets.metrics.frame_cache import frame_facts, keep_frame
from faultset.datasets.metrics.roles import catalogue_with
from faultset.datasets.validation.datasets import checked_for
from faultset.datasets.validation.labels import label_problems
from faultset.datasets.validation.tables import written_rows_problems

if TYPE_CHECKING:
    import pandas as pd


def episode_id(name: str, key: str) -> str:
    """Return the opaque id of a case: the same in every import of it."""
    return hashlib.sha256(f"{name}\0{key}".encode()).hexdigest()[:12]


def import_case(found: ImportFormat, case: Case, out: Path) -> EpisodeSummary:
    """Write one case as an episode."""
    episode = episode_id(found.name, case.key)
    foreign = found.load(case)
    context = _context(episode, foreign)
    try:
        label = _label(foreign)
    except DataError as error:
        raise DataError(f"{case.key}: {error}") from error
    metrics = TABLES["metrics"].empty_table()
    written = 0
    with EpisodeWriter(out, episode, quick=True) as writer:
        for table, batches in foreign.tables.items():
            rows = writer.write_table(table, with_normalised_ids(batches()))
            for problem in written_rows_problems(rows, table, context):
                raise _unsound(case, f"{table_file(table)}: {problem}")
            written += len(rows)
            if table == "metrics":
                metrics = rows
        if not written:
            raise DataError(f"{case.key}: {EMPTY_VIEW}; leave the case out")
        writer.write_context(context)
        writer.write_truth(label, [*foreign.evidence, *input_evidence(case, foreign, found.name)], None)
        writer.write_missing_tables()
        summary = _sound_summary(case, writer, context)
        folder = writer.commit()
    # Methods ask for this frame first, and here its samples are at hand.
    keep_frame(folder, frame_facts(context, context.resolution_s, None), lambda: _usual_frame(metrics, context))
    return replace(summary, checked_for=checked_for(summary.files))


def _sound_summary(case: Case, writer: EpisodeWriter, context: EpisodeContext) -> EpisodeSummary:
    """Read context and truth as a dataset is read: names that came from the data may be what no dataset may hold."""
    folder = writer.folder
    try:
        summary = summarize_episode(folder, writer.rows)
        catalogue_with(context.metric_roles)
        evidence_table(folder)
    except DataError as error:
        raise _unsound(case, str(error).removeprefix(f"{folder}/")) from error
    for problem in label_problems(context, summary.label):
        raise _unsound(case, f"{table_file('label')}: {problem}; restore the file")
    return summary


def _unsound(case: Case, reason: str) -> DataError:
    return DataError(f"{case.key} cannot become an episode: {reason}")


def _usual_frame(metrics: pa.Table, context: EpisodeContext) -> pd.DataFrame:
    from faultset.datasets.metrics.frames import wide_frame

    window = context.view_start_ns, context.view_end_ns
    return wide_frame(metrics, *window, context.resolution_s, catalogue=catalogue_with(context.metric_roles))


def _context(episode: str, foreign: ForeignEpisode) -> EpisodeContext:
    return EpisodeContext(
        episode=episode,
        app=foreign.app,
        platform=IMPORTED,
        view_start_ns=foreign.view_start_ns,
        view_end_ns=foreign.view_end_ns,
        reference_end_ns=foreign.reference_end_ns,
        source_intervals_s=dict.fromkeys(TABLES) | dict(foreign.source_intervals_s),
        services=foreign.services,
        calls=foreign.calls,
        workload_entry=foreign.workload_entry,
        metric_roles=foreign.metric_roles,
        reference_moved_ns=foreign.reference_moved_ns,
    )


def _label(foreign: ForeignEpisode) -> dict[str, Any]:
    faulty = foreign.label.get("fault") is not None
    defaults: dict[str, Any] = {
        "targets": [],
        "root_causes": [],
        "verdict": "unknown" if faulty else "none",
        "no_fault_kind": None if faulty else "plain",
        "profile": IMPORTED,
        "seed": 0,
        "parameters": {},
        "workload": {},
        "host": {},
        "clock_offsets": {},
    }
    if faulty and not foreign.label.get("targets"):
        raise DataError("its label has a fault and names no target; restore the label, or leave the case out")
    windows = {
        "view_start": foreign.view_start_ns,
        "view_end": foreign.view_end_ns,
        "reference_end": foreign.reference_end_ns,
    }
    return defaults | dict(foreign.label) | windows
