"""A folder has one writer: on this machine, from other containers and machines, and after every kind of end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.core.locks import LOCK, ProcessIdentity, lock_folder

HOLDER = """
import subprocess, sys, time
from pathlib import Path
from faultset.core.locks import lock_folder
with lock_folder(Path(sys.argv[1]), "collect") as lock:
    if len(sys.argv) > 2:
        subprocess.Popen(["sleep", sys.argv[2]], pass_fds=(lock,))
    print("locked", flush=True)
    time.sleep(60)
"""


def holder(root: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(root), *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def leave_lock_of(root: Path, **owner: object) -> None:
    record = ProcessIdentity.current().model_dump() | {"pid": 4194303, "started": 1} | owner
    (root / LOCK).write_text(json.dumps({"owner": record, "activity": "collect"}))


def test_the_second_writer_is_told_who_writes_and_the_folder_is_free_after_a_kill(tmp_path: Path) -> None:
    process = holder(tmp_path)
    with pytest.raises(DataError, match=rf"is being written by collect \(process {process.pid} on .*\); wait"):
        lock_folder(tmp_path, "recover").__enter__()
    process.kill()
    process.communicate()
    with lock_folder(tmp_path, "recover"):
        assert json.loads((tmp_path / LOCK).read_text())["activity"] == "recover"
    assert not list(tmp_path.iterdir())


def test_the_children_of_a_killed_owner_keep_the_lock_until_they_end(tmp_path: Path) -> None:
    process = holder(tmp_path, "1.5")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    said: list[str] = []
    with pytest.raises(DataError, match="is being written"):
        lock_folder(tmp_path, "recover", wait_s=0.2).__enter__()
    began = time.monotonic()
    with lock_folder(tmp_path, "recover", notify=said.append):
        assert time.monotonic() - began > 0.3
    assert len(said) == 1
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize("other", [{"host": "elsewhere"}, {"pid_namespace": "pid:[1]"}, {"boot": "0", "machine": ""}])
def test_the_lock_of_another_machine_or_container_is_only_broken_on_demand(other: dict, tmp_path: Path) -> None:
    leave_lock_of(tmp_path, **other)
    with pytest.raises(
        DataError, match=r"may still be running; wait for it to end, then run 'faultset recover .*--break-lock'"
    ):
        lock_folder(tmp_path, "collect").__enter__()
    assert (tmp_path / LOCK).exists()
    with lock_folder(tmp_path, "collect", take_over=True):
        pass


def test_the_lock_of_a_run_before_the_machine_was_restarted_is_void(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("faultset.core.locks._read", lambda path: f"content of {path}")
    leave_lock_of(tmp_path, boot="an earlier one")
    with lock_folder(tmp_path, "collect"):
        pass


def test_a_living_owner_counts_even_when_the_kernel_has_no_lock_of_it(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "30"])
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    leave_lock_of(tmp_path, pid=process.pid, started=int(fields[19]))
    with pytest.raises(DataError, match="is being written"):
        lock_folder(tmp_path, "collect", take_over=True).__enter__()
    process.kill()
    process.wait()
    with lock_folder(tmp_path, "collect"):
        pass


@pytest.mark.parametrize(
    "content", ["garbage", "[]", '{"owner": 5}', "x" * 10_000, '{"owner": {}, "activity": "\\u001b[2J"}']
)
def test_a_file_that_is_no_lock_is_named_and_left(content: str, tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(content)
    with pytest.raises(DataError, match="is not a lock file of faultset; remove it"):
        lock_folder(tmp_path, "collect").__enter__()
    assert (tmp_path / LOCK).read_text() == content


def test_a_link_a_fifo_or_a_folder_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for number, make in enumerate((lambda path: path.symlink_to(victim), os.mkfifo, os.mkdir)):
        root = tmp_path / str(number)
        root.mkdir()
        make(root / LOCK)
        with pytest.raises(DataError):
            lock_folder(root, "collect").__enter__()
    assert victim.read_text() == "precious"


def test_an_empty_lock_file_of_a_process_killed_at_its_start_is_void(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with lock_folder(tmp_path, "collect"):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be locked for writing"):
        lock_folder(tmp_path / "absent", "collect").__enter__()


def test_the_identity_of_a_process_survives_a_changed_clock(monkeypatch) -> None:
    me = ProcessIdentity.current()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert me.state() == "alive"
    assert me.model_copy(update={"started": me.started + 1}).state() == "dead"
