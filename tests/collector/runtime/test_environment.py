"""The environment of a service."""

from __future__ import annotations

import time

import pytest

from faultset.collector.runtime import environment as environment_module
from faultset.collector.runtime.environment import CpuAccount, environment, use_cpu


def test_the_environment_is_read_when_asked() -> None:
    given = environment({"POD_IP": "127.1.2.3", "POD_NAME": "geo-1", "FAULTSET_BUILD": "1.1.0"})
    assert (given.address, given.pod, given.build, given.spec) == (
        "127.1.2.3",
        "geo-1",
        "1.1.0",
        "/etc/faultset/app.yaml",
    )
    assert environment({}).listen == "127.0.0.1"


def test_hosts_and_limits_of_calls_are_set_by_variables() -> None:
    given = environment({"PRODUCT_CATALOG_HOST": "catalog-old", "RPC_TIMEOUT_MS": "6.5", "RPC_RETRIES": "3"})
    assert (given.find_host_override("product-catalog"), given.find_host_override("cart")) == ("catalog-old", None)
    assert (given.call_timeout_s, given.call_retries) == (0.0065, 3)


def test_a_limit_that_is_no_number_limits_nothing() -> None:
    given = environment({"RPC_TIMEOUT_MS": "soon", "RPC_RETRIES": "-1"})
    assert (given.call_timeout_s, given.call_retries) == (None, 0)


def test_work_uses_the_cpu_time_it_is_given() -> None:
    before = time.thread_time()
    use_cpu(3.0)
    assert time.thread_time() - before >= 0.003


def test_what_the_process_has_used_itself_is_part_of_a_request_s_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, worked = [0.0], []

    def use(cpu_ms: float) -> None:
        worked.append(round(cpu_ms, 3))
        clock[0] += max(0.0, cpu_ms) / 1000

    monkeypatch.setattr(environment_module, "use_cpu", use)
    monkeypatch.setattr(time, "thread_time", lambda: clock[0])
    account = CpuAccount()
    clock[0] += 0.0004  # what reading the first request took
    account.work(1.0)
    clock[0] += 0.0030  # answering it, and reading the next one
    account.work(1.0)
    clock[0] += 0.0002
    account.work(1.0)
    assert worked == [0.6, -2.0, 0.8], "what was used before a request is counted once, and not kept for later ones"
