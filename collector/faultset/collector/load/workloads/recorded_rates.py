"""Rates of requests over time, read from a CSV file."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import UsageError
from faultset.core.printable import printable
from faultset.core.reading.regular_files import read_regular

COLUMNS = ("time_s", "rate_rps")
MOST_ROWS = 20_000
LARGEST_RATE_RPS = 10_000.0
_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class RecordedRates:
    """Rates of a file.

    Attributes
    ----------
    mean_rps
        Mean over time.
    shares
        From how many seconds on the rate is how many times the mean. The last entry lasts as long as the one before.
    """

    mean_rps: float
    shares: tuple[tuple[float, float], ...]


def read_rates(path: Path) -> RecordedRates:
    """Read a CSV file with the columns `time_s` and `rate_rps`; times rise, and the first one counts as zero.

    Raises
    ------
    UsageError
        The file cannot be read, or a line is not what it should be; the sentence names the line.
    """
    rows = _rows(path)
    ends = [*(time for time, _ in rows[1:]), 2 * rows[-1][0] - rows[-2][0]]
    lengths = [end - time for (time, _), end in zip(rows, ends, strict=True)]
    mean = sum(rate * length for (_, rate), length in zip(rows, lengths, strict=True)) / sum(lengths)
    if mean <= 0:
        raise UsageError(f"{printable(path)} must have a rate above zero, but all of them are zero")
    begin = rows[0][0]
    shares = [(round(time - begin, 6), round(rate / mean, 9)) for time, rate in rows]
    shares.append((round(ends[-1] - begin, 6), shares[0][1]))
    return RecordedRates(mean_rps=mean, shares=tuple(shares))


def _rows(path: Path) -> list[tuple[float, float]]:
    try:
        text = read_regular(path, limit_bytes=_LIMIT_BYTES, error=UsageError).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{printable(path)} must be a CSV file in UTF-8, but is none") from None
    name, lines = printable(path), csv.reader(io.StringIO(text), strict=True)
    rows: list[tuple[float, float]] = []
    try:
        header = [cell.strip() for cell in next(lines, [])]
        if missing := [column for column in COLUMNS if header.count(column) != 1]:
            found = printable(", ".join(header)[:80]) or "nothing"
            raise UsageError(f"{name} must begin with a line that names the columns {missing[0]} once; it has {found}")
        places = [header.index(column) for column in COLUMNS]
        for cells in lines:
            if any(cell.strip() for cell in cells):
                rows.append(_row(cells, places, rows, f"line {lines.line_num} of {name}"))
            if len(rows) > MOST_ROWS:
                raise UsageError(f"{name} must have at most {MOST_ROWS} rates; take means over longer times")
    except csv.Error as error:
        raise UsageError(f"line {lines.line_num} of {name} is no CSV ({printable(str(error))})") from None
    if len(rows) < 2:
        raise UsageError(f"{name} must have at least two rates, but has {len(rows)}")
    return rows


def _row(cells: list[str], places: list[int], before: list[tuple[float, float]], where: str) -> tuple[float, float]:
    numbers: list[float] = []
    for column, place in zip(COLUMNS, places, strict=True):
        text = cells[place].strip() if place < len(cells) else ""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{where} must have a number in {column}, but has {printable(text[:40]) or 'nothing'}")
        numbers.append(number)
    time_s, rate_rps = numbers
    if not 0 <= rate_rps <= LARGEST_RATE_RPS:
        raise UsageError(f"{where} must have a rate from 0 to {LARGEST_RATE_RPS:g}, but has {rate_rps:g}")
    if abs(time_s) > 1e12 or (before and not time_s >= before[-1][0] + 1e-3):
        raise UsageError(f"{where} must have a later time_s than the line before, but has {time_s:g}")
    return time_s, rate_rps
