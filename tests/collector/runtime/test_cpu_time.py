"""CPU time that programs use on purpose."""

from __future__ import annotations

import time

import pytest

from faultset.collector.runtime import environment
from faultset.collector.runtime.environment import CpuAccount, use_cpu


def test_work_uses_the_cpu_time_it_is_given() -> None:
    before = time.thread_time()
    use_cpu(3.0)
    assert time.thread_time() - before >= 0.003


def test_what_the_process_has_used_itself_is_part_of_a_request_s_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, worked = [0.0], []

    def use(cpu_ms: float) -> None:
        worked.append(round(cpu_ms, 3))
        clock[0] += max(0.0, cpu_ms) / 1000

    monkeypatch.setattr(environment, "use_cpu", use)
    monkeypatch.setattr(time, "thread_time", lambda: clock[0])
    account = CpuAccount()
    clock[0] += 0.0004  # what reading the first request took
    account.work(1.0)
    clock[0] += 0.0030  # answering it, and reading the next one
    account.work(1.0)
    clock[0] += 0.0002
    account.work(1.0)
    assert worked == [0.6, -2.0, 0.8], "what was used before a request is counted once, and not kept for later ones"
