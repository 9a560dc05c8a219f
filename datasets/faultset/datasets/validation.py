"""Check the files, tables and labels of a dataset before anything is computed from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.core.documents import parse_object
from faultset.core.errors import DataError
from faultset.core.output import Progress, StepCounter
from faultset.core.printable import quoted
from faultset.core.regular_files import FileStamp
from faultset.datasets.cache import CheckedFile, read_checked_files, store_checked_files
from faultset.datasets.format.context import CONTEXT_FILE, EpisodeContext, read_context
from faultset.datasets.format.episodes import EPISODES, JOURNAL_FILE, table_file
from faultset.datasets.format.labels import Label, evidence_table, read_journal, read_label
from faultset.datasets.format.schemas import TRUTH_TABLES, time_column
from faultset.datasets.format.storage import open_table, order_of, translate_damage
from faultset.datasets.format.version_files import FileRecord, compute_sha256
from faultset.datasets.metrics.roles import catalogue_with

_INSTANTS = ("inject_start", "inject_done", "recover_start", "recover_done")


def find_label_problems(context: EpisodeContext, label: Label) -> Iterator[str]:
    """Yield the contradictions within the label of an episode and with its context."""
    if label.episode != context.episode:
        yield f"names another episode: context {context.episode}, label {label.episode}"
    for name in ("view_start", "view_end", "reference_end"):
        if getattr(label, f"{name}_ns") != getattr(context, f"{name}_ns"):
            yield f"{name} differs between the label and the context"
    for service in sorted({*label.targets, *_list_cause_services(label)} - set(context.services)):
        yield f"{quoted(service)} is a target or root cause but not among the candidates"
    if label.fault is None:
        expected = "unknown" if label.no_fault_kind == "unlabelled" else "none"
        if label.verdict != expected:
            yield f'an episode without a fault must have the verdict "{expected}", not "{label.verdict}"'
        if label.targets or label.root_causes or label.faults:
            yield "an episode without a fault has targets or root causes"
        return
    if not label.targets:
        yield "the fault has no target"
    yield from _find_fault_problems(label)
    if label.verdict not in ("manifest", "latent", "silent", "unknown"):
        yield f'verdict "{label.verdict}" must be manifest, latent, silent or unknown'
    if label.inject_start_ns is None:
        yield "the fault has no injection time"
        return
    if not context.reference_end_ns <= label.inject_start_ns < context.view_end_ns:
        yield "the injection does not start between the reference window and the end of the view"
    instants = [at_ns for name in _INSTANTS if (at_ns := getattr(label, f"{name}_ns")) is not None]
    if instants != sorted(instants):
        yield f"{', '.join(_INSTANTS)} are not in order"
    for name, at_ns in (("effective", label.effective_ns), ("first_manifest", label.first_manifest_ns)):
        if at_ns is not None and not context.view_start_ns <= at_ns < context.view_end_ns:
            yield f"{name} is outside the view"
    if label.recover_start_ns is not None and label.recover_start_ns < context.view_end_ns:
        yield "the recovery starts before the view ends"


def _find_fault_problems(label: Label) -> Iterator[str]:
    """Yield the contradictions between the individual faults and the label of the episode."""
    if not label.faults:
        return
    if {fault.fault for fault in label.faults} != {*str(label.fault).split(" + ")}:
        yield f"the fault {quoted(str(label.fault))} does not match the names of the individual faults"
    if {fault.target for fault in label.faults} != {*label.targets}:
        yield "the targets do not match the targets of the individual faults"
    for fault in label.faults:
        times_ns = (fault.inject_start_ns, fault.inject_done_ns, fault.effective_ns)
        instants = [at_ns for at_ns in times_ns if at_ns is not None]
        if instants != sorted(instants):
            yield f"times of {quoted(fault.fault)} are not in order"
        bounds = [bound for interval in fault.intervals for bound in (interval.begin_ns, interval.end_ns)]
        if bounds != sorted(bounds) or (bounds and bounds[0] < (fault.inject_start_ns or 0)):
            yield f"the intervals of {quoted(fault.fault)} are not in order, or start before its injection"


def _list_cause_services(label: Label) -> set[str]:
    return {cause.service for cause in label.root_causes if cause.service}


pc: Any = pyarrow.compute
# pyarrow creates its compute functions at import, so type checkers cannot see them

JSON_COLUMNS = {"metrics": ("labels",), "spans": ("attributes",), "objects": ("state", "data")}
"""Table -> its columns of JSON objects."""
_MAX_GROUP_BYTES = 1 << 30
_MAX_TEXT_BYTES = 4 << 30


def table_problems(path: Path, table: str, context: EpisodeContext) -> Iterator[tuple[str, str]]:
    """Yield the problems of a table's rows as (check, description); the check is `rows` or `window`."""
    schema = context.tables[table]
    texts = [field.name for field in schema if _is_text(field.type)]
    outside = unsorted = total = size = 0
    nulls, foreign = set[str](), set[str]()
    wrong_json: str | None = None
    last: pa.Table | None = None
    with open_table(path, table, schema, texts) as file, translate_damage(path):
        for number in range(file.num_row_groups):
            if file.metadata.row_group(number).total_byte_size > _MAX_GROUP_BYTES:
                yield "rows", f"row group {number} is larger than {_MAX_GROUP_BYTES:,} bytes"
                return
            rows = _decode(file.read_row_group(number), schema, texts)
            if not len(rows):
                continue
            total += len(rows)
            size += sum(_measure_text_bytes(rows[name]) for name in texts)
            if size > _MAX_TEXT_BYTES:
                yield "rows", f"its texts take more than {_MAX_TEXT_BYTES:,} bytes"
                return
            nulls |= {field.name for field in schema if not field.nullable and rows[field.name].null_count}
            if nulls:
                continue
            outside += _count_rows_outside(rows[time_column(table)], context)
            foreign |= _find_words(rows["episode"], _list_words(rows["episode"]) - {context.episode})
            unsorted += _is_unsorted(table, rows) or (
                last is not None and _is_unsorted(table, pa.concat_tables([last, rows.slice(0, 1)]))
            )
            last = rows.slice(len(rows) - 1)
            wrong_json = wrong_json or _describe_wrong_json(rows, table)
    if nulls:
        yield "rows", f"column {', '.join(sorted(nulls))} must not have nulls"
    if foreign:
        yield "rows", f"has rows of another episode ({quoted(min(foreign))})"
    if outside:
        yield "window", _describe_outside(outside, total)
    if unsorted:
        yield "rows", f"its rows are not sorted by {'series and time' if table == 'metrics' else 'time'}"
    if wrong_json:
        yield "rows", wrong_json


def written_rows_problems(rows: pa.Table, table: str, context: EpisodeContext) -> Iterator[str]:
    """Yield the problems of rows that `EpisodeWriter.write_table` returned, like `table_problems` for a file."""
    outside = _count_rows_outside(rows[time_column(table)], context)
    if outside:
        yield _describe_outside(outside, len(rows))
    wrong_json = _describe_wrong_json(rows, table)
    if wrong_json:
        yield wrong_json
    texts = [rows[field.name] for field in rows.schema if _is_text(field.type)]
    # counting takes longer than the checks above and is rarely needed
    if sum(map(_bound_text_bytes, texts)) > _MAX_TEXT_BYTES and sum(map(_measure_text_bytes, texts)) > _MAX_TEXT_BYTES:
        yield f"its texts take more than {_MAX_TEXT_BYTES:,} bytes"


def _describe_outside(rows: int, total: int) -> str:
    return f"{rows} of {total} rows are outside the view"


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_dictionary(kind)


def _decode(rows: pa.Table, schema: pa.Schema, texts: list[str]) -> pa.Table:
    """Convert columns to the usual types if another program wrote them, and check that texts are UTF-8."""
    columns = []
    for field in schema:
        column = rows[field.name]
        if field.name in texts:
            expected = pa.dictionary(pa.int32(), pa.string())
            if column.type != expected:
                column = column.cast(expected)
        column.validate(full=True)
        columns.append(column.unify_dictionaries())
    return pa.table(columns, names=schema.names)


def _is_unsorted(table: str, rows: pa.Table) -> bool:
    order = order_of(table, rows.unify_dictionaries())
    return order is not None and bool((order[1:] < order[:-1]).any())


def _bound_text_bytes(column: pa.ChunkedArray) -> int:
    """Return the size in bytes that a text column would have if every row had its longest text."""
    if not pa.types.is_dictionary(column.type):
        return _measure_text_bytes(column)
    return sum(len(chunk) * (pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0) for chunk in column.chunks)


def _measure_text_bytes(column: pa.ChunkedArray) -> int:
    """Return the size in bytes that a text column has without a dictionary."""
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


def _list_words(column: pa.ChunkedArray) -> set[str]:
    """Return the strings of a column, including unused ones of its dictionaries."""
    is_dictionary = pa.types.is_dictionary(column.type)
    arrays = [chunk.dictionary for chunk in column.chunks] if is_dictionary else [column.unique()]
    return {str(word) for words in arrays for word in words.drop_null().to_pylist()}


def _find_words(column: pa.ChunkedArray, words: set[str]) -> set[str]:
    return words & {str(word) for word in column.unique().to_pylist()} if words else words


def _count_rows_outside(times: pa.ChunkedArray, context: EpisodeContext) -> int:
    stamps = times.cast(pa.int64()).to_numpy()
    if not len(stamps) or (stamps.min() >= context.view_start_ns and stamps.max() < context.view_end_ns):
        return 0
    return int(((stamps < context.view_start_ns) | (stamps >= context.view_end_ns)).sum())


def _describe_wrong_json(rows: pa.Table, table: str) -> str | None:
    for name in JSON_COLUMNS.get(table, ()):
        problems = {text: problem for text in _list_words(rows[name]) if (problem := _find_object_problem(text, name))}
        used = _find_words(rows[name], set(problems))
        if used:
            return problems[min(used)]
    return None


def _find_object_problem(text: str, column: str) -> str | None:
    try:
        parse_object(text, f"column {column}")
    except DataError as error:
        return str(error).partition(";")[0]
    return None


REVISION = 1
"""Increment this when a check becomes stricter, so that files are checked again."""


def episode_files(tables: Iterable[str]) -> list[str]:
    """Return the relative paths of all files of an episode with these telemetry tables."""
    return [CONTEXT_FILE, *map(table_file, (*tables, *TRUTH_TABLES)), JOURNAL_FILE]


def check_recorded(folder: Path, records: Mapping[str, FileRecord]) -> dict[str, FileStamp]:
    """Compare files with their records in a version; return the stamps that they had before they were read."""
    stamps = {}
    for name, record in records.items():
        path = folder / name
        stamps[name] = FileStamp.of(path, folder)
        problem = record_problem(path, record, stamps[name])
        if problem is not None:
            raise DataError(f"{path} {problem}; restore it")
    return stamps


def record_problem(path: Path, record: FileRecord, stamp: FileStamp) -> str | None:
    """Return how a file differs from its record in a version; None if it does not."""
    if stamp.bytes != record.bytes:
        return f"has {stamp.bytes} bytes instead of {record.bytes}"
    if compute_sha256(path) != record.sha256:
        return "has changed since the version was created (SHA-256 differs)"
    return None


def check_content(folder: Path, episode: str, names: Collection[str] | None = None) -> None:
    """Check the content of an episode's files, by default of all; raise DataError for the first wrong one.

    The checks cover schema, nulls, UTF-8, order, times inside the view, JSON inside tables, and the consistency of the
    context and the label. Files that pass, and match their records, can be read without errors.
    """
    for name, _, problem in content_problems(folder, episode, names):
        raise DataError(f"{folder / name}: {problem}; restore the file")


def content_problems(
    folder: Path, episode: str, names: Collection[str] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield the problems of an episode's files as (file, check, description); see `Finding.check`."""
    context = read_context(folder)
    if context.episode != episode:
        yield CONTEXT_FILE, "context", f"belongs to episode {context.episode}"
        return
    catalogue_with(context.metric_roles)
    names = episode_files(context.tables) if names is None else names
    for table in context.tables:
        name = table_file(table)
        if name in names:
            for check, problem in table_problems(folder / name, table, context):
                yield name, check, problem
    name = table_file("label")
    if name in names:
        for problem in find_label_problems(context, read_label(folder)):
            yield name, "label", problem
    if table_file("evidence") in names:
        evidence_table(folder)
    if JOURNAL_FILE in names:
        read_journal(folder)


def rows_problem(path: Path, record: FileRecord, schema: pa.Schema) -> str | None:
    """Return how the row count of a Parquet file differs from its record; None if it does not."""
    with open_table(path, path.stem, schema) as file:
        rows = file.metadata.num_rows
    return None if rows == record.rows else f"has {rows} rows instead of {record.rows}"


def check_dataset_files(
    root: Path, episodes: Mapping[str, Mapping[str, FileRecord]], threads: int, progress: Progress | None = None
) -> None:
    """Check the files of episodes with some threads; unchanged files that passed before are not read again."""
    cache = read_checked_files(root)
    steps = StepCounter(len(episodes), progress)
    results: dict[str, CheckedFile] = {}
    try:
        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(_check_episode, root, episode, files, cache) for episode, files in episodes.items()]
            try:
                for future in as_completed(running):
                    results |= future.result()
                    steps.add()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        if results:
            store_checked_files(root, results)


def check_name(files: Mapping[str, FileRecord]) -> str:
    """Return the cache key of the check of a unit's files, which depends on its context and the names of its files."""
    names = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
    return f"{REVISION}:{files[CONTEXT_FILE].sha256}:{names[:16]}"


def _check_episode(
    root: Path, episode: str, files: Mapping[str, FileRecord], cache: Mapping[str, CheckedFile]
) -> dict[str, CheckedFile]:
    return check_unit(
        root,
        f"{EPISODES}/{episode}",
        files,
        cache,
        list_expected=lambda folder: episode_files(read_context(folder).tables),
        check=lambda folder: check_content(folder, episode, tuple(files)),
    )


def check_unit(
    root: Path,
    unit: str,
    files: Mapping[str, FileRecord],
    cache: Mapping[str, CheckedFile],
    *,
    list_expected: Callable[[Path], Iterable[str]],
    check: Callable[[Path], None],
) -> dict[str, CheckedFile]:
    """Check the files of an episode or recording, such as `episodes/<id>`; return the results that are not cached."""
    folder, purpose = root / unit, check_name(files) if CONTEXT_FILE in files else ""
    hashed = unchanged_files(root, unit, files, cache)
    if len(hashed) == len(files) and purpose and all(entry.check_name == purpose for entry in hashed.values()):
        return {}
    missing = sorted({*list_expected(folder)} - files.keys())
    if missing:
        raise DataError(f"{folder}: the version does not list {missing[0]}; open another version, or collect again")
    stamps = {name: entry.stamp for name, entry in hashed.items()}
    stamps |= check_recorded(folder, {name: record for name, record in files.items() if name not in hashed})
    check(folder)
    return {
        f"{unit}/{name}": CheckedFile(stamp=stamps[name], sha256=record.sha256, check_name=purpose)
        for name, record in files.items()
    }


def unchanged_files(
    root: Path, folder: str, files: Mapping[str, FileRecord], cache: Mapping[str, CheckedFile]
) -> dict[str, CheckedFile]:
    """Return the cached results of files that have not changed and that match the version."""
    unchanged = {}
    for name, record in files.items():
        entry = cache.get(f"{folder}/{name}")
        if entry and entry.sha256 == record.sha256 and entry.stamp == FileStamp.of(root / folder / name, root):
            unchanged[name] = entry
    return unchanged
