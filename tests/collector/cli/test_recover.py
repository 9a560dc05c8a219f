"""The command `recover`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from faultset.collector.cli.recover import recover


def test_recover_may_be_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        done = CliRunner().invoke(recover, ["--out", str(tmp_path)])
        assert done.exit_code == 0
        assert "nothing was left behind" in done.output


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(recover, ["--out", str(tmp_path / "daat")])
    assert done.exit_code == 0
    assert done.stderr == f"There is no folder {tmp_path / 'daat'}; name a dataset with --out\n"
