"""Memory of services: of very different sizes, similar in every episode, and within limits."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.plans.heaps import with_heaps
from faultset.collector.runtime.background.heap import Heap
from faultset.collector.runtime.signals import Metrics
from faultset.collector.spec.features.heap import HeapUse, Language

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


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


@pytest.mark.parametrize(
    ("language", "metric"),
    [
        ("go", "go_memstats_heap_inuse_bytes"),
        ("jvm", "jvm_memory_used_bytes"),
        ("nodejs", "nodejs_heap_size_used_bytes"),
    ],
)
def test_a_heap_takes_real_memory_that_metrics_show_and_collections_free(language: Language, metric: str) -> None:
    before, metrics = resident_mib(), Metrics()
    heap = Heap(HeapUse(live_mib=40, garbage_mib=8, request_kib=512), metrics, language)
    assert 20 < resident_mib() - before < 35
    used = []
    for _ in range(2100):
        heap.allocate()
        used.append(heap.used_bytes / 2**20)
    assert resident_mib() - before > 38
    assert 39 <= min(used[-50:]) < max(used[-50:]) <= 49
    line = next(line for line in metrics.exposition().decode().splitlines() if line.startswith(metric))
    assert float(line.rpartition(" ")[2]) == heap.used_bytes
