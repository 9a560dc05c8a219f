"""Smaller datasets: ids numbered instead of random, the smallest encoding of each column, and a share of the traces.

Ids of traces and spans are random, so that no compression helps: they are more than half of what spans and logs take.
Numbered in order of time they take a tenth. What belongs together stays together, in lines of logs as well.

The first half of a new id names the episode, so that no id comes twice in a dataset. Its first digit says whether the
spans were kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import UsageError
from faultset.core.files import translate_write_errors, write_text
from faultset.core.locks import new_folder
from faultset.datasets.dataset import Dataset, Episode, open_dataset
from faultset.datasets.format.episodes import JOURNAL_FILE, EpisodeWriter, run_digest
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import time_column
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version


def write_again(
    episode: Episode,
    folder: Path,
    changed: Mapping[str, pa.Table] | None = None,
    *,
    label: Label | None = None,
    evidence: pd.DataFrame | None = None,
    smallest: bool = False,
) -> None:
    """Write an episode into another dataset folder; its context stays as it is, and what else is not given.

    A journal that was of the same run as the telemetry is so afterwards, whatever rows were left out.

    Parameters
    ----------
    episode
        What to write.
    folder
        Folder of the other dataset.
    changed
        Telemetry tables by name, with the `episode` column, that take the place of the episode's own.
    label, evidence
        Truth that takes the place of the episode's own.
    smallest
        Write slower, with less space.
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
        found = (episode.evidence if evidence is None else evidence).drop(columns="episode").to_dict("records")
        evidence_rows = [{str(name): _known(value) for name, value in row.items()} for row in found]
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


def _known(value: Any) -> Any:
    """Return None for what pandas holds for a missing value."""
    return None if value != value or value is None else value


_IDS = {"trace_id": 32, "span_id": 16, "parent_span_id": 16}
"""Columns with ids, and their hex digits."""
_TEXTS = {"spans": "attributes", "logs": "message"}
"""Columns whose texts may name ids."""
KEPT, LEFT_OUT = "0", "f"
"""First digit of ids of spans and traces that are in the dataset, and of those that were left out."""
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
    """Write a version of a dataset in less space in a new folder, and open it.

    Episodes, truth and splits stay as they are, and so do metrics, events, objects and requests. Ids of traces and
    spans become numbers in order of time, the same in spans, logs and the texts of both. They differ between episodes.

    Parameters
    ----------
    root
        Dataset folder; it is only read.
    out
        Target folder; must not exist or must be empty.
    traces
        Share of the traces whose spans are kept, in (0, 1]; which they are depends on their ids alone. All lines of
        logs are kept; those whose spans are not have ids that begin with `f`, all other ids begin with 0.
    version
        The newest by default.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    UsageError
        The share is out of range.
    DataError
        The dataset is damaged, or `out` holds something.
    """
    if not 0 < traces <= 1:
        raise UsageError(f"the share of traces must be above 0 and at most 1, {traces:g} was given")
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "compaction") as folder:
        steps = StepCounter(len(dataset.episodes), progress)
        for name in dataset.episodes:
            episode = dataset[name]
            spans, logs = (episode.view.table(table) for table in _TEXTS)
            drawn = _drawn(spans["trace_id"], traces)
            left_out = spans.filter(pc.invert(drawn)).select(["trace_id", "span_id"])
            tables = number_ids([spans.filter(drawn), logs], list(_TEXTS.values()), name, left_out)
            changed = dict(zip(_TEXTS, tables, strict=True))
            write_again(episode, folder, changed, smallest=True)
            steps.add()
        source: dict[str, Any] = {"version": dataset.version, "created": dataset.created, "traces": traces}
        if traces < 1:
            source["ids_of_left_out_traces_begin_with"] = LEFT_OUT
        provenance = dict(dataset.provenance) | {"compacted_from": source}
        create_version(folder, provenance=provenance, splits=dataset.manifest.splits)
    return open_dataset(out)


def number_ids(tables: Sequence[pa.Table], texts: Sequence[str], episode: str, left_out: pa.Table) -> list[pa.Table]:
    """Return tables whose ids of traces and spans name the episode and have numbers in order of appearance.

    Parameters
    ----------
    tables
        Tables of one episode, some with the columns `trace_id`, `span_id` and `parent_span_id`.
    texts
        For each table the column whose texts may name ids, which are changed alike.
    episode
        Id of the episode.
    left_out
        `trace_id` and `span_id` of spans that are not in the tables.
    """
    gone = {one for column in left_out.columns for one in column.to_pylist()}
    mark = hashlib.sha256(episode.encode()).hexdigest()
    numbers: dict[str, str] = {}
    for digits in sorted({*_IDS.values()}):
        columns = [
            table[name].combine_chunks()
            for table in tables
            for name in _IDS
            if name in table.column_names and _IDS[name] == digits
        ]
        found = pa.chunked_array(columns, pa.string()).unique().drop_null().to_pylist()
        half = digits // 2
        for number, old in enumerate(found, 1):
            numbers[old] = f"{LEFT_OUT if old in gone else KEPT}{mark[: half - 1]}{number:0{half}x}"
    made = []
    for table, text in zip(tables, texts, strict=True):
        changed = table
        for name in (name for name in _IDS if name in table.column_names):
            changed = _with_column(changed, name, [numbers.get(one) for one in table[name].to_pylist()])
        made.append(_with_column(changed, text, _renamed(table[text].to_pylist(), numbers)))
    return made


def _renamed(texts: Sequence[str | None], numbers: dict[str, str]) -> list[str | None]:
    pattern = re.compile(_ID_IN_TEXT)
    return [text and pattern.sub(lambda found: numbers.get(found[0], found[0]), text) for text in texts]


def _with_column(table: pa.Table, name: str, values: Sequence[str | None]) -> pa.Table:
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, pa.string()).cast(field.type))


def _drawn(trace_ids: pa.ChunkedArray, share: float) -> pa.Array:
    """Return for each row whether its trace is kept."""
    coded = pa.array(trace_ids.to_pylist()).dictionary_encode()
    digests = (hashlib.sha256(one.encode()).digest()[:8] for one in coded.dictionary.to_pylist())
    keep = np.array([int.from_bytes(digest, "big") < share * 2**64 for digest in digests], dtype=bool)
    return pa.array(keep[coded.indices.to_numpy()])
