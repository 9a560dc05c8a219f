"""Processes of a server, as the kernel tells them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from faultset.collector.runtime.stores.users import open_file_sizes, process_tree
from faultset.core.errors import PlatformError


def test_a_process_is_found_with_its_children_and_theirs() -> None:
    inner = "import sys; print(1, flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        first, second = process_tree(parent.pid)
        parent.communicate()
    assert first == parent.pid
    assert second != os.getpid()


def test_a_name_with_brackets_hides_no_parent(tmp_path: Path) -> None:
    for pid, name, parent in ((7, "a) b (c", 1), (9, "x", 7), (8, "y", 7), (10, "z", 9)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0\n")
    assert process_tree(7, tmp_path) == [7, 8, 9, 10]


def test_files_that_a_server_opens_and_closes_meanwhile_do_not_disturb_a_limit(tmp_path: Path) -> None:
    """This process stands for the server."""
    appended, over = tmp_path / "data.aof", threading.Event()
    appended.write_bytes(b"x" * 1000)

    def open_and_close() -> None:
        while not over.is_set():
            (tmp_path / "other.aof").write_bytes(b"x")
            with (tmp_path / "other.aof").open("rb"):
                (tmp_path / "other.aof").unlink()

    thread = threading.Thread(target=open_and_close)
    with appended.open("rb"):
        thread.start()
        try:
            for _ in range(300):
                assert max(open_file_sizes(os.getpid(), ".aof")) == 1000
        finally:
            over.set()
            thread.join()


def test_a_server_that_is_gone_is_one_sentence() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as server:
        server.wait()
    with pytest.raises(PlatformError, match="the files of the store's server cannot be read"):
        open_file_sizes(server.pid, ".aof")
