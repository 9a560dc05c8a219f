"""Processes forked by the launcher: what they inherit, and that none outlives its program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from faultset.collector.ipc.launcher import StartProcess, get_launcher
from faultset.core.errors import PlatformError

REPORT = """
import os, signal, sys, time

def report(code):
    open("report", "w").write(f"{os.environ} {os.getsid(0) == os.getpid()} {signal.getsignal(signal.SIGPIPE)!r}")
    print("to the log")
    sys.exit(code)
"""
STARTS = """
import sys, time
from pathlib import Path
from faultset.collector.ipc.launcher import HelperProcess
from faultset.collector.platforms.local.messages import SpawnContainer

def start():
    folder = Path("FOLDER")
    node = HelperProcess("node", "faultset.collector.platforms.local.node:main", [], sockets=folder, logs=folder)
    HelperProcess("relay", "faultset.collector.platforms.local.relay.process:main", [1], sockets=folder, logs=folder)
    container = dict(pod="p", container="main", attempt=0, env={"PATH": "/usr/bin:/bin"}, folder=folder)
    argv = ("sh", "-c", "setsid sleep 300 & sleep 301")
    node.connect().call(SpawnContainer(uid="1", argv=argv, log=folder / "1.log", **container))
    time.sleep(300)
"""
GONE_WITHIN_S = 3.0
POLL_INTERVAL_S = 0.2


def start(function: str, folder: Path, *, code: int = 0, **environment: str) -> StartProcess:
    return StartProcess(
        name="report", function=function, arguments=f"[{code}]", folder=folder, environment=dict(environment)
    )


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules the launcher can import."""
    (tmp_path / "report_module.py").write_text(REPORT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("faultset.collector.ipc.launcher._launcher", None)
    return tmp_path


def test_a_process_has_its_own_folder_environment_session_and_log_and_reports_its_exit_code(importable: Path) -> None:
    launcher = get_launcher()
    process = launcher.start(start("report_module:report", importable, code=3, COLOUR="red"), importable / "log")
    assert process.wait(30.0) == process.poll() == 3
    environment, _, rest = (importable / "report").read_text().rpartition("}")
    assert "'COLOUR': 'red'" in environment
    assert "PATH" not in environment
    assert "True" in rest
    assert "SIG_IGN" in rest
    assert (importable / "log").read_text() == "to the log\n"
    launcher.close()


def test_a_killed_process_has_a_negative_exit_code_and_a_running_one_has_none(tmp_path: Path) -> None:
    request = StartProcess(name="idle", function="time:sleep", arguments="[300]", folder=tmp_path, environment={})
    process = get_launcher().start(request, tmp_path / "log")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    process.kill()
    assert process.wait(30.0) == -signal.SIGKILL
    process.terminate()


def test_a_killed_launcher_is_reported_once_and_replaced(importable: Path) -> None:
    request = start("report_module:report", importable)
    launcher = get_launcher()
    os.kill(launcher.pid, signal.SIGKILL)
    with pytest.raises(PlatformError, match="the launcher of processes ended before it started report"):
        launcher.start(request, importable / "log")
    replaced = get_launcher()
    assert replaced.start(request, importable / "log").wait(30.0) == 0
    launcher.close()
    replaced.close()


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("forked", [True, False], ids=["forked", "started"])
@pytest.mark.parametrize("victim", ["program", "launcher"])
def test_nothing_is_left_three_seconds_after_a_process_is_killed(victim: str, forked: bool, tmp_path: Path) -> None:
    (tmp_path / "starts_module.py").write_text(STARTS.replace("FOLDER", str(tmp_path)))
    module = ["-m", "faultset.collector.ipc.launcher", "starts_module:start"]
    arguments = module if forked else ["-c", "import starts_module; starts_module.start()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    program = subprocess.Popen([sys.executable, *arguments], env=environment)
    family: list[psutil.Process] = []
    try:
        names: list[str] = []
        while names.count("sleep") < 2:
            assert program.poll() is None
            time.sleep(0.05)
            family = psutil.Process(program.pid).children(recursive=True)
            names = [process.name() for process in family]
        assert {"launcher", "node", "relay"} <= set(names)
        os.kill(program.pid if victim == "program" else family[names.index("launcher")].pid, signal.SIGKILL)
        killed = time.monotonic()
        while any(map(runs, family)):
            assert time.monotonic() < killed + GONE_WITHIN_S
            time.sleep(POLL_INTERVAL_S)
    finally:
        program.kill()
        program.wait()
