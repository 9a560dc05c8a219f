from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.agents.imports import import_runs
from faultset.agents.trajectory import read_trajectory
from faultset.core.console import root
from tests.agents.conftest import session_document

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\x1b[2J&lt;'


@pytest.fixture
def trajectory(tmp_path: Path) -> Path:
    document = session_document(
        f'{HOSTILE}\n```\nexec_shell("ls {HOSTILE}")\n```',
        "```\nsubmit('Yes')\n```",
        replies=(HOSTILE * 300, "1"),
        agent=HOSTILE,
    )
    (tmp_path / "one.json").write_text(json.dumps(document))
    done = import_runs("aiopslab", tmp_path / "one.json", tmp_path / "runs")
    return tmp_path / "runs" / done.runs[0].trajectory_path


def test_show_shortens_long_texts_and_says_by_how_much(trajectory: Path) -> None:
    result = CliRunner().invoke(root, ["agents", "show", str(trajectory), "--length", "50"])
    assert result.exit_code == 0, result.output
    assert "characters not shown]" in result.output
    assert "\x1b" not in result.output
    assert "status: ok" in result.output


def test_show_prints_the_run_and_its_whole_trajectory_as_json(trajectory: Path) -> None:
    result = CliRunner().invoke(root, ["agents", "show", str(trajectory), "--json"])
    shown = json.loads(result.output)
    assert shown["run"]["run"] == trajectory.stem
    assert shown["trajectory"] == json.loads(read_trajectory(trajectory).to_json())


def test_show_as_json_of_a_trajectory_elsewhere_has_no_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(root, ["agents", "show", str(_about("e1", tmp_path)), "--json"])
    assert json.loads(result.output)["run"] is None


def test_show_of_a_file_that_is_no_trajectory_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"schema_version": "ATIF-v2.0"}')
    result = CliRunner().invoke(root, ["agents", "show", str(file)])
    assert result.exit_code == 3
    assert "ATIF-v1.0 or later" in result.output


def _about(episode: str, folder: Path) -> Path:
    step = {"step_id": 1, "source": "agent", "message": "geo"}
    document = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": [step]}
    document["extra"] = {"faultset": {"episode": episode, "answer": {"services": ["geo"]}}}
    (folder / "own.json").write_text(json.dumps(document))
    return folder / "own.json"
