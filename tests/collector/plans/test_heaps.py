"""Memory of services: of very different sizes, similar in every episode, and within limits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.plans.heaps import with_heaps
from faultset.collector.runtime.background import Heap
from faultset.collector.runtime.signals import Metrics
from faultset.collector.spec.features import HeapUse, Language

APPS = ["astronomy", "hotel", "social", "tidb"]


@pytest.mark.parametrize("name", APPS)
def test_services_differ_in_memory_and_all_together_take_less_than_a_gigabyte(name: str) -> None:
    apps = [with_heaps(load_app(name), seed) for seed in range(20)]
    sizes = np.array([[s.heap.live_mib for s in app.services.values() if s.heap] for app in apps])
    assert sizes[0].max() > 3 * sizes[0].min()
    assert (sizes.max(axis=0) < 1.25 * sizes.min(axis=0)).all()
    for app in apps:
        heaps = [(s.heap, s.replicas) for s in app.services.values() if s.heap]
        assert sum((heap.live_mib + heap.garbage_mib) * replicas for heap, replicas in heaps) < 1000
        for service in app.services.values():
            if service.heap:
                assert 70 + service.heap.live_mib + service.heap.garbage_mib < 0.9 * service.memory_limit_mib


METRICS: dict[Language, str] = {
    "go": "go_memstats_heap_inuse_bytes",
    "jvm": 'jvm_memory_used_bytes{area="heap"}',
    "nodejs": "nodejs_heap_size_used_bytes",
}


@pytest.mark.parametrize("language", METRICS)
def test_a_heap_grows_with_requests_and_is_collected_and_metrics_show_it(language: Language) -> None:
    metrics = Metrics()
    heap = Heap(HeapUse(live_mib=40, garbage_mib=8, request_kib=512), metrics, language)
    used = [heap.used_bytes / 2**20]
    for _ in range(2100):
        heap.allocate()
        used.append(heap.used_bytes / 2**20)
    assert 20 < used[0] < 28
    assert 39 <= min(used[-50:]) < max(used[-50:]) <= 49
    values = dict(line.rsplit(" ", 1) for line in metrics.exposition().decode().splitlines() if line[0] != "#")
    assert float(values[METRICS[language]]) == heap.used_bytes


def test_a_heap_takes_real_memory() -> None:
    code = """
from faultset.collector.runtime.background import Heap
from faultset.collector.runtime.signals import Metrics
from faultset.collector.spec.features import HeapUse

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

before = resident_mib()
heap = Heap(HeapUse(live_mib=100, garbage_mib=8, request_kib=0), Metrics(), None)
print(resident_mib() - before)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 55 < float(run.stdout) < 70
