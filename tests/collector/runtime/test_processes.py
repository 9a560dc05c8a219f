"""Background processes, and the programs of a service."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stage import Stage


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_work_runs_in_the_background_until_stopped(stage: Stage) -> None:
    pid_file = stage.folder / "pids"
    starter = stage.start(
        "geo", argv=["faultset-work", "cpu", "--workers", "2", "--seconds", "60", "--pid-file", str(pid_file)]
    )
    stage.wait(lambda: not starter.alive, "the starter returns")
    assert starter.exit_code == 0
    pids = [int(line.split()[0]) for line in pid_file.read_text().splitlines()]
    assert len(pids) == 2
    stage.wait(lambda: all(cpu_s(pid) > 0.05 for pid in pids), "both are busy")
    stopper = stage.start("geo", argv=["faultset-work", "stop", "--pid-file", str(pid_file)])
    stage.wait(lambda: not stopper.alive, "the stopper returns")
    assert stopper.exit_code == 0
    stage.wait(lambda: not any(runs(pid) for pid in pids), "both have ended")
    assert not pid_file.exists()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_work_ends_by_itself(stage: Stage) -> None:
    pid_file = stage.folder / "pids"
    stage.start("geo", argv=["faultset-work", "cpu", "--seconds", "0.2", "--pid-file", str(pid_file)])
    stage.wait(pid_file.exists, "the pid file")
    stage.wait(lambda: pid_file.read_text().strip(), "the pid")
    pid = int(pid_file.read_text().split()[0])
    stage.wait(lambda: not runs(pid), "it has ended")


def test_stopping_what_does_not_run_is_fine(stage: Stage) -> None:
    (stage.folder / "pids").write_text("1 12345\n")
    stopper = stage.start("geo", argv=["faultset-work", "stop", "--pid-file", str(stage.folder / "pids")])
    stage.wait(lambda: not stopper.alive, "the stopper returns")
    assert stopper.exit_code == 0


def test_importing_the_programs_starts_nothing() -> None:
    code = (
        "import threading, os\n"
        "from faultset.collector.runtime import processes, service\n"
        "from faultset.collector.runtime.stores import server\n"
        "from faultset.collector.load import __main__\n"
        "import asyncio, sys\n"
        "assert threading.active_count() == 1\n"
        "assert asyncio._get_running_loop() is None\n"
        "assert 'grpc' not in sys.modules\n"
        "assert len(os.listdir('/proc/self/fd')) <= 4\n"
    )
    folders = [str(Path(__file__).parents[3] / part) for part in ("collector", "datasets")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(folders)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
