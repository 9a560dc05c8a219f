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
