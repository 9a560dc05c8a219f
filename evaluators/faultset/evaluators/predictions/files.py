"""Read prediction files (Parquet or CSV) and validate them completely before use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from faultset.baselines.api.contract import Task
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import count_text, printable, quoted
from faultset.core.regular_files import read_regular
from faultset.evaluators.results.rows import PROTOCOLS

if TYPE_CHECKING:
    import pandas as pd

    from faultset.evaluators.results.truth import Truth


@dataclass(frozen=True, kw_only=True)
class PredictionLayout:
    """Columns of one kind of prediction file."""

    task: Task
    required: tuple[str, ...]
    optional: tuple[str, ...]
    key: tuple[str, ...]
    """Columns that identify a row."""
    constant: tuple[str, ...] = ()
    """Columns with one value per episode."""

    def fits(self, columns: Sequence[str]) -> bool:
        """Return whether a file has all required columns and no unknown ones."""
        return set(self.required) <= set(columns) <= {*self.required, *self.optional}


SCORES = PredictionLayout(
    task="detection",
    required=("episode", "time", "score"),
    optional=("threshold",),
    key=("episode", "time"),
    constant=("threshold",),
)
ALARMS = PredictionLayout(task="detection", required=("episode", "alarm"), optional=(), key=("episode",))
RANKINGS = PredictionLayout(
    task="localization",
    required=("episode", "service", "score"),
    optional=("protocol",),
    key=("episode", "service"),
    constant=("protocol",),
)
DIAGNOSES = PredictionLayout(
    task="rca", required=("episode", "level", "type"), optional=("protocol",), key=("episode",), constant=("protocol",)
)
LAYOUTS = (SCORES, ALARMS, RANKINGS, DIAGNOSES)

TEXTS = ("episode", "service", "level", "type", "protocol")
TIMES = ("time", "alarm")
NUMBERS = ("score", "threshold")


def find_layout(columns: Sequence[str], origin: str) -> PredictionLayout:
    """Determine the layout of a prediction file from its columns.

    Raises
    ------
    DataError
        A column occurs twice, or the columns match no layout.
    """
    repeated = sorted({name for name in columns if list(columns).count(name) > 1})
    if repeated:
        raise DataError(f"{origin} has the column {quoted(repeated[0])} more than once; keep one of them")
    match = next((layout for layout in LAYOUTS if layout.fits(columns)), None)
    if match is None:
        expected = "; ".join(
            ", ".join([*layout.required, *(f"[{name}]" for name in layout.optional)]) for layout in LAYOUTS
        )
        present = ", ".join(quoted(name) for name in list(columns)[:8])
        raise DataError(f"{origin} has the columns {present}, expected one of: {expected}; write one file per task")
    return match


pc: Any = pyarrow.compute
# pyarrow creates these functions at import, so type checkers cannot see them

MAX_BYTES = 512 << 20
"""Size limit of a file."""
MAX_ROWS = 20_000_000
_MAX_UNPACKED = 2 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_PARQUET = b"PAR1"
_TEXT = pa.dictionary(pa.int32(), pa.string())
_INSTANT = pa.timestamp("ns", tz="UTC")


@dataclass(frozen=True, kw_only=True)
class PredictionFile:
    """A prediction file with typed columns, not yet checked against a dataset."""

    name: str
    """Name of the method in tables."""
    path: Path
    sha256: str
    """Hash of the content."""
    layout: PredictionLayout
    frame: pd.DataFrame
    """Texts as categories, times as UTC nanoseconds (-1 for none), numbers as doubles."""

    @property
    def sets_threshold_in_training(self) -> bool:
        """Return whether the evaluation must set the threshold from scores of training episodes."""
        return self.layout is SCORES and "threshold" not in self.frame

    @property
    def code(self) -> str:
        """Return the identity of the content, used in place of a baseline's code."""
        return f"predictions {self.sha256[:16]}"

    @property
    def record(self) -> dict[str, object]:
        """Return the description of the file in an evaluation's settings."""
        return {"file": str(self.path), "sha256": self.sha256, "task": self.layout.task, "rows": len(self.frame)}


def split_argument(argument: str | Path) -> tuple[str, Path]:
    """Split `FILE` or `NAME=FILE`; the name defaults to the file name without its extension.

    Examples
    --------
    >>> split_argument("out/usad.parquet"), split_argument("usad-long=out/usad.parquet")
    (('usad', PosixPath('out/usad.parquet')), ('usad-long', PosixPath('out/usad.parquet')))
    """
    name, separator, rest = str(argument).partition("=")
    path = Path(argument)
    if separator and _NAME.fullmatch(name) and not path.exists():
        if not rest:
            raise UsageError(f"--predictions {argument} has no file after the name; write NAME=FILE")
        return name, Path(rest)
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"the file name {quoted(path.stem)} of {printable(path)} cannot be a method's name; write NAME=FILE with a "
            'name of letters, digits, "-", "." and "_"'
        )
    return path.stem, path


def read_prediction_file(argument: str | Path) -> PredictionFile:
    """Read a prediction file.

    Parameters
    ----------
    argument
        `FILE` or `NAME=FILE`; Parquet or CSV.

    Raises
    ------
    UsageError
        The name is not valid for a method.
    DataError
        The file is missing, too large or damaged, has an unknown layout, or holds values of a wrong type.
    """
    name, path = split_argument(argument)
    content = read_regular(path, limit_bytes=MAX_BYTES)
    origin = printable(path)
    table = _read_parquet(content, origin) if content.startswith(_PARQUET) else _read_csv(content, origin)
    layout = find_layout(table.column_names, origin)
    if not len(table):
        raise DataError(f"{origin} must contain at least one answer, but has no rows")
    columns = {column: _convert_column(table[column], column, origin) for column in table.column_names}
    return PredictionFile(
        name=name,
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        layout=layout,
        frame=pa.table(columns).to_pandas(),
    )


def _read_parquet(content: bytes, origin: str) -> pa.Table:
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as head:
            find_layout(head.schema_arrow.names, origin)
            metadata = head.metadata
            unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
            if metadata.num_rows > MAX_ROWS or unpacked > _MAX_UNPACKED:
                raise DataError(
                    f"{origin} has {metadata.num_rows:,} rows of {unpacked:,} bytes, but the limits are {MAX_ROWS:,} "
                    f"and {_MAX_UNPACKED:,}; keep only the episodes that are scored"
                )
            texts = [field.name for field in head.schema_arrow if field.name in TEXTS and _is_text(field.type)]
        # dictionaries store a repeated text once
        return pq.read_table(pa.BufferReader(content), read_dictionary=texts)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise _explain_damage(origin, "Parquet", error) from error


def _read_csv(content: bytes, origin: str) -> pa.Table:
    header, _, _ = content.partition(b"\n")
    if not header.strip():
        raise DataError(f"{origin} must contain Parquet, or CSV with a header, but is empty")
    # read every cell as text, so that no type is guessed from the first lines
    conversion = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys((*TEXTS, *TIMES, *NUMBERS), pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    try:
        table = pyarrow.csv.read_csv(pa.BufferReader(content), convert_options=conversion)
        find_layout(table.column_names, origin)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _explain_damage(origin, "CSV", error) from error
    if len(table) > MAX_ROWS:
        raise DataError(
            f"{origin} has {len(table):,} rows, but the limit is {MAX_ROWS:,}; keep only the episodes that are scored"
        )
    return table


def _convert_column(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    if name in TEXTS:
        return _convert_texts(column, name, origin)
    return _convert_times(column, name, origin) if name in TIMES else _convert_numbers(column, name, origin)


def _convert_texts(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (_is_text(kind) or pa.types.is_null(kind)):
        raise DataError(f"column {name} of {origin} must be text, got {kind}; write it as text")
    try:
        column.validate(full=True)
        return column.cast(_TEXT).unify_dictionaries()
    except pa.ArrowException as error:
        raise _explain_damage(origin, "UTF-8 text", error) from error


def _convert_times(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    """Return UTC nanoseconds; -1 means that no alarm was raised."""
    expected = "must be UTC nanoseconds as integers, or times with a time zone"
    kind = column.type
    if name == "time" and column.null_count:
        raise DataError(f"column {name} of {origin} has {column.null_count} empty cells; remove those rows")
    try:
        if _is_text(kind):
            digits = pc.all(pc.match_substring_regex(column, r"^\d{1,19}$")).as_py() in (True, None)
            column = column.cast(pa.int64()) if digits else column.cast(_INSTANT).cast(pa.int64())
        elif pa.types.is_timestamp(kind) and kind.tz is not None:
            column = column.cast(_INSTANT).cast(pa.int64())
        elif pa.types.is_integer(kind) or pa.types.is_null(kind):
            column = column.cast(pa.int64())
        else:
            raise DataError(f"column {name} of {origin} {expected}, got {kind}; convert it")
    except pa.ArrowException as error:
        raise DataError(f"column {name} of {origin} {expected} ({_get_first_line(error)}); convert it") from error
    return pc.fill_null(column, -1)


def _convert_numbers(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    kind = column.type
    if not (_is_text(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise DataError(f"column {name} of {origin} must be numbers, got {kind}; convert it")
    try:
        doubles = column.cast(pa.float64(), safe=not pa.types.is_integer(kind))
    except pa.ArrowException as error:
        raise DataError(f"column {name} of {origin} must be numbers ({_get_first_line(error)}); convert it") from error
    values = np.asarray(pc.drop_null(doubles).to_numpy(), dtype=float)
    invalid = int((~np.isfinite(values)).sum())
    if invalid:
        raise DataError(
            f"column {name} of {origin} must be finite, but {invalid} of {len(values)} values are NaN or infinite; "
            "remove those rows or replace the values"
        )
    return doubles


def check_names(files: Sequence[PredictionFile], used_names: Sequence[str]) -> None:
    """Raise UsageError if two methods of an evaluation would have the same name."""
    names = set(used_names)
    for file in files:
        if file.name in names:
            raise UsageError(
                f'the name "{file.name}" of the predictions in {printable(file.path)} belongs to another method; '
                "choose another with NAME=FILE"
            )
        names.add(file.name)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _explain_damage(origin: str, kind: str, error: Exception) -> DataError:
    return DataError(f"{origin} cannot be read as {kind} ({_get_first_line(error)}); write it again")


def _get_first_line(error: Exception) -> str:
    return printable(str(error).partition("\n")[0][:160])


def check_predictions(file: PredictionFile, truths: Mapping[str, Truth], dataset: str) -> None:
    """Check every row of a file against the episodes of a dataset.

    Parameters
    ----------
    truths
        Episode -> truth; only view and candidates are used.
    dataset
        Name and version, for error messages.

    Raises
    ------
    DataError
        An episode or candidate is unknown, a row occurs twice, a time is outside its view, or a value is missing.
    """
    frame, origin = file.frame, printable(file.path)
    if frame["episode"].isna().any():
        raise DataError(
            f"{origin} has {count_text(int(frame['episode'].isna().sum()), 'row')} without an episode; remove them"
        )
    unknown = sorted(set(frame["episode"].unique()) - set(truths))
    if unknown:
        raise DataError(
            f"{origin} has answers for {count_text(len(unknown), 'episode')} missing from {dataset} (first: "
            f"{quoted(unknown[0])}); predict this version, or choose the predicted one with --version"
        )
    _check_repeats(file, origin)
    if file.layout is SCORES:
        _check_numbers(frame, ("score", "threshold"), origin)
        _check_times(frame, "time", truths, origin)
    elif file.layout is ALARMS:
        _check_times(frame[frame["alarm"] >= 0], "alarm", truths, origin)
    elif file.layout is RANKINGS:
        _check_candidates(frame, truths, origin)
    if "protocol" in frame:
        unknown_protocols = set(frame["protocol"].unique()) - set(PROTOCOLS)
        if unknown_protocols or frame["protocol"].nunique() != 1:
            values = ", ".join(quoted(str(value)) for value in frame["protocol"].unique().tolist()[:3])
            raise DataError(
                f"column protocol of {origin} must have one value, {' or '.join(PROTOCOLS)}, but contains {values}; "
                "write one file per protocol"
            )


def _check_repeats(file: PredictionFile, origin: str) -> None:
    frame, layout = file.frame, file.layout
    repeated = frame.duplicated(list(layout.key))
    if repeated.any():
        row = frame[repeated].iloc[0]
        key = ", ".join(f"{name} {quoted(_plain(row[name]))}" for name in layout.key)
        raise DataError(
            f"{origin} has {int(repeated.sum())} repeated rows (first: {key}); keep one row per "
            f"{' and '.join(layout.key)}"
        )
    for name in layout.constant:
        if name in frame:
            counts = frame.groupby("episode", observed=True)[name].nunique()
            if (counts > 1).any():
                raise DataError(
                    f"column {name} of {origin} must have one value per episode, but has {int(counts.max())} in "
                    f"{quoted(str(counts.idxmax()))}; keep one"
                )


def _check_numbers(frame: pd.DataFrame, names: tuple[str, ...], origin: str) -> None:
    for name in names:
        if name in frame and frame[name].isna().any():
            raise DataError(
                f"column {name} of {origin} has {int(frame[name].isna().sum())} empty cells; remove those rows or fill "
                "in numbers"
            )


def _check_times(frame: pd.DataFrame, name: str, truths: Mapping[str, Truth], origin: str) -> None:
    episodes = frame["episode"].astype(str)
    times = frame[name].to_numpy(dtype=np.int64)
    start = episodes.map({e: truth.view_start_ns for e, truth in truths.items()}).to_numpy(dtype=np.int64)
    end = episodes.map({e: truth.view_end_ns for e, truth in truths.items()}).to_numpy(dtype=np.int64)
    outside = (times < start) | (times > end)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise DataError(
            f"column {name} of {origin} must be within the episode's view, but {int(outside.sum())} of {len(frame)} "
            f"times are not (first: {times[first]} in {quoted(episodes.iloc[first])}, whose view is {start[first]} to "
            f"{end[first]}); write the UTC nanoseconds at which the sample is complete"
        )


def _check_candidates(frame: pd.DataFrame, truths: Mapping[str, Truth], origin: str) -> None:
    is_empty = frame["service"].isna()
    if (frame["score"].isna() != is_empty).any():
        raise DataError(
            f"{origin} has rows with a service but no score, or a score but no service; fill in both, or leave both "
            "empty if the model names no service"
        )
    size = frame.groupby("episode", observed=True)["episode"].transform("size")
    if (is_empty & (size > 1)).any():
        raise DataError(
            f"{origin} has rows with and without a service for the episode "
            f"{quoted(str(frame.loc[is_empty & (size > 1), 'episode'].iloc[0]))}; keep only one kind"
        )
    pairs = frame.loc[~is_empty, ["episode", "service"]].drop_duplicates()
    for episode, service in zip(pairs["episode"], pairs["service"], strict=True):
        if service not in truths[episode].candidates:
            raise DataError(
                f"{origin} ranks {quoted(service)}, which is not a candidate of the episode {quoted(episode)}; use the "
                "services of the episode's context, or remove the row"
            )


def _plain(value: object) -> object:
    return int(value) if isinstance(value, np.integer) else value
