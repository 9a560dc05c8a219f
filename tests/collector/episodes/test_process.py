"""The process of an episode: what it keeps of a failure, and what never leaves the working folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.episodes import process
from faultset.collector.episodes.working_folders import WorkingFolder


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkingFolder:
    """A working folder with logs, a Secret and a volume."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = WorkingFolder.claim(tmp_path / "data", "e1", "local")
    for name in (
        "logs/geo.log",
        "pods/geo-1/geo/mounts/var/run/secrets/faultset/administrator",
        "volumes/geo/users.acl",
    ):
        (made.folder / name).parent.mkdir(parents=True)
        (made.folder / name).write_text("x")
    return made


def test_logs_of_a_failed_episode_are_kept_and_its_passwords_are_not(working: WorkingFolder, tmp_path: Path) -> None:
    kept = process._keep_for_diagnosis(working, tmp_path / "data", "no answer")
    assert kept is not None
    names = sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file())
    assert names == ["logs/geo.log", "reason.txt"]
    assert (kept / "reason.txt").read_text() == "no answer\n"


def test_nothing_is_kept_where_there_is_no_room_for_it(
    working: WorkingFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copytree", full)
    assert process._keep_for_diagnosis(working, tmp_path / "data", "no answer") is None
    assert not list((tmp_path / "data").glob(".failed/*"))


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not share by session")
def test_what_answers_clients_goes_before_what_watches_it() -> None:
    code = """
import os, subprocess, sys
from faultset.collector.episodes.process import _prioritise_services
from faultset.core.processes import session_nice, set_session_nice
child = "from faultset.core.processes import name_process; name_process('NAME'); print(flush=True); input()"
set_session_nice(10)
def start(name):
    command = [sys.executable, "-c", child.replace("NAME", name)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = subprocess.Popen(command, start_new_session=True, **pipes)
    started.stdout.readline()
    set_session_nice(10, started.pid)
    return started
children = [start(name) for name in ("relay", "telemetry")]
_prioritise_services()
print(*(session_nice(pid) for pid in (os.getpid(), *(child.pid for child in children))))
for child in children:
    child.communicate(b"x")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, start_new_session=True
    )
    coordinator, relay, telemetry = map(int, ended.stdout.split())
    assert (coordinator, relay, telemetry) == (process.MONITORING_NICENESS, 0, process.MONITORING_NICENESS)
    assert process.MONITORING_NICENESS > 0
