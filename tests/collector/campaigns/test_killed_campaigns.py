"""The collector killed in every phase: nothing stays behind, and the same command completes the campaign."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from faultset.core.files import read_json_lines
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset

pytestmark = pytest.mark.slow

GONE_WITHIN_S = 10.0
"""The episode's process undoes its changes first."""
POLL_INTERVAL_S = 0.2

OPTIONS = "--faults pod-failure --targets geo --apps hotel --normal 1 -j 1".split()
OPTIONS += "--step 500ms --warmup 4s --healthy 10s --faulty 10s --cooldown 2s".split()
COMMAND = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()"]


def start(root: Path, options: Sequence[str] = OPTIONS) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *options, "--out", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def scratch_of(root: Path) -> Path | None:
    for note in (root / ".running").glob("*.json"):
        return Path(json.loads(note.read_text())["folder"])
    return None


def phases_of(folder: Path) -> list[str]:
    journal = folder / "journal.jsonl"
    records = read_json_lines(journal) if journal.exists() else []
    return [record["args"]["name"] for record in records if record.get("verb") == "phase"]


def wait_for(condition: Callable[[], object], timeout_s: float, pause_s: float = 0.05) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(pause_s)


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if str(folder) in words or process.cwd().startswith(str(folder)):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.parametrize("phase", ["deploy", "warm-up", "baseline", "fault", "recover", "cool-down", "collect"])
def test_a_collector_killed_in_a_phase_leaves_nothing_running(phase: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    collector = start(root)
    try:
        wait_for(lambda: (folder := scratch_of(root)) and phase in phases_of(folder), 90)
        folder = scratch_of(root)
        assert folder is not None
        family = psutil.Process(collector.pid).children(recursive=True)
        os.kill(collector.pid, signal.SIGKILL)
        collector.wait()
        wait_for(lambda: not processes_of(folder) and not any(map(runs, family)), GONE_WITHIN_S, POLL_INTERVAL_S)
        assert (
            not [p for p in (root / "episodes").glob("*") if not p.name.endswith(".incomplete")] or phase == "collect"
        )
    finally:
        if collector.poll() is None:
            os.kill(collector.pid, signal.SIGKILL)
        collector.communicate()


def test_a_campaign_killed_twice_is_completed_by_the_same_command(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for phase in ("baseline", "fault"):
        collector = start(root)
        wait_for(lambda: (folder := scratch_of(root)) and phase in phases_of(folder), 90)  # noqa: B023
        os.kill(collector.pid, signal.SIGKILL)
        collector.communicate()
        time.sleep(2)
    collector = start(root)
    said, _ = collector.communicate(timeout=240)
    assert collector.returncode == 0, said
    dataset = open_dataset(root)
    assert len(dataset.episodes) == 2
    assert not [finding for finding in verify(root) if finding.severity == "error"]
    assert not list((root / ".running").glob("*"))
    assert not list((root / "episodes").glob("*.incomplete"))


def test_ctrl_c_undoes_removes_and_exits_with_130(tmp_path: Path) -> None:
    root = tmp_path / "data"
    collector = start(root)
    wait_for(lambda: (folder := scratch_of(root)) and "fault" in phases_of(folder), 90)
    folder = scratch_of(root)
    assert folder is not None
    os.kill(collector.pid, signal.SIGINT)
    said, _ = collector.communicate(timeout=60)
    assert collector.returncode == 130, said
    assert "Run the same command again" in said
    assert not processes_of(folder)
    assert not folder.exists()
    assert not list((root / "episodes").glob("*")) if (root / "episodes").exists() else True


def test_a_recording_that_was_killed_and_interrupted_is_completed_by_the_same_command(tmp_path: Path) -> None:
    root = tmp_path / "data"
    options = "--recording 4m --incidents 1 --chunk 60s --faults pod-failure --targets geo --apps hotel".split()
    options += "--step 500ms --warmup 4s --healthy 10s --faulty 10s --cooldown 2s".split()
    collector = start(root, options)
    wait_for(lambda: list(root.glob("recordings/*/chunks/0001/chunk.json")), 240, 1.0)
    os.kill(collector.pid, signal.SIGKILL)
    collector.communicate()
    time.sleep(GONE_WITHIN_S)  # its recorder ends with the open chunk
    chunks = len(list(root.glob("recordings/*/chunks/*/chunk.json")))
    files = {path: path.read_bytes() for path in root.glob("recordings/*/chunks/0001/**/*") if path.is_file()}

    collector = start(root, options)
    wait_for(lambda: len(list(root.glob("recordings/*/chunks/*/chunk.json"))) > chunks, 240, 1.0)
    os.kill(collector.pid, signal.SIGINT)
    output, _ = collector.communicate(timeout=120)
    assert collector.returncode == 130, output
    assert "version 1.0.0 contains the recording so far" in output
    (recording,) = open_dataset(root).recordings()
    assert 60 <= recording.duration_s < 240
    assert not [finding for finding in verify(root) if finding.severity == "error"]

    collector = start(root, options)
    output, _ = collector.communicate(timeout=480)
    assert collector.returncode == 0, output
    (recording,) = open_dataset(root).recordings()
    assert recording.duration_s == 240
    assert not [finding for finding in verify(root) if finding.severity == "error"]
    assert all(path.read_bytes() == content for path, content in files.items())
    assert not list((root / ".running").glob("*"))
