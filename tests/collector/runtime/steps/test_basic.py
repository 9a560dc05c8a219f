"""Steps that check, call, work and answer."""

from __future__ import annotations

import time

from faultset.collector.runtime.steps.basic import burn_cpu


def test_work_uses_the_cpu_time_it_is_given() -> None:
    before = time.thread_time()
    burn_cpu(3.0)
    assert time.thread_time() - before >= 0.003
