"""Masks of what varies in log lines."""

from __future__ import annotations

import pyarrow as pa

from faultset.datasets.log_masks import mask_column, mask_numbers


def test_texts_and_columns_are_masked_alike() -> None:
    lines = ["took 12.5ms", "id 4BF92F35 at 0X1f", "no digits in feed", "0x10", ""]
    column = mask_column(pa.chunked_array([lines])).to_pylist()
    assert column == [mask_numbers(line) for line in lines]
    assert column == ["took <*>.<*>ms", "id <*> at <*>", "no digits in feed", "<*>", ""]
