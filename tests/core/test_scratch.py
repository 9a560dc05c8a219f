"""Temporary folders of killed evaluations are removed by the next one, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from faultset.core.processes import make_scratch, remove_abandoned, scratch


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_by_the_next(folder: Path):
    code = (
        "import os, signal; from faultset.core.processes import make_scratch; "
        "make_scratch('dask'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    (abandoned,) = folder.iterdir()
    assert abandoned.name.startswith("faultset-dask-")
    mine = make_scratch("dask")
    assert list(folder.iterdir()) == [mine]


def test_what_is_not_proved_to_be_abandoned_stays(folder: Path):
    mine = make_scratch("methods")
    stays = [mine, folder / "faultset-dask-notes", folder / "faultset-dask-1-2-3-x"]
    for path in stays[1:]:
        path.mkdir()
    (folder / "elsewhere").mkdir()
    link = folder / mine.name.replace(f"-{os.getpid()}-", "-999999999-")
    link.symlink_to(folder / "elsewhere")
    remove_abandoned()
    assert all(path.exists() for path in (*stays, link, folder / "elsewhere"))


def test_a_folder_is_removed_when_its_work_ends(folder: Path):
    with scratch("labels") as made:
        assert Path(made).is_dir()
    assert list(folder.iterdir()) == []
