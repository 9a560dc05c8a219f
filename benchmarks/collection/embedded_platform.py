"""Speed and memory of the embedded platform: start, latency in parallel runs, cost of telemetry.

    python benchmarks/collection/embedded_platform.py [--seconds 30] [--parallel 5]
    python benchmarks/collection/embedded_platform.py --apps hotel,social,astronomy,tidb

Prints one JSON object: all figures of HotelReservation, or with --apps the cost of each application alone. Comparisons
are ratios of alternating runs on the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from faultset.collector.apps import load_app
from faultset.collector.episodes.health import requests_between, unready_workloads
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.platform import LocalPlatform
from faultset.core.times import SECOND_NS
from faultset.evaluators.execution.runners.process_trees import descendants, proportional_bytes


def pss_mib() -> float:
    """Return the proportional memory of this process and its descendants."""
    return proportional_bytes([os.getpid(), *descendants(os.getpid())]) / 2**20


def healthy_run(seconds: float, seed: int, telemetry: bool = True, name: str = "hotel") -> dict[str, Any]:
    """Run an application without a fault at 20 requests/s and measure it."""
    app = load_app(name)
    with tempfile.TemporaryDirectory(prefix="faultset-bench-") as folder:
        path = Path(folder)
        platform = LocalPlatform(app, path, journal=Journal(path / "journal.jsonl"), seed=seed, telemetry=telemetry)
        began = time.perf_counter()
        try:
            platform.deploy()
            while unready_workloads(platform):
                time.sleep(0.01)
            ready_s = time.perf_counter() - began
            platform.start_load(seed=seed, rate_rps=20, mix=app.default_mix)
            time.sleep(8)
            start_ns = time.time_ns()
            time.sleep(seconds)
            memory = pss_mib()
            requests = requests_between(platform, start_ns, start_ns + int((seconds - 2) * SECOND_NS))
            host = platform.measure_host_load()
        finally:
            began = time.perf_counter()
            platform.teardown()
            teardown_s = time.perf_counter() - began
    latency = requests["latency_ns"].dropna().to_numpy(dtype=float) / 1e6
    return {
        "ready_s": round(ready_s, 2),
        "teardown_s": round(teardown_s, 2),
        "requests": len(requests),
        "errors": int((requests["outcome"] != "ok").sum()),
        "p50_ms": round(float(np.quantile(latency, 0.5)), 1),
        "p99_ms": round(float(np.quantile(latency, 0.99)), 1),
        "pss_mib": round(memory),
        "host": host.as_record(),
    }


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--parallel", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--apps", help="Applications to measure alone, separated by commas.")
    options = parser.parse_args()
    if options.apps:
        print(
            json.dumps({name: healthy_run(options.seconds, 1, name=name) for name in options.apps.split(",")}, indent=1)
        )
        return
    alone = healthy_run(options.seconds, 1)
    ratios = []
    for pair in range(options.pairs):
        with_telemetry = healthy_run(options.seconds, pair)["p99_ms"]
        ratios.append(with_telemetry / healthy_run(options.seconds, pair, telemetry=False)["p99_ms"])
    with ProcessPoolExecutor(options.parallel) as pool:
        parallel_runs = list(pool.map(healthy_run, [options.seconds] * options.parallel, range(options.parallel)))
    result = {
        "alone": alone,
        "p99_with_telemetry_over_without": [round(r, 2) for r in ratios],
        "p99_with_telemetry_over_without_median": round(statistics.median(ratios), 2),
        f"{options.parallel}_in_parallel": parallel_runs,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
