"""Rate at which a machine collects labelled telemetry, and its use of processor time.

    python benchmarks/collection_rate.py [--app hotel] [--parts 30]
    python benchmarks/collection_rate.py --episodes 8 [--profile standard]

The first form runs an application without a fault at 20 requests and one sample per second, with all traces, and prints
the share of a core that each part of the embedded platform uses. The second form collects several plain episodes at
once, and prints minutes of telemetry per minute of wall time, the latencies of healthy clients, late scrapes, and the
reasons for repeated episodes, whose time is lost. Both print one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from faultset.collector import collect
from faultset.collector.apps import load_app
from faultset.collector.episodes.health import requests_between, unready_workloads
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.platform import LocalPlatform
from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset

PARTS = ("node", "relay", "telemetry", "load")
"""Names of the platform's processes; all other descendants are pods."""
RATE_RPS = 20
LATE_S = 1.5
"""A sample is late if it comes more than this after the previous one; the interval is one second."""


def cpu_by_process() -> dict[int, tuple[str, float]]:
    """Return name and processor seconds of this process and its descendants."""
    usage = {}
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue
        usage[process.pid] = ("coordinator" if process == me else name, times.user + times.system)
    return usage


def parts(name: str, seconds: float) -> dict[str, Any]:
    """Run an application without a fault, and measure each part of the platform."""
    app = load_app(name)
    with tempfile.TemporaryDirectory(prefix="faultset-bench-") as folder:
        path = Path(folder)
        platform = LocalPlatform(app, path, journal=Journal(path / "journal.jsonl"), seed=1)
        try:
            platform.deploy()
            while unready_workloads(platform):
                time.sleep(0.01)
            platform.start_load(seed=1, rate_rps=RATE_RPS, mix=app.default_mix)
            time.sleep(5)
            start_ns, before, began = time.time_ns(), cpu_by_process(), time.perf_counter()
            time.sleep(seconds)
            after, elapsed_s = cpu_by_process(), time.perf_counter() - began
            requests = requests_between(platform, start_ns, start_ns + int((seconds - 2) * SECOND_NS))
        finally:
            platform.teardown()
    shares: dict[str, float] = defaultdict(float)
    pods: dict[str, float] = {}
    for pid, (process, used_s) in after.items():
        share = (used_s - before.get(pid, ("", 0.0))[1]) / elapsed_s
        shares[process if process in (*PARTS, "coordinator") else "pods"] += share
        if process not in (*PARTS, "coordinator"):
            pods[process] = pods.get(process, 0.0) + share
    latency_ms = requests["latency_ns"].dropna().to_numpy(dtype=float) / 1e6
    largest = sorted(pods.items(), key=lambda item: -item[1])[:8]
    return {
        "app": name,
        "cores": round(sum(shares.values()), 3),
        "cores_by_part": {
            name_of_part: round(share, 4) for name_of_part, share in sorted(shares.items(), key=lambda item: -item[1])
        },
        "cores_of_largest_pods": {pod: round(share, 4) for pod, share in largest},
        "requests": len(requests),
        "not_ok": int((requests["outcome"] != "ok").sum()),
        "p50_ms": round(float(np.quantile(latency_ms, 0.5)), 1),
        "p99_ms": round(float(np.quantile(latency_ms, 0.99)), 1),
    }


def rate(name: str, episodes: int, profile: str) -> dict[str, Any]:
    """Collect plain episodes, all at once, and measure the whole campaign."""
    lines: dict[str, None] = {}
    with tempfile.TemporaryDirectory(prefix="faultset-bench-") as folder:
        began = time.perf_counter()
        result = collect(
            faults=["noop"],
            apps=[name],
            normal=episodes,
            no_fault=["plain"],
            profile=profile,
            load="constant",
            rate_rps=RATE_RPS,
            jobs=episodes,
            progress=lambda state: lines.update(dict.fromkeys(state.notices)),
            out=Path(folder) / "data",
        )
        elapsed_s = time.perf_counter() - began
        dataset = open_dataset(Path(folder) / "data")
        views = [dataset.view(episode) for episode in dataset.episodes]
        telemetry_s = sum((view.window[1] - view.window[0]) / 1e9 for view in views)
        latency_ms = np.concatenate([v.requests()["latency_ns"].dropna().to_numpy(dtype=float) for v in views]) / 1e6
        late = scrapes = 0
        for view in views:
            rows = view.metrics()
            times = rows.loc[rows["metric"] == "process_cpu_seconds_total", ["pod", "time"]].sort_values("time")
            gaps_s = times.groupby("pod", observed=True)["time"].diff().dropna().dt.total_seconds()
            late, scrapes = late + int((gaps_s > LATE_S).sum()), scrapes + len(gaps_s)
    return {
        "app": name,
        "profile": profile,
        "episodes": f"{len(views)} of {len(result.plans)}",
        "wall_min": round(elapsed_s / 60, 2),
        "minutes_of_telemetry_a_minute": round(telemetry_s / elapsed_s, 2),
        "p50_ms": round(float(np.quantile(latency_ms, 0.5)), 1),
        "p99_ms": round(float(np.quantile(latency_ms, 0.99)), 1),
        "late_scrapes": f"{late} of {scrapes}",
        "void_attempts": list(lines),
    }


def main() -> None:
    """Print the figures of one form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--app", default="hotel")
    parser.add_argument("--parts", type=float, default=30, metavar="SECONDS", help="how long to measure the parts")
    parser.add_argument("--episodes", type=int, help="collect this number of plain episodes at the same time instead")
    parser.add_argument("--profile", default="standard")
    options = parser.parse_args()
    figures = (
        parts(options.app, options.parts)
        if options.episodes is None
        else rate(options.app, options.episodes, options.profile)
    )
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
