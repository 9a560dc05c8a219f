"""Text as numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from faultset.datasets.imports.columns import parse_numbers


def test_every_double_that_is_written_out_is_read_back_to_the_last_bit() -> None:
    values = np.random.default_rng(0).lognormal(0, 20, 20_000)
    assert (parse_numbers(pd.Series([repr(value) for value in values.tolist()])) == values).all()


@pytest.mark.parametrize("text", ["", "n/a", "1_0", "0x1F", "1e", ".", "1.2.3", "nan", None, "1,5"])
def test_what_is_no_number_is_missing(text: str | None) -> None:
    assert np.isnan(parse_numbers(pd.Series(["1.5", text]))[1])


@pytest.mark.parametrize("text", ["+3.", "-.5", " 12 ", "1E5", "2e-3", "inf", "-Infinity"])
def test_the_usual_ways_to_write_a_number_are_read(text: str) -> None:
    assert parse_numbers(pd.Series([text])).tolist() == [float(text)]


def test_numbers_are_taken_as_they_are() -> None:
    assert parse_numbers(pd.Series([1, 2])).tolist() == [1.0, 2.0]
