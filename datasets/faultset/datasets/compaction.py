"""Write smaller datasets, with numbered ids, the smallest encoding of each column, and a share of the traces.

Random ids of traces and spans cannot be compressed and take more than half of the space of spans and logs. Ids that are
numbered in time order take a tenth of that. Spans and log lines of one trace still share an id.

The first half of a new id identifies the episode, so that ids are unique in a dataset. The first digit shows whether
the spans were kept.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from faultset.core.errors import UsageError
from faultset.core.files import translate_write_errors, write_text
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.datasets.dataset import Dataset, Episode, open_dataset
from faultset.datasets.format.context import Sampling
from faultset.datasets.format.episodes import JOURNAL_FILE, EpisodeWriter, run_digest
from faultset.datasets.format.incidents import chunk_truth
from faultset.datasets.format.labels import Label
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.schemas import time_column
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.view import RecordingView


def copy_episode(
    episode: Episode,
    folder: Path,
    changed: Mapping[str, pa.Table] | None = None,
    *,
    label: Label | None = None,
    evidence: pd.DataFrame | None = None,
    smallest: bool = False,
) -> None:
    """Copy an episode into a different dataset folder with some tables replaced.

    The digest of the run in the journal is updated, so that it still matches the telemetry.

    Parameters
    ----------
    episode
        The episode to copy.
    folder
        Folder of the new dataset.
    changed
        Replacements of telemetry tables by name, with the `episode` column.
    label, evidence
        Replacements of the ground truth.
    smallest
        Write the smallest files, which takes longer.
    """
    view, changed = episode.view, changed or {}
    before: dict[str, pa.ChunkedArray] = {}
    after: dict[str, pa.ChunkedArray] = {}
    with EpisodeWriter(folder, episode.id, smallest=smallest, added_tables=view.context.added_tables) as writer:
        for table in view.tables:
            rows, time = view.table(table), time_column(table)
            written = writer.write_table(table, [changed.get(table, rows)])
            before[table], after[table] = rows[time], written[time]
        writer.write_context(view.context)
        checks = (episode.evidence if evidence is None else evidence).drop(columns="episode").to_dict("records")
        evidence_rows = [{str(name): _none_if_missing(value) for name, value in row.items()} for row in checks]
        truth = label or episode.label
        row = truth.as_row()
        del row["episode"]
        journal = episode.path / JOURNAL_FILE
        writer.write_truth(row, evidence_rows, journal)
        old, new = (
            run_digest(times, view_start_ns=truth.view_start_ns, inject_start_ns=truth.inject_start_ns)
            for times in (before, after)
        )
        write_text(writer.folder / JOURNAL_FILE, journal.read_text(encoding="utf-8").replace(old, new))
        writer.commit()


def _none_if_missing(value: Any) -> Any:
    """Return None for a missing value in pandas, else the value."""
    return None if value != value or value is None else value


_IDS = {"trace_id": 32, "span_id": 16, "parent_span_id": 16}
"""Id columns and their number of hex digits."""
_TEXTS = {"spans": "attributes", "logs": "message"}
"""Columns whose texts may contain ids."""
KEPT, LEFT_OUT = "0", "f"
"""First digit of the ids of kept spans and traces, and of the ids of omitted ones."""
_ID_IN_TEXT = r"\b[0-9a-f]{16}(?:[0-9a-f]{16})?\b"

pc: Any = pyarrow.compute


def compact_dataset(
    root: Path | str,
    out: Path | str,
    *,
    traces: float = 1.0,
    version: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Write a smaller copy of a version into a new folder, and open it.

    Ids of traces and spans become numbers in time order, consistently in spans, logs and their texts, and different
    in each episode. Metrics, events, objects, requests, truth and splits do not change.

    `traces` is the share of the traces whose spans are kept, in (0, 1], chosen by their ids. All log lines are kept;
    ids without spans begin with `f`, other ids with 0.
    """
    if not 0 < traces <= 1:
        raise UsageError(f"the share of traces must be above 0 and at most 1, got {traces:g}")
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "compaction") as folder:
        steps = StepCounter(len(dataset.episodes) + len(dataset.recording_files), progress)
        for name in dataset.episodes:
            episode = dataset[name]
            tables = {table: episode.view.table(table) for table in _TEXTS}
            copy_episode(episode, folder, _compact_tables(tables, name, traces, IdNumbering()), smallest=True)
            steps.add()
        source: dict[str, Any] = {"version": dataset.version, "created": dataset.created, "traces": traces}
        if traces < 1:
            source["ids_of_left_out_traces_begin_with"] = LEFT_OUT
        provenance = dict(dataset.provenance) | {"compacted_from": source}
        for recording in dataset.recordings():
            compact_recording(recording, folder, traces)
            steps.add()
        create_version(folder, provenance=provenance, splits_of=dataset.version_file)
    return open_dataset(out)


def compact_recording(recording: Recording[Dataset], folder: Path, traces: float) -> None:
    """Write a smaller copy of a recording chunk by chunk.

    A trace that continues in the next chunk keeps its numbers.
    """
    view = recording.view
    sampling = replace(view.context.sampling, traces=view.context.sampling.traces * traces)
    writer = RecordingWriter(folder, replace(view.context, sampling=sampling), smallest=True)
    recorded_traces = _list_recorded_traces(view) if view.context.sampling.traces < 1 else set[str]()
    numbering = IdNumbering()
    segment = 0
    for chunk in view.chunks:
        tables = {table: view.table(table, chunk.start_ns, chunk.end_ns) for table in view.tables}
        unsampled = set[str]()
        if view.context.sampling.traces < 1:
            unsampled = _list_unsampled_ids(tables["logs"], view.context.sampling, recorded_traces)
        changed = tables | _compact_tables(tables, recording.id, traces, numbering, unsampled)
        if chunk.segment != segment:
            writer.new_segment()
        segment = chunk.segment
        writer.append(
            chunk.start_ns,
            chunk.end_ns,
            {name: [table] for name, table in changed.items()},
            truth=chunk_truth(recording.path, chunk),
            journal=(recording.path / chunk.folder / JOURNAL_FILE).read_text(encoding="utf-8"),
        )


def _compact_tables(
    tables: Mapping[str, pa.Table],
    unit: str,
    traces: float,
    numbering: IdNumbering,
    unsampled: Collection[str] = (),
) -> dict[str, pa.Table]:
    """Return the sampled spans and all logs of an episode or recording with numbered ids."""
    spans = tables["spans"]
    is_kept = _sample_traces(spans["trace_id"], traces)
    left_out = _list_ids(spans.filter(pc.invert(is_kept))) | {*unsampled}
    numbered = number_ids([spans.filter(is_kept), tables["logs"]], list(_TEXTS.values()), unit, left_out, numbering)
    return dict(zip(_TEXTS, numbered, strict=True))


class IdNumbering:
    """State of `number_ids` between calls; only ids of the last call are remembered.

    Attributes
    ----------
    numbers
        Id -> its replacement.
    counts
        Length of ids in digits -> number of replaced ids.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}
        self.counts: Counter[int] = Counter()


def number_ids(
    tables: Sequence[pa.Table],
    texts: Sequence[str],
    episode: str,
    left_out: Collection[str],
    numbering: IdNumbering,
) -> list[pa.Table]:
    """Replace each id of a trace or span with a prefix for the episode and a number in order of appearance.

    Parameters
    ----------
    tables
        Tables of one episode, some with the columns `trace_id`, `span_id` and `parent_span_id`.
    texts
        For each table, the column whose texts may contain ids; the ids in texts are replaced as well.
    episode
        Id of the episode.
    left_out
        Ids of the omitted traces and spans.
    numbering
        State after the previous tables; by default there were none.
    """
    prefix = hashlib.sha256(episode.encode()).hexdigest()
    numbers: dict[str, str] = {}
    for digits in sorted({*_IDS.values()}):
        columns = [
            table[name].combine_chunks()
            for table in tables
            for name in _IDS
            if name in table.column_names and _IDS[name] == digits
        ]
        ids = pa.chunked_array(columns, pa.string()).unique().drop_null().to_pylist()
        half = digits // 2
        for old in ids:
            if old in numbering.numbers:
                numbers[old] = numbering.numbers[old]
                continue
            numbering.counts[digits] += 1
            number = numbering.counts[digits]
            is_left_out = old in left_out or old.startswith(LEFT_OUT + prefix[: half - 1])
            numbers[old] = f"{LEFT_OUT if is_left_out else KEPT}{prefix[: half - 1]}{number:0{half}x}"
    numbering.numbers = numbers
    results = []
    for table, text in zip(tables, texts, strict=True):
        changed = table
        for name in (name for name in _IDS if name in table.column_names):
            changed = _with_column(changed, name, [numbers.get(old) for old in table[name].to_pylist()])
        results.append(_with_column(changed, text, _replace_ids(table[text].to_pylist(), numbers)))
    return results


def _list_ids(table: pa.Table) -> set[str]:
    """Return the ids of the traces and spans of a table."""
    return {value for name in ("trace_id", "span_id") for value in table[name].drop_null().to_pylist()}


def _list_recorded_traces(view: RecordingView) -> set[str]:
    """Return the ids of all traces with spans in a recording."""
    spans = (view.table("spans", chunk.start_ns, chunk.end_ns, ["trace_id"]) for chunk in view.chunks)
    return {trace_id for table in spans for trace_id in table["trace_id"].unique().to_pylist()}


def _list_unsampled_ids(logs: pa.Table, sampling: Sampling, recorded_traces: Collection[str]) -> set[str]:
    """Return the ids on log lines whose traces were not sampled when they were recorded."""
    unsampled = [
        trace_id
        for trace_id in logs["trace_id"].drop_null().unique().to_pylist()
        if trace_id not in recorded_traces and not sampling.samples(trace_id)
    ]
    return _list_ids(logs.filter(pc.is_in(logs["trace_id"], value_set=pa.array(unsampled, pa.string()))))


def _replace_ids(texts: Sequence[str | None], numbers: dict[str, str]) -> list[str | None]:
    pattern = re.compile(_ID_IN_TEXT)
    return [text and pattern.sub(lambda match: numbers.get(match[0], match[0]), text) for text in texts]


def _with_column(table: pa.Table, name: str, values: Sequence[str | None]) -> pa.Table:
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, pa.string()).cast(field.type))


def _sample_traces(trace_ids: pa.ChunkedArray, share: float) -> pa.Array:
    """Return for each row whether its trace is kept."""
    coded = pa.array(trace_ids.to_pylist()).dictionary_encode()
    digests = (hashlib.sha256(trace_id.encode()).digest()[:8] for trace_id in coded.dictionary.to_pylist())
    keep = np.array([int.from_bytes(digest, "big") < share * 2**64 for digest in digests], dtype=bool)
    return pa.array(keep[coded.indices.to_numpy()])
