"""Servers that must not run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from faultset.collector.runtime.stores import users
from faultset.collector.runtime.stores.users import argv_as_user, argv_with_private_memory
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
    monkeypatch.setattr(users, "_STATUS_FILE", status)
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
