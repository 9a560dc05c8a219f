"""Python processes of our own import nothing of the folder that they happen to start in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faultset.collector.campaigns.episode_processes import PROGRAM
from faultset.core.processes import import_path, python_command
from faultset.evaluators import evaluate

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
SHADOWED = ("nt", "queue", "random", "selectors", "socket", "tempfile", "uuid")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which files have the names of modules."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_of_the_working_folder_shadows_none(folder: Path) -> None:
    code = f"import {', '.join(SHADOWED[1:])}; print('imported')"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert "shadowed" in plain.stderr
    ours = subprocess.run(python_command("-c", code), capture_output=True, text=True, check=True, cwd=folder)
    assert ours.stdout == "imported\n"


def test_the_process_of_an_episode_reads_its_order_in_such_a_folder(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": import_path()}
    done = subprocess.run(
        python_command(*PROGRAM),
        input="no order\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert "shadowed" not in done.stderr + done.stdout
    assert "order" in done.stderr or "JSON" in done.stderr


def test_methods_are_run_in_such_a_folder(folder: Path) -> None:
    done = evaluate(SAMPLE, baselines=["max-z"], out=folder / "results", workers=1)
    assert {row.status for row in done.rows if row.protocol == "oracle"} == {"ok"}


def test_a_notebook_can_import_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in import_path().split(os.pathsep)
    monkeypatch.syspath_prepend("")
    assert import_path().split(os.pathsep)[0] == str(tmp_path)
