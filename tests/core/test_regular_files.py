"""Reading files that somebody else has made."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from faultset.core import regular_files
from faultset.core.errors import DataError
from faultset.core.regular_files import read_regular


def test_reading_reserves_what_the_file_has_not_what_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(bytes(4096))
    tracemalloc.start()
    try:
        assert len(read_regular(tmp_path / "small", limit_bytes=64 << 20)) == 4096
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first")

    def grow(descriptor: int) -> os.stat_result:
        state = os.stat(descriptor)
        path.write_bytes(b"first and second")
        return state

    monkeypatch.setattr(regular_files.os, "fstat", grow)
    with pytest.raises(DataError, match="grew while it was read"):
        read_regular(path, limit_bytes=1000)
