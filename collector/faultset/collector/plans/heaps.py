"""Memory use of services: heavy-tailed over services, and similar in every episode."""

from __future__ import annotations

import zlib

import numpy as np

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.features import HeapUse, Language

_MEDIAN_MIB: dict[Language | None, float] = {"go": 10.0, "python": 18.0, "nodejs": 30.0, "jvm": 60.0, None: 6.0}
_SIGMA = 0.7
_GARBAGE_SHARES = {"go": 0.5, "python": 0.1, "nodejs": 0.4, "jvm": 0.5, None: 0.1}
_LARGEST_SHARE = 0.35
"""Largest share of the memory limit for live data; the program itself needs about 70 MiB."""
_LARGEST_MIB = 110.0
_USUAL_LIMIT_MIB = 256


def draw_heap(app: str, service: ServiceSpec, seed: int) -> HeapUse:
    """Return the heap of a service: its name, language and memory limit decide the size; the seed varies it by 10 %."""
    rng = np.random.default_rng(zlib.crc32(f"{app}/{service.name}".encode()))
    live_mib = (
        rng.lognormal(np.log(_MEDIAN_MIB[service.language]), _SIGMA) * service.memory_limit_mib / _USUAL_LIMIT_MIB
    )
    live_mib *= np.random.default_rng([seed, zlib.crc32(service.name.encode())]).uniform(0.9, 1.1)
    live_mib = min(live_mib, _LARGEST_MIB, _LARGEST_SHARE * service.memory_limit_mib)
    garbage_mib = max(1.0, _GARBAGE_SHARES[service.language] * live_mib)
    request_kib = float(rng.lognormal(np.log(60.0), 0.5))
    return HeapUse(live_mib=round(live_mib, 2), garbage_mib=round(garbage_mib, 2), request_kib=round(request_kib, 1))


def with_heaps(app: AppSpec, seed: int) -> AppSpec:
    """Return the application with a heap for each service that faultset implements."""
    services = {
        name: service.model_copy(update={"heap": draw_heap(app.name, service, seed)})
        if service.exports_metrics and service.runs_faultset_service
        else service
        for name, service in app.services.items()
    }
    return app.model_copy(update={"services": services})
