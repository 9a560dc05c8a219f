"""How short of CPU the machine is, measured and turned into deadlines."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from faultset.collector.episodes import host_pressure
from faultset.collector.episodes.host_pressure import BUSY_SHARE, LONGEST_FACTOR, CpuPressure, CpuUse


class Machine:
    """A clock, how long processes have waited, and how long processors were idle."""

    def __init__(self) -> None:
        self.now = self.waited = self.idle = 0.0
        self.pressure = CpuPressure(lambda: self.waited, lambda: self.idle, clock=lambda: self.now)

    def run(self, seconds: float, share: float, free_cores: float = 1.0) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.waited += share
            self.idle += free_cores
            self.pressure.sample()

    def waiting_share(self, window_s: float) -> float:
        use = self.pressure.use(window_s)
        assert use
        return use.waiting_share


def test_nothing_is_known_before_something_was_measured() -> None:
    machine = Machine()
    assert machine.pressure.use() is None
    assert not machine.pressure.is_busy()
    assert machine.pressure.scaled_s(60.0) == 60.0


def test_the_share_is_that_of_the_last_seconds() -> None:
    machine = Machine()
    machine.run(60, 1.0)
    machine.run(10, 0.2)
    assert machine.waiting_share(10.0) == pytest.approx(0.2)
    assert machine.waiting_share(70.0) == pytest.approx((60 + 2) / 70)
    assert not machine.pressure.is_busy()
    assert machine.pressure.is_busy(window_s=70.0)


def test_a_machine_whose_cores_are_all_used_is_busy_although_nothing_waits() -> None:
    machine = Machine()
    machine.run(10, 0.0, free_cores=0.0)
    assert machine.pressure.is_busy()
    machine.run(10, 0.0, free_cores=0.3)
    assert not machine.pressure.is_busy()
    use = machine.pressure.use()
    assert use
    assert not use.has_room()
    machine.run(10, 0.0, free_cores=1.5)
    use = machine.pressure.use()
    assert use
    assert use.has_room()
    assert use.free_cores == pytest.approx(1.5)


def test_deadlines_grow_with_the_pressure_up_to_a_limit() -> None:
    machine = Machine()
    machine.run(60, 0.5)
    assert machine.pressure.scaled_s(60.0) == pytest.approx(120.0)
    machine.run(120, 1.0)
    assert machine.pressure.scaled_s(60.0) == LONGEST_FACTOR * 60.0


def test_old_measurements_are_forgotten() -> None:
    machine = Machine()
    machine.run(3600, 0.0)
    assert len(machine.pressure._samples) < 200


def test_a_group_is_not_busy_while_others_use_the_idle_cores() -> None:
    assert CpuUse(waiting_share=0.2, free_cores=0.0).is_busy
    assert not CpuUse(waiting_share=0.2, free_cores=0.0, is_of_group=True).is_busy
    assert CpuUse(waiting_share=0.2, free_cores=0.0, is_of_group=True).has_room()
    assert CpuUse(waiting_share=0.9, free_cores=0.0, is_of_group=True).is_busy
    assert not CpuUse(waiting_share=0.9, free_cores=0.0, is_of_group=True).has_room()


def test_the_pressure_is_that_of_the_control_group_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "mount/jobs/7"
    group.mkdir(parents=True)
    (group / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=5000000\n")
    (tmp_path / "groups").write_text("4:memory:/other\n0::/jobs/7\n")
    mount = SimpleNamespace(mountpoint=str(tmp_path / "mount"), fstype="cgroup2")
    monkeypatch.setattr(host_pressure.psutil, "disk_partitions", lambda **_: [mount])
    monkeypatch.setattr(host_pressure, "_GROUP_FILE", tmp_path / "groups")
    pressure = CpuPressure()
    time.sleep(0.6)
    use = pressure.use()
    assert use is not None
    assert use.is_of_group
    assert use.waiting_share == 0.0
    (tmp_path / "groups").write_text("0::/\n")
    assert host_pressure._pressure_file() != group / "cpu.pressure"


@pytest.mark.parametrize("has_information", [True, False])
def test_this_machine_is_measured_with_and_without_the_kernels_information(
    has_information: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_information and host_pressure._pressure_file() is None:
        pytest.skip("the kernel has no pressure stall information")
    if not has_information:
        monkeypatch.setattr(host_pressure, "_pressure_file", lambda: None)
    pressure = CpuPressure()
    time.sleep(0.6)
    use = pressure.use()
    assert use is not None
    assert 0.0 <= use.waiting_share <= 1.0
    assert 0.0 <= use.free_cores <= 1.2 * (os.cpu_count() or 1)
    assert 0.5 < BUSY_SHARE < 1.0
