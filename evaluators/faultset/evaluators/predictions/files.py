"""Reading prediction files: Parquet or CSV that somebody else has written, checked before any of it is used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from faultset.core.errors import DataError, UsageError
from faultset.core.printable import printable, quoted
from faultset.core.reading.regular_files import read_regular
from faultset.evaluators.predictions.layouts import NUMBERS, SCORES, TEXTS, TIMES, PredictionLayout, layout_of

if TYPE_CHECKING:
    import pandas as pd

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

MOST_BYTES = 512 << 20
"""Of a file."""
MOST_ROWS = 20_000_000
_MOST_UNPACKED = 2 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_PARQUET = b"PAR1"
_TEXT = pa.dictionary(pa.int32(), pa.string())
_INSTANT = pa.timestamp("ns", tz="UTC")


@dataclass(frozen=True, kw_only=True)
class PredictionFile:
    """A prediction file as it was read: typed columns, no value checked against a dataset yet."""

    name: str
    """Of the method, as tables show it."""
    path: Path
    sha256: str
    """Of the content."""
    layout: PredictionLayout
    frame: pd.DataFrame
    """Texts as categories, times as UTC nanoseconds (-1 where there is none), numbers as doubles."""

    @property
    def sets_threshold_in_training(self) -> bool:
        """Whether the evaluation sets the threshold of its scores, from those of training episodes."""
        return self.layout is SCORES and "threshold" not in self.frame

    @property
    def code(self) -> str:
        """What takes the place of a baseline's code: the identity of the content."""
        return f"predictions {self.sha256[:16]}"

    @property
    def record(self) -> dict[str, object]:
        """What the settings of an evaluation say of the file."""
        return {"file": str(self.path), "sha256": self.sha256, "task": self.layout.task, "rows": len(self.frame)}


def named_file(given: str | Path) -> tuple[str, Path]:
    """Take `FILE` or `NAME=FILE` apart; without a name it is the file's, without its suffix.

    Examples
    --------
    >>> named_file("out/usad.parquet"), named_file("usad-long=out/usad.parquet")
    (('usad', PosixPath('out/usad.parquet')), ('usad-long', PosixPath('out/usad.parquet')))
    """
    name, separator, rest = str(given).partition("=")
    path = Path(given)
    if separator and _NAME.fullmatch(name) and not path.exists():
        if not rest:
            raise UsageError(f"--predictions {given} names no file; write NAME=FILE")
        return name, Path(rest)
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"the name {quoted(path.stem)} of {printable(path)} is none for a method; write NAME=FILE with a name of "
            'letters, digits, "-", "." and "_"'
        )
    return path.stem, path


def read_prediction_file(given: str | Path) -> PredictionFile:
    """Read a prediction file.

    Parameters
    ----------
    given
        `FILE` or `NAME=FILE`; Parquet or CSV.

    Raises
    ------
    UsageError
        The name cannot be that of a method.
    DataError
        The file is missing, too large, damaged, of no known layout, or holds values of a wrong type.
    """
    name, path = named_file(given)
    content = read_regular(path, limit_bytes=MOST_BYTES)
    origin = printable(path)
    table = _parquet(content, origin) if content.startswith(_PARQUET) else _csv(content, origin)
    layout = layout_of(table.column_names, origin)
    if not len(table):
        raise DataError(f"{origin} has no rows; write the answers into it")
    columns = {column: _typed(table[column], column, origin) for column in table.column_names}
    return PredictionFile(
        name=name,
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        layout=layout,
        frame=pa.table(columns).to_pandas(),
    )


def _parquet(content: bytes, origin: str) -> pa.Table:
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as head:
            layout_of(head.schema_arrow.names, origin)
            facts = head.metadata
            unpacked = sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
            if facts.num_rows > MOST_ROWS or unpacked > _MOST_UNPACKED:
                raise DataError(
                    f"{origin} has {facts.num_rows:,} rows of {unpacked:,} bytes, wanted are at most {MOST_ROWS:,} and "
                    f"{_MOST_UNPACKED:,}; keep the episodes that are scored"
                )
            texts = [field.name for field in head.schema_arrow if field.name in TEXTS and _is_text(field.type)]
        # dictionaries: a repeated text takes its space once
        return pq.read_table(pa.BufferReader(content), read_dictionary=texts)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise _damaged(origin, "Parquet", error) from error


def _csv(content: bytes, origin: str) -> pa.Table:
    header, _, _ = content.partition(b"\n")
    if not header.strip():
        raise DataError(f"{origin} is empty; write Parquet or CSV with a header into it")
    # every cell stays text first, so that nothing is guessed from the first lines
    conversion = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys((*TEXTS, *TIMES, *NUMBERS), pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    try:
        table = pyarrow.csv.read_csv(pa.BufferReader(content), convert_options=conversion)
        layout_of(table.column_names, origin)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(origin, "CSV", error) from error
    if len(table) > MOST_ROWS:
        raise DataError(
            f"{origin} has {len(table):,} rows, wanted are at most {MOST_ROWS:,}; keep the episodes that are scored"
        )
    return table


def _typed(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    if name in TEXTS:
        return _texts(column, name, origin)
    return _times(column, name, origin) if name in TIMES else _numbers(column, name, origin)


def _texts(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (_is_text(kind) or pa.types.is_null(kind)):
        raise DataError(f"column {name} of {origin} holds {kind}, wanted is text; write it as text")
    try:
        column.validate(full=True)
        return column.cast(_TEXT).unify_dictionaries()
    except pa.ArrowException as error:
        raise _damaged(origin, "UTF-8 text", error) from error


def _times(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    """Return UTC nanoseconds; -1 stands for an alarm that was not raised."""
    wanted = "wanted are UTC nanoseconds as integers, or times with a time zone"
    kind = column.type
    if name == "time" and column.null_count:
        raise DataError(f"column {name} of {origin} has {column.null_count} empty cells; leave those rows out")
    try:
        if _is_text(kind):
            digits = pc.all(pc.match_substring_regex(column, r"^\d{1,19}$")).as_py() in (True, None)
            column = column.cast(pa.int64()) if digits else column.cast(_INSTANT).cast(pa.int64())
        elif pa.types.is_timestamp(kind) and kind.tz is not None:
            column = column.cast(_INSTANT).cast(pa.int64())
        elif pa.types.is_integer(kind) or pa.types.is_null(kind):
            column = column.cast(pa.int64())
        else:
            raise DataError(f"column {name} of {origin} holds {kind}, {wanted}; convert it")
    except pa.ArrowException as error:
        raise DataError(f"column {name} of {origin} holds something else ({_first_line(error)}), {wanted}") from error
    return pc.fill_null(column, -1)


def _numbers(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    kind = column.type
    if not (_is_text(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise DataError(f"column {name} of {origin} holds {kind}, wanted are numbers; convert it")
    try:
        doubles = column.cast(pa.float64(), safe=not pa.types.is_integer(kind))
    except pa.ArrowException as error:
        raise DataError(f"column {name} of {origin} holds no numbers ({_first_line(error)}); convert it") from error
    values = np.asarray(pc.drop_null(doubles).to_numpy(), dtype=float)
    odd = int((~np.isfinite(values)).sum())
    if odd:
        raise DataError(
            f"column {name} of {origin} has {odd} of {len(values)} values that are NaN or infinite; leave those rows "
            "out, or give them a number"
        )
    return doubles


def check_names(files: Sequence[PredictionFile], taken: Sequence[str]) -> None:
    """Raise UsageError when two methods of an evaluation would have one name."""
    known = set(taken)
    for file in files:
        if file.name in known:
            raise UsageError(
                f'the predictions of {printable(file.path)} have the name "{file.name}", which another method has; '
                "give them another with NAME=FILE"
            )
        known.add(file.name)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _damaged(origin: str, what: str, error: Exception) -> DataError:
    return DataError(f"{origin} cannot be read as {what} ({_first_line(error)}); write it again")


def _first_line(error: Exception) -> str:
    return printable(str(error).partition("\n")[0][:160])
