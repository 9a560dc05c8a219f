"""What files, tables and labels of a dataset must be before anything is computed from them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError
from faultset.core.printable import printable, quoted
from faultset.core.reading.documents import parse_object
from faultset.core.reading.regular_files import FileStamp
from faultset.datasets.cache import CheckedFile, known_files, remember
from faultset.datasets.format.context import CONTEXT_FILE, EpisodeContext, read_context
from faultset.datasets.format.episodes import EPISODES, JOURNAL_FILE, order_of, table_file
from faultset.datasets.format.labels import Label, evidence_table, read_journal, read_label
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.format.schemas import TRUTH_TABLES, time_column
from faultset.datasets.format.storage import open_table, translate_damage
from faultset.datasets.format.versions import sha256_of
from faultset.datasets.metrics.roles import catalogue_with

_INSTANTS = ("inject_start", "inject_done", "recover_start", "recover_done")


def label_problems(context: EpisodeContext, label: Label) -> Iterator[str]:
    """Say how the label of an episode contradicts itself or the context."""
    if label.episode != context.episode:
        yield f"names another episode: context {context.episode}, label {label.episode}"
    for name in ("view_start", "view_end", "reference_end"):
        if getattr(label, f"{name}_ns") != getattr(context, f"{name}_ns"):
            yield f"{name} differs between label and context"
    for service in sorted({*label.targets, *_cause_services(label)} - set(context.services)):
        yield f"{quoted(service)} is a target or root cause but not among the candidates"
    if label.fault is None:
        wanted = "unknown" if label.no_fault_kind == "unlabelled" else "none"
        if label.verdict != wanted:
            yield f'an episode without a fault must have the verdict "{wanted}", not "{label.verdict}"'
        if label.targets or label.root_causes or label.faults:
            yield "an episode without a fault has targets or root causes"
        return
    if not label.targets:
        yield "a fault without a target"
    yield from _of_each(label)
    if label.verdict not in ("manifest", "latent", "silent", "unknown"):
        yield f'verdict "{label.verdict}" must be manifest, latent, silent or unknown'
    if label.inject_start_ns is None:
        yield "a fault without the time of its injection"
        return
    if not context.reference_end_ns <= label.inject_start_ns < context.view_end_ns:
        yield "the injection does not start between the reference window and the end of the view"
    instants = [at_ns for name in _INSTANTS if (at_ns := getattr(label, f"{name}_ns")) is not None]
    if instants != sorted(instants):
        yield f"{', '.join(_INSTANTS)} are not in order"
    for name, at_ns in (("effective", label.effective_ns), ("first_manifest", label.first_manifest_ns)):
        if at_ns is not None and not context.view_start_ns <= at_ns < context.view_end_ns:
            yield f"{name} lies outside the view"
    if label.recover_start_ns is not None and label.recover_start_ns < context.view_end_ns:
        yield "the recovery starts before the view ends"


def _of_each(label: Label) -> Iterator[str]:
    """Say how the faults of an episode contradict what is said of all of them."""
    if not label.faults:
        return
    if {one.fault for one in label.faults} != {*str(label.fault).split(" + ")}:
        yield f"the fault {quoted(str(label.fault))} is not what its faults are called"
    if {one.target for one in label.faults} != {*label.targets}:
        yield "the targets are not those of its faults"
    for one in label.faults:
        instants = [at_ns for at_ns in (one.inject_start_ns, one.inject_done_ns, one.effective_ns) if at_ns is not None]
        if instants != sorted(instants):
            yield f"times of {quoted(one.fault)} are not in order"
        bounds = [bound for interval in one.intervals for bound in (interval.begin_ns, interval.end_ns)]
        if bounds != sorted(bounds) or (bounds and bounds[0] < (one.inject_start_ns or 0)):
            yield f"the intervals of {quoted(one.fault)} are not in order, or begin before its injection"


def _cause_services(label: Label) -> set[str]:
    return {cause.service for cause in label.root_causes if cause.service}


pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

JSON_COLUMNS = {"metrics": ("labels",), "spans": ("attributes",), "objects": ("state", "data")}
"""Table -> its columns of JSON objects."""
_LARGEST_GROUP = 1 << 30
_LARGEST_TEXT = 4 << 30


def table_problems(path: Path, table: str, context: EpisodeContext) -> Iterator[str]:
    """Say what is wrong with the rows of a table, in sentences without the file's name.

    Rows are read a row group at a time, and repeated texts once, so that a table cannot take more memory than the
    limits of `open_table` allow.

    Raises
    ------
    DataError
        The file cannot be read.
    """
    schema = context.tables[table]
    texts = [field.name for field in schema if _is_text(field.type)]
    outside = unsorted = total = size = 0
    nulls: set[str] = set()
    others: set[str] = set()
    wrong_json: str | None = None
    last: pa.Table | None = None
    with open_table(path, table, schema, texts) as file, translate_damage(path):
        for number in range(file.num_row_groups):
            if file.metadata.row_group(number).total_byte_size > _LARGEST_GROUP:
                yield f"row group {number} is larger than {_LARGEST_GROUP:,} bytes"
                return
            rows = _decoded(file.read_row_group(number), schema, texts)
            if not len(rows):
                continue
            total += len(rows)
            size += sum(_text_bytes(rows[name]) for name in texts)
            if size > _LARGEST_TEXT:
                yield f"its texts take more than {_LARGEST_TEXT:,} bytes"
                return
            nulls |= {field.name for field in schema if not field.nullable and rows[field.name].null_count}
            if nulls:
                continue
            outside += _rows_outside(rows[time_column(table)], context)
            others |= _words_in(rows["episode"], _words_of(rows["episode"]) - {context.episode})
            unsorted += _is_unsorted(table, rows) or (
                last is not None and _is_unsorted(table, pa.concat_tables([last, rows.slice(0, 1)]))
            )
            last = rows.slice(len(rows) - 1)
            wrong_json = wrong_json or _wrong_json(rows, table)
    if nulls:
        yield f"column {', '.join(sorted(nulls))} has nulls, where none may be"
    if others:
        yield f"has rows of another episode ({quoted(min(others))})"
    if outside:
        yield _outside(outside, total)
    if unsorted:
        by = "series and time" if table == "metrics" else "time"
        yield f"its rows are not sorted by {by}"
    if wrong_json:
        yield wrong_json


def written_rows_problems(rows: pa.Table, table: str, context: EpisodeContext) -> Iterator[str]:
    """Say what is wrong with rows that were written a moment ago, as `table_problems` does for a file.

    Parameters
    ----------
    rows
        As `EpisodeWriter.write_table` returned them: it has sorted them and refused nulls and damaged text.
    """
    outside = _rows_outside(rows[time_column(table)], context)
    if outside:
        yield _outside(outside, len(rows))
    wrong_json = _wrong_json(rows, table)
    if wrong_json:
        yield wrong_json
    texts = [rows[field.name] for field in rows.schema if _is_text(field.type)]
    # counting takes longer than everything before, and is rarely needed
    if sum(map(_most_text_bytes, texts)) > _LARGEST_TEXT and sum(map(_text_bytes, texts)) > _LARGEST_TEXT:
        yield f"its texts take more than {_LARGEST_TEXT:,} bytes"


def _outside(rows: int, total: int) -> str:
    return f"{rows} of {total} rows lie outside the view"


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_dictionary(kind)


def _decoded(rows: pa.Table, schema: pa.Schema, texts: list[str]) -> pa.Table:
    """Bring what other writers do into the usual types, and check that texts are UTF-8."""
    columns = []
    for field in schema:
        column = rows[field.name]
        if field.name in texts:
            wanted: pa.DataType = pa.dictionary(pa.int32(), pa.string())
            if column.type != wanted:
                column = column.cast(wanted)
        else:
            wanted = field.type
        column.validate(full=True)
        columns.append(column.unify_dictionaries())
    return pa.table(columns, names=schema.names)


def _is_unsorted(table: str, rows: pa.Table) -> bool:
    order = order_of(table, rows.unify_dictionaries())
    return order is not None and bool((order[1:] < order[:-1]).any())


def _most_text_bytes(column: pa.ChunkedArray) -> int:
    """Return what a column of texts would take if every row had the longest one."""
    if not pa.types.is_dictionary(column.type):
        return _text_bytes(column)
    return sum(len(chunk) * (pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0) for chunk in column.chunks)


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes that a column of texts takes when every row has its own."""
    if not pa.types.is_dictionary(column.type):
        return pc.sum(pc.binary_length(column)).as_py() or 0
    total = 0
    for chunk in column.chunks:
        lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).to_numpy().astype(np.int64)
        if len(lengths) == 1:
            total += int(lengths[0]) * (len(chunk) - chunk.null_count)
        elif len(lengths):
            rows = np.bincount(chunk.indices.drop_null().to_numpy(), minlength=len(lengths))
            total += int(rows @ lengths)
    return total


def _words_of(column: pa.ChunkedArray) -> set[str]:
    """Return the words of a column; of a dictionary also those that no row has."""
    encoded = pa.types.is_dictionary(column.type)
    found = [chunk.dictionary for chunk in column.chunks] if encoded else [column.unique()]
    return {str(word) for words in found for word in words.drop_null().to_pylist()}


def _words_in(column: pa.ChunkedArray, words: set[str]) -> set[str]:
    """Return those of some words that rows of a column have."""
    return words & {str(word) for word in column.unique().to_pylist()} if words else words


def _rows_outside(times: pa.ChunkedArray, context: EpisodeContext) -> int:
    stamps = times.cast(pa.int64()).to_numpy()
    if not len(stamps) or (stamps.min() >= context.view_start_ns and stamps.max() < context.view_end_ns):
        return 0
    return int(((stamps < context.view_start_ns) | (stamps >= context.view_end_ns)).sum())


def _wrong_json(rows: pa.Table, table: str) -> str | None:
    for name in JSON_COLUMNS.get(table, ()):
        wrong = {text: why for text in _words_of(rows[name]) if (why := _why_no_object(text, name))}
        found = _words_in(rows[name], set(wrong))
        if found:
            return wrong[min(found)]
    return None


def _why_no_object(text: str, column: str) -> str | None:
    try:
        parse_object(text, f"column {column}")
    except DataError as error:
        return printable(str(error).partition(";")[0])
    return None


REVISION = 1
"""To be raised when a check becomes stricter, so that files are checked again."""


def episode_files(tables: Iterable[str]) -> list[str]:
    """Return the paths of all files of an episode with these telemetry tables, below its folder."""
    return [CONTEXT_FILE, *map(table_file, (*tables, *TRUTH_TABLES)), JOURNAL_FILE]


def check_episode_files(
    folder: Path,
    records: Mapping[str, FileRecord],
    *,
    episode: str | None = None,
    names: Collection[str] | None = None,
) -> None:
    """Check files of an episode; raise DataError for the first that is not what it must be.

    Checked are: regular file, recorded size, hash and number of rows, schema, nulls, UTF-8, order, times inside the
    view, JSON inside tables, and that context and label are of this episode and do not contradict each other. What
    passes can be read by every method without an error that is the data's.

    Parameters
    ----------
    folder
        `DATASET/episodes/<id>`, or another folder with the same files.
    records
        Path of each file of the episode -> what the version recorded of it.
    episode
        Id of the episode; the name of the folder by default.
    names
        The files to check, of those in `records`, all by default; the context is needed to check any other.

    Raises
    ------
    DataError
        Names the file, what was wanted and what was found.
    """
    check_recorded(folder, {name: record for name, record in records.items() if names is None or name in names})
    check_content(folder, episode or folder.name, names)


def check_recorded(folder: Path, records: Mapping[str, FileRecord]) -> dict[str, FileStamp]:
    """Compare files with what a version recorded of them; return the stamps that they had before they were read."""
    stamps = {}
    for name, record in records.items():
        path = folder / name
        stamps[name] = FileStamp.of(path, folder)
        problem = record_problem(path, record, stamps[name])
        if problem is not None:
            raise DataError(f"{path} {problem}")
    return stamps


def record_problem(path: Path, record: FileRecord, stamp: FileStamp) -> str | None:
    """Say how a file differs from what a version recorded; None when it does not."""
    if stamp.bytes != record.bytes:
        return f"has {stamp.bytes} bytes instead of {record.bytes}; restore it"
    if sha256_of(path) != record.sha256:
        return "has another content than when the version was made (SHA-256 differs); restore it"
    return None


def check_content(folder: Path, episode: str, names: Collection[str] | None = None) -> None:
    """Check what files of an episode say; raise DataError for the first that is not what it must be."""
    for name, problem in content_problems(folder, episode, names):
        raise DataError(f"{folder / name}: {problem}; restore the file")


def content_problems(folder: Path, episode: str, names: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield every file of an episode that is not what it must be, with what is wrong.

    Raises
    ------
    DataError
        A file cannot be read at all.
    """
    context = read_context(folder)
    if context.episode != episode:
        yield CONTEXT_FILE, f"is of episode {context.episode}"
        return
    catalogue_with(context.metric_roles)
    names = episode_files(context.tables) if names is None else names
    for table in context.tables:
        name = table_file(table)
        if name in names:
            for problem in table_problems(folder / name, table, context):
                yield name, problem
    name = table_file("label")
    if name in names:
        for problem in label_problems(context, read_label(folder)):
            yield name, problem
    if table_file("evidence") in names:
        evidence_table(folder)
    if JOURNAL_FILE in names:
        read_journal(folder)


def rows_problem(path: Path, record: FileRecord, schema: pa.Schema) -> str | None:
    """Say how the number of rows of a Parquet file differs from what a version recorded."""
    with open_table(path, path.stem, schema) as file:
        rows = file.metadata.num_rows
    return None if rows == record.rows else f"has {rows} rows instead of {record.rows}; restore it"


def check_dataset_files(
    root: Path, episodes: Mapping[str, Mapping[str, FileRecord]], threads: int, progress: Progress | None = None
) -> None:
    """Check the files of episodes; those that passed and have not changed since are not read again.

    Parameters
    ----------
    root
        Dataset folder.
    episodes
        Episode -> path below its folder -> record of the file.
    threads
        Episodes that are read at once.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    DataError
        Of the first episode that is damaged; see `check_episode_files` for what is checked.
    """
    known = known_files(root)
    steps = StepCounter(len(episodes), progress)
    seen: dict[str, CheckedFile] = {}
    try:
        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(_checked, root, episode, files, known) for episode, files in episodes.items()]
            try:
                for done in as_completed(running):
                    seen |= done.result()
                    steps.add()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        if seen:
            remember(root, seen)


def checked_for(files: Mapping[str, FileRecord]) -> str:
    """Return what stands in the cache for files that were checked together: with this context, and none missing."""
    names = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
    return f"{REVISION}:{files[CONTEXT_FILE].sha256}:{names[:16]}"


def _checked(
    root: Path, episode: str, files: Mapping[str, FileRecord], known: Mapping[str, CheckedFile]
) -> dict[str, CheckedFile]:
    folder = root / EPISODES / episode
    hashed = {name: seen for name, record in files.items() if (seen := _unchanged(root, episode, name, record, known))}
    if len(hashed) == len(files) and CONTEXT_FILE in files:
        purpose = checked_for(files)
        if all(seen.checked_for == purpose for seen in hashed.values()):
            return {}
    missing = sorted({*episode_files(read_context(folder).tables)} - files.keys())
    if missing:
        raise DataError(f"{folder}: the version does not list {missing[0]}; open another version, or collect again")
    stamps = {name: seen.stamp for name, seen in hashed.items()}
    stamps |= check_recorded(folder, {name: record for name, record in files.items() if name not in hashed})
    check_content(folder, episode, tuple(files))
    purpose = checked_for(files)
    return {
        _key(episode, name): CheckedFile(stamp=stamps[name], sha256=record.sha256, checked_for=purpose)
        for name, record in files.items()
    }


def _unchanged(
    root: Path, episode: str, name: str, record: FileRecord, known: Mapping[str, CheckedFile]
) -> CheckedFile | None:
    """Return what is known of a file that has not changed since, and is the one that the version lists."""
    seen = known.get(_key(episode, name))
    if seen is None or seen.sha256 != record.sha256:
        return None
    return seen if seen.stamp == FileStamp.of(root / EPISODES / episode / name, root) else None


def _key(episode: str, name: str) -> str:
    return f"{EPISODES}/{episode}/{name}"
