"""Campaign files: every option of `collect`, the command line wins, and a campaign of a dataset becomes one again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.collector.cli.collect import collect

CONFIG = """
faults: [target-port, pod-kill]
apps: hotel
seed: 7
profile: quick
healthy: 50s
normal: 2
"""


def planned(*words: str) -> list[dict]:
    done = CliRunner().invoke(collect, [*words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_campaign_file_stands_for_its_options(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(CONFIG)
    words = "--faults target-port,pod-kill --apps hotel --seed 7 --profile quick --healthy 50s --normal 2".split()
    assert planned("--config", str(path)) == planned(*words)


def test_options_on_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(CONFIG)
    rows = planned("--config", str(path), "--faults", "pod-failure", "--normal", "0")
    assert [row["fault"] for row in rows] == ["pod-failure"]
    assert rows[0]["view_s"] == 95.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fualts: all", 'unknown option "fualts"; did you mean "faults" or "faulty"?'),
        ("- all", "must be a mapping of options of collect, but is a list"),
        ("faults: {a: b}", 'option "faults" in campaign file'),
        ("faults: [", "is not YAML"),
        ("{faults: all, apps: hotel, seed: many}", "'many' is not a valid integer"),
        ("{faults: all, apps: hotel, healthy: 5 parsecs}", "is not a duration"),
    ],
)
def test_a_wrong_campaign_file_gets_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(text)
    done = CliRunner().invoke(collect, ["--config", str(path), "--out", str(tmp_path / "data")])
    assert done.exit_code == 2, done.output
    assert sentence in done.output
    assert not (tmp_path / "data").exists()


def test_a_campaign_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(collect, ["--config", str(tmp_path / "none.yaml")])
    assert done.exit_code == 2
    assert "cannot be read (No such file or directory)" in done.output
