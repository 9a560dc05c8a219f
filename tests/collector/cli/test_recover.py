"""The command `recover`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.collector.cli.recover import recover


def test_recover_may_be_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        done = CliRunner().invoke(recover, ["--out", str(tmp_path)])
        assert done.exit_code == 0
        assert "nothing to remove" in done.output


def test_a_named_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(recover, ["--out", str(tmp_path / "daat")])
    assert done.exit_code == 3
    assert f"folder {tmp_path / 'daat'} does not exist; give a dataset with --out" in done.stderr


def test_a_default_folder_that_is_not_there_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(recover, []).exit_code == 0
