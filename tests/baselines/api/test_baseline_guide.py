"""The steps in the guide to writing a baseline work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from faultset.baselines.api import registry

PAGE = (Path(__file__).parents[3] / "docs" / "developing" / "baseline.md").read_text()


def block(language: str) -> str:
    result = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert result
    return result[1]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Write the guide's two files as an installer would."""
    site = tmp_path / "site"
    (site / "new_lines-0.1.dist-info").mkdir(parents=True)
    (site / "new_lines.py").write_text(block("python"))
    project = tomllib.loads(block("toml"))["project"]
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (site / "new_lines-0.1.dist-info" / "METADATA").write_text(metadata)
    ((group, entries),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (site / "new_lines-0.1.dist-info" / "entry_points.txt").write_text("\n".join(lines))
    return site


def test_it_takes_thirty_lines() -> None:
    lines = [line for language in ("python", "toml") for line in block(language).splitlines() if line.strip()]
    assert len(lines) <= 30


def test_the_method_is_loaded_by_its_entry_point_and_answers(
    installed, example, faulty, monkeypatch, own_registries
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    spec = registry.get_baseline("new-lines")
    assert registry.list_baselines()["new-lines"] is spec
    view = example.view(faulty)
    label = example.label(faulty)
    ranking = spec.build().localize(view, label.inject_start_ns)  # type: ignore[union-attr]
    assert ranking.ordered[0] == label.targets[0]


@pytest.mark.slow
def test_the_commands_score_the_method(installed, tmp_path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    for line in block("sh").splitlines():
        if line.startswith("pip "):
            continue
        command = line.replace("python ", f"{sys.executable} ", 1)
        if line.startswith("evaluate "):
            command = f"{Path(sys.executable).parent / 'evaluate'} {line.removeprefix('evaluate ')}"
        subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=environment, capture_output=True)
    board = json.loads((tmp_path / "results" / "leaderboard.json").read_text())
    assert '"new-lines"' in json.dumps(board)
    assert (tmp_path / "results" / "report.html").is_file()


@pytest.mark.slow
def test_the_contract_holds_for_the_method(installed) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", "from faultset.baselines.testing import check_baseline as c; c('new-lines')"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
