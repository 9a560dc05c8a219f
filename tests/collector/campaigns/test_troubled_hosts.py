"""Campaigns on a host that takes something away: nothing is lost, half or left behind, and one sentence says why."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from tests.collector.campaigns.test_killed_campaigns import (
    COMMAND,
    OPTIONS,
    phases_of,
    processes_of,
    scratch_of,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("working_folders")]

INSTANTS = 40
CAMPAIGN_S = 40.0
"""How long a campaign of one short episode takes about, from the start of the program on."""
ONE_EPISODE = [*COMMAND, *OPTIONS, "--normal", "0"]


def start(root: Path) -> subprocess.Popen[str]:
    """Start a campaign of one episode."""
    command = [*ONE_EPISODE, "--out", str(root)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


@pytest.fixture
def working_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which this test's episodes make their working folders; nothing may be left in it."""
    # sockets lie in it, whose paths have to be short
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.glob("faultset-*")) == []
    shutil.rmtree(folder)


def errors_in(root: Path) -> list[str]:
    """Return what `verify` calls an error."""
    return [str(finding) for finding in verify(root) if finding.severity == "error"]


def unfinished(root: Path) -> list[Path]:
    """Return notes and episodes that are not whole."""
    return [*(root / ".running").glob("*"), *(root / "episodes").glob("*.incomplete")]


def in_phase(root: Path, phase: str) -> Path:
    """Wait until an episode is in a phase and return its working folder."""
    wait_for(lambda: (folder := scratch_of(root)) and phase in phases_of(folder), 120)
    folder = scratch_of(root)
    assert folder is not None
    return folder


def descendant(collector: subprocess.Popen[str], name: str) -> psutil.Process:
    """Return a process of the running episode by its name."""
    processes = psutil.Process(collector.pid).children(recursive=True)
    return next(process for process in processes if process.name() == name)


def ends_well(collector: subprocess.Popen[str], root: Path, folder: Path) -> str:
    """Wait for a campaign that has lost an episode to the host, and check that it has come to a good end."""
    said, _ = collector.communicate(timeout=300)
    assert collector.returncode == 0, said
    assert len(open_dataset(root).episodes) == 1
    assert errors_in(root) == []
    assert unfinished(root) == []
    assert not folder.exists()
    assert not processes_of(folder)
    return said


@pytest.mark.parametrize("name", ["node", "relay", "telemetry", "load", "episode"])
def test_a_stopped_process_spoils_its_episode_which_is_repeated(name: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    collector = start(root)
    try:
        folder = in_phase(root, "baseline")
        process = psutil.Process(collector.pid).children()[0] if name == "episode" else descendant(collector, name)
        process.suspend()
        said = ends_well(collector, root, folder)
    finally:
        if collector.poll() is None:
            collector.kill()
            collector.communicate()
    assert "was stopped by a signal, so its data is invalid" in said, said


@pytest.mark.parametrize("name", ["node", "relay", "telemetry", "load", "episode"])
def test_a_killed_process_ends_its_episode_within_seconds_and_it_is_repeated(name: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    collector = start(root)
    try:
        folder = in_phase(root, "baseline")
        process = psutil.Process(collector.pid).children()[0] if name == "episode" else descendant(collector, name)
        process.kill()
        wait_for(lambda: not folder.exists(), 15)
        said = ends_well(collector, root, folder)
    finally:
        if collector.poll() is None:
            collector.kill()
            collector.communicate()
    assert "attempt 1 is void" in said, said


def test_a_collector_that_is_paused_and_continued_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "data"
    collector = start(root)
    folder = in_phase(root, "baseline")
    os.kill(collector.pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(collector.pid, signal.SIGCONT)
    ends_well(collector, root, folder)


def test_a_store_that_somebody_kills_is_started_again_and_seen_in_the_dataset(tmp_path: Path) -> None:
    root = tmp_path / "data"
    collector = start(root)
    folder = in_phase(root, "baseline")
    descendant(collector, "redis-server").kill()
    ends_well(collector, root, folder)


def test_too_few_file_descriptors_are_said_in_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [*ONE_EPISODE, "--out", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48)),
    )
    assert done.returncode in (3, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert "Too many open files" in done.stderr or "file descriptors" in done.stderr
    assert unfinished(tmp_path / "data") == []


def test_a_host_with_one_loopback_address_is_told_so(tmp_path: Path) -> None:
    only_one = 'ip link set lo up; ip addr del 127.0.0.1/8 dev lo; ip addr add 127.0.0.1/32 dev lo; exec "$@"'
    inside = ["unshare", "--net", "sh", "-c", only_one, "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*inside, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("a network namespace cannot be made here")
    done = subprocess.run(
        [*inside, *ONE_EPISODE, "--out", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 4, done.stderr
    assert "addresses 127.0.0.0/8 is needed" in done.stderr
    assert not (tmp_path / "data" / "episodes").exists()


def test_a_collector_killed_at_forty_instants_leaves_whole_episodes_or_none(tmp_path: Path) -> None:
    draw = random.Random(20261123)
    root = tmp_path / "data"
    for _ in range(INSTANTS):
        collector = start(root)
        with contextlib.suppress(subprocess.TimeoutExpired):
            collector.communicate(timeout=draw.uniform(0.0, CAMPAIGN_S))
        os.kill(collector.pid, signal.SIGKILL)
        collector.communicate()
        folder = scratch_of(root)
        if folder is not None:
            wait_for(lambda folder=folder: not processes_of(folder), 10)
        if (root / "versions").exists() and list((root / "versions").glob("*.json")):
            assert errors_in(root) == []
            shutil.rmtree(root)
    said, _ = start(root).communicate(timeout=300)
    assert len(open_dataset(root).episodes) == 1, said
    assert errors_in(root) == []
    assert unfinished(root) == []
