"""Processes of a server, as the kernel tells them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from faultset.collector.runtime.administration.server_processes import process_tree


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
