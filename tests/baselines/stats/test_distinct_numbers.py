"""Distinct numbers are those of NumPy, however far apart they lie."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.stats.scaling import distinct


@pytest.mark.parametrize("rows", [0, 1, 2, 500, 20_000])
@pytest.mark.parametrize("width", [1, 7, 3_000, 10**6, 2**62])
def test_values_first_rows_and_codes_are_those_of_numpy(rows: int, width: int) -> None:
    rng = np.random.default_rng(rows)
    numbers = rng.choice(rng.integers(-width, width, 300), rows)
    values, first, code = np.unique(numbers, return_index=True, return_inverse=True)
    found = distinct(numbers)
    np.testing.assert_array_equal(found.values, values)
    np.testing.assert_array_equal(found.first, first)
    np.testing.assert_array_equal(found.code, code)
    assert {part.dtype for part in found} == {np.dtype(np.int64)}
