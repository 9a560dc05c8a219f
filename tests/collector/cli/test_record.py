"""`faultset record` checks its options before it asks a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.collector.cli.record import record

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
WINDOW = ["--from", "2026-01-01T10:00:00Z", "--to", "2026-01-01T11:00:00Z"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*WINDOW, "--jaeger", "http://a", "--tempo", "http://b"], "--jaeger and --tempo cannot be combined"),
        (["--from", "yesterday", "--to", "2026-01-01T11:00:00Z"], "--from must be a time such as"),
        (["--from", "2026-01-01T11:00:00Z", "--to", "2026-01-01T10:00:00Z"], "--to must be after --from"),
        (["--from", "2026-01-01T11:00:00Z", "--to", "2999-01-01T10:00:00Z"], "in the future"),
        (WINDOW, "nothing to record from"),
        ([*WINDOW, "--loki", "loki:3100"], "--loki must be a URL"),
        ([*WINDOW, "--loki", "http://127.0.0.1:1", "--roles", "cpus"], "cpus"),
        ([*WINDOW, "--loki", "http://127.0.0.1:1", "--at", "soon"], "--at must be a time such as"),
    ],
)
def test_impossible_options_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(record, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_never_overwritten() -> None:
    result = CliRunner().invoke(record, [*WINDOW, "--loki", "http://127.0.0.1:1", "--out", str(SAMPLE)])
    assert result.exit_code == 2
    assert "already holds a dataset" in result.output
