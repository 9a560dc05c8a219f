"""Peak memory and speed of `import telemetry` for a large input, which the script writes first.

    python benchmarks/import_memory.py SCRATCH [--gb 10] [--hours 60]

Writes OTLP spans, JSON log lines, OpenMetrics text and CSV of 20 services into the new folder SCRATCH, which is deleted
at the end. The disk needs 1.3 times the size of the input. Reading 10 GB takes about half an hour of processor time.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from faultset.evaluators.execution.runners.process_trees import descendants, proportional_bytes

START_S = 1_772_000_000
SERVICES = [f"svc-{number:02d}" for number in range(20)]
HOUR_S, SCRAPE_S = 3600, 15
SPANS = 6
"""Spans of a trace."""


def main() -> None:
    """Print a row of the table."""
    parser = argparse.ArgumentParser(description="Memory of an import of telemetry.")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--hours", type=int, default=60)
    options = parser.parse_args()
    options.scratch.mkdir()
    try:
        size = write_input(options.scratch / "input", options.gb * 1e9, options.hours)
        seconds, peak = measure_import(options.scratch / "input", options.scratch / "out")
    finally:
        shutil.rmtree(options.scratch)
    print("| input, GB | hours | peak memory, MB | minutes |\n|---:|---:|---:|---:|")
    print(f"| {size / 1e9:.2f} | {options.hours} | {peak / 1e6:.0f} | {seconds / 60:.1f} |")


def write_input(folder: Path, size: float, hours: int) -> int:
    """Write an hour of each format to a file until all have about `size` bytes; return their sum."""
    folder.mkdir()
    rng = random.Random(1)
    kinds: list[tuple[str, float, Callable[[random.Random, int, float], Iterator[str]]]] = [
        ("spans.jsonl", 0.45, span_lines),
        ("logs.jsonl", 0.25, log_lines),
        ("metrics.om", 0.2, openmetrics_lines),
        ("kpi.csv", 0.1, csv_lines),
    ]
    written = 0
    for hour in range(hours):
        for name, share, lines in kinds:
            path = folder / f"{hour:03d}-{name}"
            with path.open("w") as file:
                file.writelines(lines(rng, START_S + hour * HOUR_S, share * size / hours))
            written += path.stat().st_size
    return written


def span_lines(rng: random.Random, start_s: int, size: float) -> Iterator[str]:
    """Yield traces of nested calls between random services, one OTLP document per line."""
    count = max(1, round(size / 2900))
    for number in range(count):
        trace, parent, resources = f"{rng.getrandbits(128):032x}", "", []
        trace_ns = start_s * 10**9 + number * HOUR_S * 10**9 // count
        for depth in range(SPANS):
            service, span_id = rng.choice(SERVICES), f"{rng.getrandbits(64):016x}"
            attributes = {"http.request.method": "GET", "url.path": f"/items/{rng.randrange(10**6)}"}
            span = {
                "traceId": trace,
                "spanId": span_id,
                "parentSpanId": parent,
                "name": f"GET /{depth}",
                "kind": 2 + depth % 2,
                "startTimeUnixNano": str(trace_ns + depth * 10**6),
                "endTimeUnixNano": str(trace_ns + 40 * 10**6 - depth * 5 * 10**6),
                "attributes": _attributes(attributes),
            }
            resource = {"attributes": _attributes({"service.name": service, "k8s.pod.name": f"{service}-0"})}
            resources.append({"resource": resource, "scopeSpans": [{"spans": [span]}]})
            parent = span_id
        yield json.dumps({"resourceSpans": resources}, separators=(",", ":")) + "\n"


def _attributes(values: dict[str, str]) -> list[dict[str, object]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def log_lines(rng: random.Random, start_s: int, size: float) -> Iterator[str]:
    """Yield JSON log lines."""
    count = max(1, round(size / 190))
    for number in range(count):
        record = {
            "time": start_s * 1000 + number * HOUR_S * 1000 // count,
            "level": "INFO" if rng.random() < 0.98 else "ERROR",
            "service": rng.choice(SERVICES),
            "message": f"handled request {rng.getrandbits(64):016x} of user {rng.randrange(10**7)} in "
            f"{rng.randrange(900)} ms on shard {rng.randrange(64)}",
        }
        yield json.dumps(record) + "\n"


def openmetrics_lines(rng: random.Random, start_s: int, size: float) -> Iterator[str]:
    """Yield gauges with a sample every 15 seconds."""
    for series in range(max(1, round(size / 75 / (HOUR_S // SCRAPE_S)))):
        name = f"app_metric_{series // len(SERVICES)}"
        if series % len(SERVICES) == 0:
            yield f"# TYPE {name} gauge\n"
        labels = f'{{service="{SERVICES[series % len(SERVICES)]}"}}'
        for time_s in range(start_s, start_s + HOUR_S, SCRAPE_S):
            yield f"{name}{labels} {rng.random():.6f} {time_s}\n"
    yield "# EOF\n"


def csv_lines(rng: random.Random, start_s: int, size: float) -> Iterator[str]:
    """Yield a table with one value per row."""
    yield "timestamp,service,metric,value\n"
    times = range(start_s, start_s + HOUR_S, SCRAPE_S)
    for time_s in times:
        for number in range(max(1, round(size / 40 / len(times)))):
            metric, service = divmod(number, len(SERVICES))
            yield f"{time_s},{SERVICES[service]},kpi_{metric},{rng.random():.6f}\n"


def measure_import(source: Path, out: Path) -> tuple[float, int]:
    """Import a folder; return the seconds, and the largest memory of all processes in bytes."""
    program = Path(sys.executable).with_name("faultset")
    command = [str(program), "dataset", "import", "telemetry", str(source), str(out)]
    started, peak = time.monotonic(), 0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            peak = max(peak, proportional_bytes([process.pid, *descendants(process.pid)]))
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"the import failed with exit code {process.returncode}; see its message above")
    return time.monotonic() - started, peak


if __name__ == "__main__":
    main()
