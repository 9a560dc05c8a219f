"""Files of recorded rates: what is refused, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.collector.load.workloads.patterns import read_rates
from faultset.core.errors import UsageError


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "must have exactly one column time_s, but its first line is empty"),
        ("time_s,rps\n0,1\n", "must have exactly one column rate_rps, but its first line is time_s, rps"),
        ("time_s,rate_rps\n0,1\n", "at least two rates, but has 1"),
        ("time_s,rate_rps\n0,1\n1,-3\n", "line 3 of"),
        ("time_s,rate_rps\n0,1\n1,inf\n", "must have a number in rate_rps, but has inf"),
        ("time_s,rate_rps\n0,1\n1\n", "must have a number in rate_rps, but has nothing"),
        ("time_s,rate_rps\n0,1\n0,3\n", "must have a later time_s"),
        ("time_s,rate_rps\n1e13,1\n2e13,3\n", "must have a time_s of at most 1e+12 seconds, but has 1e+13"),
        ("time_s,rate_rps\n0,0\n1,0\n", "a rate above zero"),
        ("time_s,rate_rps\n0,1\n1,ten\n", "but has ten"),
        ('time_s,rate_rps\n0,"1\n', "is not valid CSV"),
    ],
)
def test_a_file_of_rates_that_is_none_is_refused_with_the_line(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_rates(file)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="CSV file in UTF-8"):
        read_rates(tmp_path / "bytes")
    with pytest.raises(UsageError):
        read_rates(tmp_path / "missing.csv")
    with pytest.raises(UsageError):
        read_rates(tmp_path)
