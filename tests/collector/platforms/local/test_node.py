"""The node's process: containers, their output, their limits and their end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from faultset.collector.ipc.launcher import HelperProcess
from faultset.collector.platforms.cluster.context import ContainerExited, LimitContainer, Mount, SignalContainer
from faultset.collector.platforms.local.containers import Housekeeping
from faultset.collector.platforms.local.messages import (
    ContainerSample,
    Execute,
    ExecutionResult,
    JobExited,
    PollExits,
    ReadSamples,
    RunJob,
    ShutDown,
    SpawnContainer,
)
from faultset.collector.platforms.local.resource_usage import PERIOD_S, Quota
from faultset.collector.platforms.local.worker import Volumes
from faultset.core.errors import PlatformError

NODE = "faultset.collector.platforms.local.node:main"
PYTHON = sys.executable
TIMEOUT_S = 20.0

_numbers = itertools.count(1)


class Pods:
    """A real node process, with shorthands for requests."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.process = HelperProcess("node", NODE, [], sockets=folder, logs=folder)
        self.channel = self.process.connect()
        self.ended: list[ContainerExited | JobExited] = []

    def start(self, *argv: str, **limits) -> str:
        uid = f"uid-{next(_numbers)}"
        process = self.channel.call(
            SpawnContainer(
                uid=uid,
                pod=f"pod-{uid}",
                container="main",
                attempt=0,
                argv=argv,
                env={"PATH": os.defpath, "GREETING": "hello"},
                folder=self.folder,
                log=self.log(uid),
                **limits,
            )
        )
        if process.error:
            raise PlatformError(process.error)
        return uid

    def log(self, uid: str) -> Path:
        return self.folder / f"{uid}.log"

    def exec(self, uid: str, *argv: str, timeout_s: float = 10.0) -> ExecutionResult:
        return self.channel.call(Execute(uid=uid, container="main", argv=argv, timeout_s=timeout_s))

    def signal(self, uid: str, name: str) -> bool:
        return self.channel.call(SignalContainer(uid=uid, container="main", signal=name))

    def end_of(self, uid: str) -> ContainerExited:
        return self.until(
            lambda: next((one for one in self.ended if isinstance(one, ContainerExited) and one.uid == uid), None)
        )

    def metric(self, uid: str, name: str) -> float | None:
        values = [sample.value for sample in self.samples(uid) if sample.metric == name]
        return values[0] if values else None

    def samples(self, uid: str) -> list[ContainerSample]:
        return [sample for sample in self.channel.call(ReadSamples()) if sample.pod == f"pod-{uid}"]

    def until(self, look):
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            self.ended += self.channel.call(PollExits(timeout_s=0.05))
            found = look()
            if found:
                return found
        raise AssertionError("it did not happen in time")


@pytest.fixture(scope="module")
def pods(tmp_path_factory):
    made = Pods(tmp_path_factory.mktemp("node"))
    yield made
    made.channel.call(ShutDown())
    made.process.stop()
    made.channel.close()


@pytest.mark.parametrize(
    ("argv", "code"), [(("sh", "-c", "exit 3"), 3), (("true",), 0), (("sh", "-c", "kill -9 $$"), 137)]
)
def test_the_exit_code_is_reported(pods, argv, code):
    report = pods.end_of(pods.start(*argv))
    assert (report.exit_code, report.out_of_memory) == (code, False)


class ReadingTimes:
    """A container that records when it is read."""

    pod = name = "geo"
    read_ns, usage, next_reading_at = 0, (), 0.0

    def __init__(self):
        self.count = 0

    def read_usage(self):
        self.count += 1


def test_containers_are_read_at_irregular_times_and_once_per_interval_at_least():
    container: Any = ReadingTimes()
    housekeeping = Housekeeping({"geo": container})
    housekeeping.run(1.0)
    assert container.count == 0, "nobody has asked for samples"
    housekeeping.readings(ReadSamples(interval_s=2.0))
    start = now = time.monotonic()
    gaps = []
    while container.count < 200:
        pause_s = max(0.0, housekeeping.timeout_s(now))
        now += pause_s
        housekeeping.run(now)
        gaps.append(pause_s)
    assert 1.2 < (now - start) / 200 < 1.8
    assert 0.9 < min(gaps[1:]) < 1.1
    assert 1.9 < max(gaps) <= 2.0


def test_an_unknown_program_is_an_error(pods):
    with pytest.raises(PlatformError, match='exec: "goe": executable file not found in \\$PATH'):
        pods.start("goe")


def test_output_is_stamped_line_by_line(pods):
    before = time.time_ns()
    uid = pods.start("sh", "-c", "echo one; echo two >&2; printf unfinished")
    pods.end_of(uid)
    lines = pods.log(uid).read_text().splitlines()
    assert {tuple(line.split(" ", 3)[1:]) for line in lines} == {
        ("stdout", "F", "one"),
        ("stderr", "F", "two"),
        ("stdout", "F", "unfinished"),
    }
    assert len({line.split(" ")[0] for line in lines}) == 3
    assert before < time.time_ns()


def test_a_crash_of_a_forked_program_leaves_its_traceback(pods, tmp_path):
    log = tmp_path / "job.log"
    pods.channel.call(RunJob(name="job", function="nowhere:main", argv=(), env={}, log=log))
    report = pods.until(lambda: next((one for one in pods.ended if isinstance(one, JobExited)), None))
    assert report.exit_code == 1
    assert "ModuleNotFoundError: No module named 'nowhere'" in log.read_text()


def test_a_container_that_is_killed_takes_all_its_processes_along(pods):
    uid = pods.start("sh", "-c", "sleep 300 & setsid sleep 300 & wait")
    pods.until(lambda: pods.metric(uid, "container_processes") == 3)
    pods.signal(uid, "KILL")
    assert pods.end_of(uid).exit_code == 137
    assert not [process for process in psutil.process_iter() if process.name() == "sleep" and _is_child(process, pods)]


def _is_child(process: psutil.Process, pods: Pods) -> bool:
    try:
        return str(pods.folder) == process.cwd()
    except psutil.Error:
        return False


def test_a_command_runs_inside_the_container(pods):
    uid = pods.start("sleep", "300")
    answer = pods.exec(uid, "sh", "-c", "echo $GREETING; exit 4")
    assert answer == ExecutionResult(code=4, output="hello\n")
    pods.signal(uid, "KILL")


def test_what_a_command_leaves_running_counts_for_the_container(pods):
    uid = pods.start("sleep", "300")
    busy = "import os,time\nif os.fork() == 0:\n    os.setsid()\n    while True: pass"
    assert pods.exec(uid, PYTHON, "-c", busy).code == 0
    pods.until(lambda: (pods.metric(uid, "container_cpu_usage_seconds_total") or 0) > 0.5)
    assert pods.metric(uid, "container_processes") == 2
    pods.signal(uid, "KILL")
    pods.end_of(uid)
    assert pods.metric(uid, "container_processes") is None


def test_a_command_that_takes_too_long_is_ended(pods):
    uid = pods.start("sleep", "300")
    with pytest.raises(PlatformError, match="did not finish before its timeout"):
        pods.exec(uid, "sleep", "300", timeout_s=0.2)
    pods.until(lambda: pods.metric(uid, "container_processes") == 1)
    pods.signal(uid, "KILL")


def test_an_unknown_command_or_container_is_an_error(pods):
    uid = pods.start("sleep", "300")
    with pytest.raises(PlatformError, match='exec: "nothing": executable file not found'):
        pods.exec(uid, "nothing")
    pods.signal(uid, "KILL")
    pods.end_of(uid)
    with pytest.raises(PlatformError, match="container main is not running"):
        pods.exec(uid, "true")


def test_too_much_memory_ends_the_container(pods):
    grow = "import time\nheld = []\nwhile True:\n    held.append(bytearray(4 << 20))\n    time.sleep(0.01)"
    uid = pods.start(PYTHON, "-c", grow, memory_limit=64 << 20)
    report = pods.end_of(uid)
    assert (report.exit_code, report.out_of_memory) == (137, True)
    assert f"of pod pod-{uid}" in report.detail
    assert "limit:65536kB" in report.detail


def test_a_busy_container_is_throttled_to_its_limit(pods):
    uid = pods.start(PYTHON, "-c", "while True: pass", cpu_limit=0.2)
    pods.until(lambda: (pods.metric(uid, "container_cpu_cfs_periods_total") or 0) >= 8)
    rows = {sample.metric: sample.value for sample in pods.samples(uid)}
    assert rows["container_spec_cpu_quota"] == 20_000
    periods = rows["container_cpu_cfs_periods_total"]
    assert rows["container_cpu_cfs_throttled_periods_total"] >= 0.5 * periods
    assert rows["container_cpu_usage_seconds_total"] <= 0.2 * 0.1 * (periods + 3) + 0.1
    assert rows["container_cpu_cfs_throttled_seconds_total"] > 0
    pods.signal(uid, "KILL")
    assert pods.end_of(uid).exit_code == 137


def test_a_limit_is_changed_while_the_container_runs(pods):
    uid = pods.start(PYTHON, "-c", "while True: pass", cpu_limit=0.05)
    pods.until(lambda: (pods.metric(uid, "container_cpu_cfs_throttled_periods_total") or 0) >= 3)
    pods.channel.call(LimitContainer(uid=uid, container="main", cpu_limit=None, memory_limit=None))
    pods.until(lambda: (pods.metric(uid, "container_cpu_usage_seconds_total") or 0) > 0.5)
    pods.signal(uid, "KILL")


def test_samples_have_the_names_of_cadvisor(pods):
    uid = pods.start("sleep", "300", cpu_limit=1.0, memory_limit=256 << 20)
    rows = pods.samples(uid)
    names = {row.metric for row in rows}
    assert {
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_threads",
        "container_file_descriptors",
        "container_start_time_seconds",
        "container_cpu_cfs_periods_total",
        "container_spec_memory_limit_bytes",
    } <= names
    assert all((row.kind == "counter") == row.metric.endswith("_total") for row in rows)
    assert {row.container for row in rows} == {"main"}
    pods.signal(uid, "KILL")


def test_nothing_is_left_when_the_parent_of_the_node_is_killed(tmp_path):
    started = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, os.environ["HERE"])
from faultset.collector.ipc.launcher import HelperProcess
from faultset.collector.platforms.local.messages import Execute, SpawnContainer
folder = Path(os.environ["FOLDER"])
node = HelperProcess("node", "faultset.collector.platforms.local.node:main", [], sockets=folder, logs=folder)
channel = node.connect()
about = dict(pod="p", container="main", attempt=0, env={"PATH": os.defpath}, folder=folder)
channel.call(SpawnContainer(uid="1", argv=("sleep", "300"), log=folder / "1.log", **about))
channel.call(SpawnContainer(uid="2", argv=("sh", "-c", "setsid sleep 301 & wait"), log=folder / "2.log", **about))
channel.call(Execute(uid="1", container="main", argv=("sh", "-c", "setsid sleep 302 & :"), timeout_s=5))
print("ready", flush=True)
time.sleep(60)
"""
    env = {**os.environ, "FOLDER": str(tmp_path), "HERE": str(tmp_path)}
    runner = subprocess.Popen([PYTHON, "-c", started], env=env, stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    assert runner.stdout.readline() == "ready\n"
    deadline = time.monotonic() + TIMEOUT_S
    while len(family := _below(tmp_path)) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(family) >= 5
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    runner.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=TIMEOUT_S)
    assert alive == []
    assert _below(tmp_path) == []


def _below(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_a_process_that_does_not_come_up_says_why(tmp_path):
    process = HelperProcess("broken", "faultset.nowhere:main", [], sockets=tmp_path, logs=tmp_path)
    with pytest.raises(
        PlatformError, match=r"broken ended with code 1; last log lines: .*No module named 'faultset.nowhere'"
    ):
        process.connect()
    process.stop()


def test_a_process_outlives_the_thread_that_started_it(tmp_path):
    started: list[HelperProcess] = []

    def start() -> None:
        started.append(HelperProcess("node", NODE, [], sockets=tmp_path, logs=tmp_path))
        started[0].connect().close()

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    started[0].check()
    started[0].stop()
    assert started[0]._process.returncode == 0


class Busy:
    """A container that uses `cores` whenever it may run, in steps of a millisecond."""

    def __init__(self, limit, *, cores=1.0, machine=4):
        self.quota = Quota(limit=limit, cores=machine)
        self.cores, self.now, self.used = cores, 0.0, 0.0
        self.quota.begin(self.now, self.used)

    def run(self, seconds):
        next_period = self.now + PERIOD_S
        for _ in range(round(seconds * 1000)):
            self.now += 0.001
            if not self.quota.stopped:
                self.used += 0.001 * self.cores
            if self.now >= next_period - 1e-9:
                self.quota.begin(self.now, self.used)
                next_period += PERIOD_S
            else:
                self.quota.check(self.now, self.used)


@pytest.mark.parametrize(("limit", "cores"), [(0.05, 1.0), (0.2, 1.0), (0.5, 1.0), (1.0, 3.0)])
def test_a_busy_container_gets_its_limit_and_no_more(limit, cores):
    busy = Busy(limit, cores=cores)
    busy.run(10)
    assert busy.used / 10 == pytest.approx(limit, rel=0.05)


def test_every_period_of_a_busy_container_is_throttled():
    busy = Busy(0.2)
    busy.run(10)
    assert busy.quota.throttled_periods / busy.quota.periods > 0.95
    assert busy.quota.throttled_so_far(busy.now) == pytest.approx(8.0, rel=0.05)


def test_a_container_below_its_limit_is_never_stopped():
    busy = Busy(0.5, cores=0.3)
    busy.run(5)
    assert busy.used == pytest.approx(1.5, rel=0.01)
    assert (busy.quota.throttled_periods, busy.quota.throttled_s) == (0, 0.0)
    assert busy.quota.periods == 50


def test_a_limit_that_the_machine_cannot_exceed_costs_no_checks():
    quota = Quota(limit=4.0, cores=4)
    for period in range(5):
        quota.begin(period * PERIOD_S, period * 0.4)
    assert quota.next_check_s(2.0) is None
    assert quota.periods == 4


def test_an_idle_container_is_not_watched():
    quota = Quota(limit=0.5, cores=4)
    quota.begin(0.0, 0.0)
    quota.begin(0.1, 0.001)
    assert not quota.is_near_limit
    assert quota.next_check_s(0.001) is None


def test_idle_periods_are_not_counted():
    quota = Quota(limit=0.5, cores=4)
    for period in range(5):
        quota.begin(period * PERIOD_S, 0.02 if period >= 2 else 0.0)
    assert quota.periods == 1


def test_removing_the_limit_continues_a_stopped_container():
    busy = Busy(0.1)
    busy.run(0.35)
    assert busy.quota.stopped
    busy.quota.limit = None
    assert busy.quota.begin(busy.now, busy.used) is False
    assert not busy.quota.stopped


def test_what_was_used_too_much_is_taken_from_the_next_periods():
    quota = Quota(limit=0.1, cores=4)
    quota.begin(0.0, 0.0)
    assert quota.begin(0.1, 0.035) is True
    assert quota.begin(0.2, 0.035) is None
    assert quota.begin(0.3, 0.035) is False


def test_mounts_become_folders_and_variables(tmp_path):
    volumes = Volumes(tmp_path)
    mounts = [
        Mount(path="/etc/faultset", files={"app.yaml": "name: shop"}),
        Mount(path="/data/db", volume="geo-pv"),
        Mount(path="/tmp/scratch", volume="pod/uid-1/scratch"),
    ]
    places = volumes.mount("geo-a", "geo-main", mounts)
    with open(places["FAULTSET_APP"], encoding="utf-8") as file:
        assert file.read() == "name: shop"
    (tmp_path / "volumes" / "geo-pv" / "kept").touch()
    again = volumes.mount("geo-b", "geo-main", mounts)
    assert [entry.name for entry in (tmp_path / "volumes" / "geo-pv").iterdir()] == ["kept"]
    assert again["FAULTSET_DATA"] != places["FAULTSET_DATA"]


def test_what_a_pod_shares_with_nobody_goes_with_it(tmp_path):
    volumes = Volumes(tmp_path)
    mounts = [Mount(path="/data/db", volume="geo-pv"), Mount(path="/cache", volume="pod/uid-1/cache")]
    volumes.mount("geo-a", "geo-main", mounts)
    volumes.forget("geo-a", "uid-1")
    assert not (tmp_path / "pods" / "geo-a").exists()
    assert not (tmp_path / "volumes" / "pod" / "uid-1").exists()
    assert (tmp_path / "volumes" / "geo-pv").is_dir()


def test_files_that_left_a_config_map_leave_the_mount(tmp_path):
    volumes = Volumes(tmp_path)
    volumes.mount("geo-a", "geo-main", [Mount(path="/etc/x", files={"a": "1", "b": "2"})])
    volumes.mount("geo-a", "geo-main", [Mount(path="/etc/x", files={"b": "3"})])
    folder = tmp_path / "pods" / "geo-a" / "geo-main" / "mounts" / "etc" / "x"
    assert {file.name: file.read_text() for file in folder.iterdir()} == {"b": "3"}
