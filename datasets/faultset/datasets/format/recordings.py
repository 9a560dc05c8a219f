"""Write a recording: hours of telemetry in chunks that appear atomically; stretches of time in recordings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import pyarrow as pa
from pydantic import ConfigDict, Field

from faultset.core.documents import LIMIT_BYTES, STRICT, check_type, parse_object
from faultset.core.errors import DataError
from faultset.core.files import replace_text
from faultset.core.regular_files import read_regular
from faultset.datasets.format.context import (
    CONTEXT_FILE,
    RecordingContext,
    check_schema_version,
    read_recording_context,
)
from faultset.datasets.format.episodes import JOURNAL_FILE, TRUTH, TableFolderWriter, table_file
from faultset.datasets.format.schemas import (
    CHUNK_TRUTH_TABLES,
    LONGEST_VIEW_NS,
    SCHEMA_VERSION,
    EpisodeId,
    TimeNs,
    is_episode_id,
    time_column,
)
from faultset.datasets.format.storage import translate_disk_full

Interval = tuple[int, int]


class Stretch(NamedTuple):
    """A half-open interval of a recording, UTC nanoseconds."""

    recording: EpisodeId
    start_ns: TimeNs
    end_ns: TimeNs

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        return self.start_ns < end_ns and start_ns < self.end_ns

    def within(self, start_ns: int, end_ns: int) -> Stretch | None:
        """Return the part inside an interval; None if there is none."""
        start_ns, end_ns = max(start_ns, self.start_ns), min(end_ns, self.end_ns)
        return Stretch(self.recording, start_ns, end_ns) if start_ns < end_ns else None


def remove_intervals(stretches: Iterable[Stretch], removed: Iterable[Interval]) -> list[Stretch]:
    """Return the parts of stretches outside all of the intervals."""
    removed = list(removed)
    return [
        Stretch(stretch.recording, *interval)
        for stretch in stretches
        for interval in subtract_intervals([(stretch.start_ns, stretch.end_ns)], removed)
    ]


def subtract_intervals(intervals: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """Return the parts of half-open intervals outside all of the removed ones.

    >>> subtract_intervals([(0, 10)], [(2, 3), (8, 20)])
    [(0, 2), (3, 8)]
    """
    rest = list(intervals)
    for start, end in removed:
        rest = [
            piece
            for a, b in rest
            for piece in ([(a, min(b, start)), (max(a, end), b)] if a < end and start < b else [(a, b)])
            if piece[0] < piece[1]
        ]
    return rest


def find_time_at(share: float, stretches: Sequence[Stretch]) -> int:
    """Return the time by which a share of the telemetry in consecutive stretches had been recorded."""
    rest_ns = round(share * sum(stretch.end_ns - stretch.start_ns for stretch in stretches))
    for stretch in stretches:
        if rest_ns < stretch.end_ns - stretch.start_ns:
            return stretch.start_ns + rest_ns
        rest_ns -= stretch.end_ns - stretch.start_ns
    return stretches[-1].end_ns


def skip_intervals(time_ns: int, intervals: Iterable[Interval]) -> int:
    """Return the first time from `time_ns` on that is outside all of the intervals, which must be sorted."""
    for start_ns, end_ns in intervals:
        if start_ns <= time_ns < end_ns:
            time_ns = end_ns
    return time_ns


RECORDINGS = "recordings"
CHUNKS = "chunks"
CHUNK_FILE = "chunk.json"
MAX_CHUNKS = 9999
_CHUNK_NAME = re.compile(r"\d{4}")
TRUTH_JSON_FIELDS: Mapping[str, tuple[str, ...]] = {"incidents": ("parameters",), "decoys": ("parameters",)}
"""Fields of a chunk's truth tables that hold canonical JSON."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A part of a recording, usually ten minutes to an hour and at most 31 days; the content of its `chunk.json`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    recording: EpisodeId
    """Id of the recording."""
    number: Annotated[int, Field(ge=1, le=MAX_CHUNKS)]
    """Position in the recording, from 1."""
    segment: Annotated[int, Field(ge=1, le=MAX_CHUNKS)]
    """Number of the segment: consecutive chunks of one deployment, without a gap."""
    start_ns: TimeNs
    """Start of the telemetry."""
    end_ns: TimeNs
    """End of the telemetry, exclusive."""

    def __post_init__(self) -> None:
        if not 0 < self.end_ns - self.start_ns <= LONGEST_VIEW_NS:
            raise DataError(
                f"chunk {self.number} of recording {self.recording} must end within 31 days after its start, but "
                f"lasts {(self.end_ns - self.start_ns) / 1e9:g} s"
            )

    @property
    def folder(self) -> str:
        """Path of its folder, relative to the recording's folder."""
        return chunk_folder(self.number)

    def to_json(self) -> str:
        return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(self), indent=2, sort_keys=True) + "\n"


def chunk_folder(number: int) -> str:
    """Return the path of a chunk's folder, relative to the recording's folder."""
    return f"{CHUNKS}/{number:04d}"


def chunk_files(tables: Iterable[str]) -> list[str]:
    """Return the paths of all files of a chunk with these telemetry tables, relative to its folder."""
    return [CHUNK_FILE, *map(table_file, (*tables, *CHUNK_TRUTH_TABLES)), JOURNAL_FILE]


def listed_chunks(files: Iterable[str]) -> list[int]:
    """Return the numbers of the chunks that contain these files; paths are relative to the recording's folder."""
    return sorted({int(name.split("/")[1]) for name in files if name.startswith(f"{CHUNKS}/")})


def read_chunk(path: Path) -> Chunk:
    """Read the `chunk.json` of a chunk's folder; raise DataError if it is missing or damaged."""
    file = path / CHUNK_FILE
    content = parse_object(read_regular(file, limit_bytes=LIMIT_BYTES), str(file))
    check_schema_version(content.pop("schema_version", None), str(file))
    chunk = check_type(content, Chunk, str(file))
    if path.name != f"{chunk.number:04d}":
        raise DataError(f"{file} must describe chunk {path.name}, but describes {chunk.number}; restore the file")
    return chunk


def chunk_numbers(recording_path: Path) -> list[int]:
    """Return the numbers of the complete chunks of a recording; other folders are ignored."""
    folder = recording_path / CHUNKS
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(
        int(entry.name)
        for entry in folder.iterdir()
        if _CHUNK_NAME.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
    )


def read_chunks(recording_path: Path, numbers: Iterable[int] | None = None) -> tuple[Chunk, ...]:
    """Read the complete chunks of a recording in time order."""
    numbers = chunk_numbers(recording_path) if numbers is None else sorted(numbers)
    chunks = tuple(read_chunk(recording_path / chunk_folder(number)) for number in numbers)
    for chunk in chunks:
        if chunk.recording != recording_path.name:
            raise DataError(
                f"{recording_path / chunk.folder} belongs to recording {chunk.recording}; restore the folder"
            )
    for before, after in pairwise(chunks):
        problem = _sequence_problem(before, after)
        if problem:
            raise DataError(f"{recording_path / after.folder} {problem}; restore the folder")
    return chunks


def segments_of(chunks: Iterable[Chunk]) -> tuple[Stretch, ...]:
    """Join chunks, sorted by time, into one stretch per segment."""
    bounds: dict[int, Stretch] = {}
    for chunk in chunks:
        first = bounds.get(chunk.segment)
        start_ns = chunk.start_ns if first is None else first.start_ns
        bounds[chunk.segment] = Stretch(chunk.recording, start_ns, chunk.end_ns)
    return tuple(bounds.values())


def _sequence_problem(before: Chunk, after: Chunk) -> str | None:
    """Return why a chunk cannot follow another; None if it can."""
    if after.start_ns < before.end_ns:
        return f"starts {(before.end_ns - after.start_ns) / 1e9:g} s before chunk {before.number} ends"
    if after.segment == before.segment and after.start_ns > before.end_ns:
        return f"starts {(after.start_ns - before.end_ns) / 1e9:g} s after chunk {before.number}, in the same segment"
    if not before.segment <= after.segment <= before.segment + 1:
        return f"is in segment {after.segment}, after segment {before.segment}"
    return None


def complete_recordings(root: Path | str) -> list[str]:
    """Return the ids of all recordings in a dataset folder that have a complete chunk."""
    folder = Path(root) / RECORDINGS
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if is_episode_id(entry.name) and not entry.is_symlink() and chunk_numbers(entry)
    )


Batches = Iterable[pa.RecordBatch | pa.Table]
Rows = Sequence[Mapping[str, Any]]


class RecordingWriter:
    """Write a recording into `DATASET/recordings/<id>`, chunk by chunk.

    A chunk is written to a folder that ends in `.incomplete`, flushed and renamed. If the process dies, at most the
    open chunk is lost, and another writer with the same context continues the recording with a new segment.

    Parameters
    ----------
    root
        Dataset folder; created if missing.
    context
        Facts about the system.
    smallest
        Write the smallest files, which takes longer.

    Raises
    ------
    DataError
        The recording already exists with a different context.

    Examples
    --------
    >>> writer = RecordingWriter(root, context)  # doctest: +SKIP
    >>> writer.append(start_ns, end_ns, {"metrics": [table]}, truth={"incidents": [row]})  # doctest: +SKIP
    """

    def __init__(self, root: Path | str, context: RecordingContext, *, smallest: bool = False) -> None:
        self.context, self._smallest = context, smallest
        self.folder = Path(root) / RECORDINGS / context.recording
        self._create()
        chunks = read_chunks(self.folder)
        self._last: Chunk | None = chunks[-1] if chunks else None
        self._starts_segment = True

    def _create(self) -> None:
        path = self.folder / CONTEXT_FILE
        with translate_disk_full(self.folder):
            (self.folder / CHUNKS).mkdir(parents=True, exist_ok=True)
            if not path.exists():
                replace_text(path, self.context.to_json())
        if read_recording_context(self.folder).to_json() != self.context.to_json():
            raise DataError(
                f"recording {self.context.recording} already exists in {self.folder.parent} with a different context; "
                "continue it with the same settings, or choose another id"
            )

    @property
    def end_ns(self) -> int | None:
        """End of the last chunk; None if there are no chunks yet."""
        return None if self._last is None else self._last.end_ns

    def new_segment(self) -> None:
        """Start a new segment with the next chunk, after the application was deployed again."""
        self._starts_segment = True

    def append(
        self,
        start_ns: int,
        end_ns: int,
        tables: Mapping[str, Batches],
        *,
        truth: Mapping[str, Rows] | None = None,
        journal: str = "",
    ) -> Path:
        """Write the next chunk and return its folder.

        Parameters
        ----------
        start_ns, end_ns
            Half-open window of its telemetry, UTC nanoseconds. A chunk that does not start at the end of the last one
            starts a new segment.
        tables
            Telemetry table -> batches without the `episode` column, in any order; they are read one table at a time.
            Missing tables are written empty.
        truth
            Rows of incidents, evidence, decoys, load and voids (`CHUNK_TRUTH_TABLES`), with times as integers; missing
            fields become null. An incident may be in several chunks; its last row counts.
        journal
            Lines added to the journal since the last chunk.

        Raises
        ------
        DataError
            The chunk starts before the end of the last one, or a row is outside the window.
        """
        chunk = self._build_next(start_ns, end_ns)
        truth = truth or {}
        if unknown := sorted(truth.keys() - CHUNK_TRUTH_TABLES.keys()):
            raise DataError(f'"{unknown[0]}" is not a truth table; choose one of {", ".join(CHUNK_TRUTH_TABLES)}')
        with _ChunkWriter(self.folder, chunk, self.context, smallest=self._smallest) as writer:
            for table, batches in tables.items():
                writer.write_table(table, batches)
            writer.write_text(CHUNK_FILE, chunk.to_json())
            writer.write_truth(truth, journal)
            folder = writer.commit()
        self._last, self._starts_segment = chunk, False
        return folder

    def _build_next(self, start_ns: int, end_ns: int) -> Chunk:
        last = self._last
        if last is None:
            number = segment = 1
        else:
            number = last.number + 1
            segment = last.segment + (self._starts_segment or start_ns != last.end_ns)
        chunk = Chunk(
            recording=self.context.recording, number=number, segment=segment, start_ns=start_ns, end_ns=end_ns
        )
        if last is not None and (problem := _sequence_problem(last, chunk)):
            raise DataError(
                f"chunk {number} of recording {chunk.recording} must follow the last one, but {problem}; append chunks "
                "in time order"
            )
        return chunk


class _ChunkWriter(TableFolderWriter):
    """Write one chunk."""

    required = (CHUNK_FILE, TRUTH)

    def __init__(self, recording: Path, chunk: Chunk, context: RecordingContext, *, smallest: bool) -> None:
        self._chunk = chunk
        super().__init__(
            recording / CHUNKS,
            f"{chunk.number:04d}",
            unit=chunk.recording,
            schemas=context.tables,
            smallest=smallest,
        )

    @property
    def title(self) -> str:
        return f"chunk {self._chunk.number} of recording {self._unit}"

    def write_table(self, table: str, batches: Batches) -> pa.Table:
        """See `TableFolderWriter`; rows outside the chunk are refused."""
        rows = super().write_table(table, batches)
        times = rows[time_column(table)].cast(pa.int64()).to_numpy()
        outside = int(((times < self._chunk.start_ns) | (times >= self._chunk.end_ns)).sum())
        if outside:
            raise DataError(f"{outside} of {len(rows)} rows of {table} are outside {self.title}; leave them out")
        return rows

    def write_truth(self, truth: Mapping[str, Rows], journal: str) -> None:
        for name, schema in CHUNK_TRUTH_TABLES.items():
            self.write_truth_table(name, schema, truth.get(name, ()), TRUTH_JSON_FIELDS.get(name, ()))
        self.write_text(JOURNAL_FILE, journal)
        self._written.add(TRUTH)
