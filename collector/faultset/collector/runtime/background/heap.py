"""The simulated heap of a service: allocated memory, and metrics with the names of its language's runtime."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

from prometheus_client import GCCollector, Summary

from faultset.collector.runtime.signals import Metrics
from faultset.collector.spec.features.heap import HeapUse, Language

_CHUNK_BYTES = 256 * 1024
"""Size of an allocation, large enough to be returned to the system when freed."""
_PAGE_CONTENT = bytes(range(256)) * 16
_COLD_SHARE = 0.6
_WARM_REQUESTS = 2000


class Heap:
    """Live data and garbage of one process.

    Parameters
    ----------
    language
        Language of the original program, which decides the names of the metrics; None for no metrics.
    """

    def __init__(self, use: HeapUse, metrics: Metrics, language: Language | None):
        self._use, self._metrics = use, metrics
        self._live: list[bytes] = []
        self._garbage: list[bytes] = []
        self._requests = self._due_bytes = 0
        self._pauses: Summary | None = None
        self._grow_to(_COLD_SHARE)
        if language is not None:
            self._export(language)

    @property
    def used_bytes(self) -> int:
        """Bytes that are currently allocated."""
        return _CHUNK_BYTES * (len(self._live) + len(self._garbage))

    def allocate(self) -> None:
        """Allocate the memory of one request; free the garbage once enough has accumulated."""
        self._requests += 1
        if self._requests <= _WARM_REQUESTS:
            self._grow_to(_COLD_SHARE + (1 - _COLD_SHARE) * self._requests / _WARM_REQUESTS)
        self._due_bytes += int(self._use.request_kib * 1024)
        while self._due_bytes >= _CHUNK_BYTES:
            self._due_bytes -= _CHUNK_BYTES
            self._garbage.append(_build_chunk())
        if _CHUNK_BYTES * len(self._garbage) >= self._use.garbage_mib * 2**20:
            self._collect()

    def _grow_to(self, share: float) -> None:
        while _CHUNK_BYTES * (len(self._live) + 1) <= share * self._use.live_mib * 2**20:
            self._live.append(_build_chunk())

    def _collect(self) -> None:
        start = time.perf_counter()
        self._garbage.clear()
        gc.collect(0)
        if self._pauses is not None:
            self._pauses.observe(time.perf_counter() - start)

    def _export(self, language: Language) -> None:
        gauge, registry = self._metrics.gauge, self._metrics.registry
        if language == "go":
            gauge("go_memstats_heap_inuse_bytes", (), "Bytes of the heap in use.").set_function(lambda: self.used_bytes)
            gauge("go_goroutines", (), "Number of tasks.").set_function(_count_tasks)
            gauge("go_threads", (), "Number of threads.").set_function(threading.active_count)
            self._pauses = Summary("go_gc_duration_seconds", "Duration of collections.", registry=registry)
        elif language == "jvm":
            used = gauge("jvm_memory_used_bytes", ("area",), "Bytes of memory in use.")
            used.labels("heap").set_function(lambda: self.used_bytes)
            gauge("jvm_threads_live_threads", (), "Number of threads.").set_function(threading.active_count)
            self._pauses = Summary("jvm_gc_pause_seconds", "Duration of collections.", registry=registry)
        elif language == "nodejs":
            size = gauge("nodejs_heap_size_used_bytes", (), "Bytes of the heap in use.")
            size.set_function(lambda: self.used_bytes)
            self._pauses = Summary("nodejs_gc_duration_seconds", "Duration of collections.", registry=registry)
        else:
            GCCollector(registry=registry)


def _build_chunk() -> bytes:
    """Return a chunk with all pages written, so that it occupies physical memory."""
    return _PAGE_CONTENT * (_CHUNK_BYTES // len(_PAGE_CONTENT))


def _count_tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
