"""Users, processes and limits of original servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from faultset.collector.runtime.stores import original_driver
from faultset.collector.runtime.stores.original_driver import argv_as_user, argv_with_private_memory, process_tree
from faultset.collector.runtime.stores.redis_driver import open_file_sizes
from faultset.core.errors import PlatformError


def test_another_user_than_root_runs_the_server_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert argv_as_user(["/usr/bin/server", "-x"], "postgres") == ["/usr/bin/server", "-x"]


def test_root_starts_it_as_somebody_else_who_ends_with_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    argv = argv_as_user(["/usr/bin/server", "-x"], "nobody")
    assert argv[0] == "/usr/bin/setpriv"
    assert argv[-3:] == ["--", "/usr/bin/server", "-x"]
    assert "--pdeathsig=KILL" in argv
    assert not any(word in ("--reuid=0", "--regid=0") for word in argv)


@pytest.mark.parametrize(
    ("bounds", "kept"), [("000001ffffffffff", "-all,+dac_read_search"), ("00000000a80425fb", "-all")]
)
def test_the_server_keeps_no_right_that_root_in_a_container_does_not_have(
    bounds: str, kept: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nCapBnd:\t{bounds}\nCapAmb:\t0000000000000000\n")
    monkeypatch.setattr(original_driver, "_STATUS_FILE", status)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    argv = argv_as_user(["/usr/bin/server"], "nobody")
    assert {f"--{option}={kept}" for option in ("inh-caps", "ambient-caps", "bounding-set")} < {*argv}


def test_without_setpriv_root_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(PlatformError, match="install util-linux, or run as another user"):
        argv_as_user(["/usr/bin/server"], "postgres")


def test_without_namespaces_the_command_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert argv_with_private_memory(["/usr/bin/server"]) == ["/usr/bin/server"]


@pytest.mark.parametrize(("user_id", "options"), [(0, ["--ipc"]), (1000, ["--user", "--map-current-user", "--ipc"])])
def test_root_asks_for_no_namespace_of_users_in_which_it_could_not_become_another(
    user_id: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user_id)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 0))
    assert argv_with_private_memory(["server"]) == ["/usr/bin/unshare", *options, "--", "server"]


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
