"""Cost of every baseline: processor seconds of one core per answer about an episode.

    python benchmarks/baseline_costs.py [--baselines NAMES] [--episodes 2] [--json]

The episodes are some of the sample dataset and a synthetic one of standard size: six minutes at one sample per second
with 19 services, 1 400 series, 144 000 log lines and 136 000 spans. "first" includes reading the tables and building
the frames, which an evaluation does once per episode for all baselines; "again" is the time of the method itself. A
first call, which imports libraries, is not counted. The last line is the time of all cheap methods for the large
episode with a single reading, as in an evaluation.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.baselines.contract import Labelled
from faultset.baselines.registry import BaselineSpec, list_baselines
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.metrics.roles import builtin_catalogue
from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.runners.views import Cache, SharedView

SAMPLE = Path(__file__).parents[1] / "datasets" / "sample"
SERVICES = tuple(f"service-{letter}" for letter in "abcdefghijklmnopqrs")
METRICS_PER_SERVICE = 74
TARGET = 7
START_NS = 1_760_000_000_000_000_000
NAMED = ("mksmc", "rmlad", "pdiagnose")
CAUSAL = ("circa", "micro-cause", "microscope", "rcd")
"""Methods without a cost limit, like `NAMED` and their variants; all others together may take two seconds."""


@dataclass(frozen=True, kw_only=True)
class EpisodeSize:
    """Length and rates of a synthetic episode; by default a standard one."""

    services: tuple[str, ...] = SERVICES
    length_s: int = 360
    reference_s: int = 144
    onset_s: int = 190
    interval_s: int = 1
    """Interval of metric samples."""
    pods: int = 1
    """Number of pods of each service; every pod has its own metric series."""
    start_ns: int = START_NS
    log_lines: int = 144_000
    spans: int = 136_000
    requests: int = 14_000

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Return the declared calls, a binary tree."""
        return tuple((self.services[(child - 1) // 2], self.services[child]) for child in range(1, len(self.services)))


STANDARD = EpisodeSize()

LABEL: dict[str, Any] = {
    "fault": "slow-service",
    "targets": [SERVICES[TARGET]],
    "root_causes": [
        {
            "kind": "Service",
            "name": SERVICES[TARGET],
            "service": SERVICES[TARGET],
            "accepted": [SERVICES[TARGET]],
            "metric": None,
        }
    ],
    "verdict": "manifest",
    "profile": "synthetic",
    "seed": 0,
    "parameters": {},
    "workload": {},
    "host": {},
    "clock_offsets": {},
}


def cached_view(folder: Path) -> EpisodeView:
    """Return a view that reads each table and builds each frame once, as in an evaluation."""
    return SharedView(str(folder), Cache(), tables=frozenset(TABLES))


def write_large_episode(root: Path, seed: int = 0, name: str = "large", size: EpisodeSize = STANDARD) -> Path:
    """Write an episode with a fault, by default as large as a standard one, and return its folder."""
    rng = np.random.default_rng(seed)
    windows = {
        "view_start": size.start_ns,
        "view_end": size.start_ns + size.length_s * SECOND_NS,
        "reference_end": size.start_ns + size.reference_s * SECOND_NS,
    }
    with EpisodeWriter(root, name, quick=True) as writer:
        for table, rows in draw_tables(rng, size):
            writer.write_table(table, [rows])
        writer.write_context(
            EpisodeContext(
                episode=name,
                app="large",
                platform="synthetic",
                view_start_ns=windows["view_start"],
                view_end_ns=windows["view_end"],
                reference_end_ns=windows["reference_end"],
                source_intervals_s={"metrics": float(size.interval_s), "objects": 10.0},
                services=size.services,
                calls=size.calls,
                workload_entry=size.services[0],
            )
        )
        writer.write_truth({**LABEL, **windows, "inject_start": size.start_ns + size.onset_s * SECOND_NS}, [], None)
        return writer.commit()


def draw_tables(rng: np.random.Generator, size: EpisodeSize) -> Iterator[tuple[str, pa.Table]]:
    """Yield name and rows of each telemetry table of a synthetic episode."""
    for table, make in {
        "metrics": _metrics,
        "spans": _spans,
        "logs": _logs,
        "events": _events,
        "objects": _objects,
        "requests": _requests,
    }.items():
        schema = pa.schema([field for field in TABLES[table] if field.name != "episode"])
        columns = make(rng, size)
        unknown = [None] * len(next(iter(columns.values())))
        yield table, pa.table([_array(columns.get(field.name, unknown), field.type) for field in schema], schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)


def _metrics(rng: np.random.Generator, size: EpisodeSize) -> dict[str, Any]:
    rows = [row for row in builtin_catalogue().rows if "*" not in row.metric]
    seconds = np.arange(0, size.length_s, size.interval_s)
    blocks: dict[str, list[Any]] = {name: [] for name in TABLES["metrics"].names}
    for number, service in enumerate(size.services):
        jitter = rng.uniform(0.1, 0.2)
        times = size.start_ns + ((seconds + jitter) * SECOND_NS).astype(np.int64)
        parts = [
            (row, component)
            for row in rows
            for component in (("sum", "count") if row.kind == "histogram" else (row.kind,))
        ]
        for (row, component), pod in product(parts[:METRICS_PER_SERVICE], range(size.pods)):
            still = row.role in ("state", "limits", "restarts")
            values = 10.0 + (0.0 if still else 1.0) * rng.standard_normal(len(seconds))
            if number == TARGET and row.role in ("cpu", "latency", "saturation"):
                values = values + 15.0 * (seconds >= size.onset_s)
            if component != "gauge":
                values = np.cumsum(np.maximum(values, 0.0) if not still else np.zeros(len(seconds)))
            suffix = f"_{component}" if component in ("sum", "count") else ""
            for name, value in {
                "service": service,
                "pod": f"{service}-6d9c8b7f4-x2k4f" if pod == 0 else f"{service}-6d9c8b7f4-{pod:05d}",
                "container": service,
                "metric": row.metric + suffix,
                "labels": canonical_json({"http_response_status_code": "200"}) if suffix else "{}",
                "kind": component,
            }.items():
                blocks[name].append(np.full(len(seconds), value, dtype=object))
            blocks["time"].append(times)
            blocks["value"].append(values)
    return {name: np.concatenate(parts) for name, parts in blocks.items() if parts}


def _spans(rng: np.random.Generator, size: EpisodeSize) -> dict[str, Any]:
    """Draw traces: a root with a client and a server span for about half of the declared calls."""
    depth = {size.services[0]: 0}
    for caller, callee in size.calls:
        depth[callee] = depth[caller] + 1
    per_trace = 1 + len(size.calls)
    traces = size.spans // per_trace
    root_ns = size.start_ns + np.sort(rng.integers(0, (size.length_s - 2) * SECOND_NS, traces))
    ids = np.array([f"{value:016x}" for value in rng.integers(1, 2**62, (traces * per_trace))], dtype=object)
    trace_ids = np.array([f"{value:032x}" for value in range(1, traces + 1)], dtype=object)
    columns: dict[str, list[Any]] = {name: [] for name in TABLES["spans"].names}
    rank = {service: index for index, service in enumerate(size.services)}
    for index, service in enumerate(size.services):
        caller = next((caller for caller, callee in size.calls if callee == service), None)
        kind = "server" if index % 2 == 0 else "client"
        owner = service if kind == "server" or caller is None else caller
        slow = 5.0 * (index == TARGET) * (root_ns >= size.start_ns + size.onset_s * SECOND_NS)
        duration = (rng.gamma(4.0, 1e6, traces) * (1 + slow)).astype(np.int64)
        for name, value in {
            "time": root_ns + depth[service] * 1_000_000,
            "trace_id": trace_ids,
            "span_id": ids[index * traces : (index + 1) * traces],
            "parent_span_id": np.full(traces, None, dtype=object)
            if caller is None
            else ids[rank[caller] * traces : (rank[caller] + 1) * traces],
            "duration_ns": duration,
        }.items():
            columns[name].append(value)
        for name, value in {
            "service": owner,
            "reported_service": owner,
            "peer_service": service if kind == "client" else None,
            "pod": f"{owner}-6d9c8b7f4-x2k4f",
            "operation": f"GET /{service}",
            "kind": kind,
            "status": "unset",
            "status_code": 200,
            "attributes": "{}",
        }.items():
            columns[name].append(np.full(traces, value, dtype=object))
    return {name: np.concatenate(parts) for name, parts in columns.items() if parts}


def _logs(rng: np.random.Generator, size: EpisodeSize) -> dict[str, Any]:
    times = size.start_ns + np.sort(rng.integers(0, size.length_s * SECOND_NS, size.log_lines))
    owner = rng.integers(0, len(size.services), size.log_lines)
    kinds = ("handled request", "cache hit for key", "wrote row", "opened connection", "closed connection")
    kind = rng.choice(len(kinds), size.log_lines, p=(0.6, 0.2, 0.1, 0.05, 0.05))
    broken = (
        (owner == TARGET) & (times >= size.start_ns + size.onset_s * SECOND_NS) & (rng.random(size.log_lines) < 0.3)
    )
    numbers = rng.integers(0, 1000, size.log_lines)
    traces = rng.integers(0, 2**62, size.log_lines)
    messages = [
        f"deadline exceeded after {number} ms" if bad else f"{kinds[which]} {number} trace_id={trace:032x}"
        for bad, which, number, trace in zip(broken, kind, numbers, traces, strict=True)
    ]
    names = np.array(size.services, dtype=object)[owner]
    return {
        "time": times,
        "service": names,
        "pod": names,
        "container": names,
        "level": np.where(broken, "error", "info").astype(object),
        "message": messages,
        "trace_id": np.full(size.log_lines, None, dtype=object),
        "span_id": np.full(size.log_lines, None, dtype=object),
    }


def _events(rng: np.random.Generator, size: EpisodeSize) -> dict[str, Any]:
    return {
        "time": [size.start_ns + size.onset_s * SECOND_NS],
        "type": ["Normal"],
        "reason": ["ScalingReplicaSet"],
        "kind": ["Deployment"],
        "name": [size.services[TARGET]],
        "service": [size.services[TARGET]],
        "message": ["Scaled up replica set to 1"],
        "count": [1],
    }


def _objects(rng: np.random.Generator, size: EpisodeSize) -> dict[str, Any]:
    times = np.repeat(size.start_ns + 10 * SECOND_NS * np.arange(size.length_s // 10), len(size.services))
    names = list(size.services) * (size.length_s // 10)
    return {
        "time": times,
        "kind": ["Deployment"] * len(names),
        "name": names,
        "service": names,
        "state": [canonical_json({"replicas": 1, "readyReplicas": 1})] * len(names),
    }


def _requests(rng: np.random.Generator, size: EpisodeSize) -> dict[str, Any]:
    scheduled = size.start_ns + np.sort(rng.integers(0, (size.length_s - 2) * SECOND_NS, size.requests))
    slow = scheduled >= size.start_ns + size.onset_s * SECOND_NS
    failed = slow & (rng.random(size.requests) < 0.2)
    return {
        "scheduled": scheduled,
        "sent": scheduled + 50_000,
        "endpoint": ["GET /"] * size.requests,
        "latency_ns": (rng.gamma(4.0, 4e6, size.requests) * (1 + 3 * slow)).astype(np.int64),
        "status": np.where(failed, 500, 200),
        "outcome": np.where(failed, "http_error", "ok").astype(object),
    }


def training(dataset: Dataset) -> list[Labelled]:
    """Return the episodes of a dataset with their answers, to train diagnosers."""
    lessons = []
    for episode in dataset.episodes:
        label = dataset.label(episode)
        services = [cause.service for cause in label.root_causes or []]
        lessons.append(
            Labelled(
                view=dataset.view(episode),
                service=services[0] if services else None,
                system_level=label.system_level,
                fault_type=label.fault_type,
            )
        )
    return lessons


def question(spec: BaselineSpec, lessons: Sequence[Labelled]) -> Callable[[EpisodeView], Any]:
    """Create the baseline, fit it if it learns, and return a function that calls it."""
    built: Any = spec.build()
    if spec.task == "detection":
        return built.detect
    if spec.task == "rca":
        built.fit(lessons)
    ask = built.localize if spec.task == "localization" else built.diagnose
    return lambda view: ask(view, view.reference[1] + (view.window[1] - view.reference[1]) // 3)


def cost(ask: Callable[[EpisodeView], Any], folder: Path) -> tuple[float, float]:
    """Measure processor seconds of a first answer, and the minimum of two repeated ones."""
    view = cached_view(folder)
    seconds = []
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        ask(view)
        seconds.append(time.process_time() - start)
    return seconds[0], min(seconds[1:])


def measure(specs: Iterable[BaselineSpec], folders: Sequence[Path]) -> dict[str, dict[str, tuple[float, float]]]:
    """Measure every baseline on every episode."""
    lessons = training(open_dataset(SAMPLE))
    costs: dict[str, dict[str, tuple[float, float]]] = {}
    for spec in specs:
        ask = question(spec, lessons)
        ask(cached_view(folders[0]))
        costs[spec.name] = {folder.name: cost(ask, folder) for folder in folders}
    return costs


def is_unlimited(name: str) -> bool:
    """Return whether a baseline has no cost limit."""
    return name in CAUSAL or name.partition("-")[0] in NAMED


def measure_together(specs: Iterable[BaselineSpec], folder: Path) -> float:
    """Measure processor seconds of one answer of each baseline, with a single reading."""
    lessons = training(open_dataset(SAMPLE))
    questions = [question(spec, lessons) for spec in specs]
    view = cached_view(folder)
    gc.collect()
    start = time.process_time()
    for ask in questions:
        ask(view)
    return time.process_time() - start


def main() -> None:
    """Print one line per baseline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--baselines", default="all", help="comma-separated names")
    parser.add_argument("--episodes", type=int, default=2, help="episodes of the sample dataset")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    registered = list_baselines()
    names = list(registered) if arguments.baselines == "all" else arguments.baselines.split(",")
    sample = open_dataset(SAMPLE)
    with tempfile.TemporaryDirectory() as folder:
        large = write_large_episode(Path(folder))
        folders = [Path(sample.root) / "episodes" / episode for episode in sample.episodes[: arguments.episodes]]
        costs = measure([registered[name] for name in names], [*folders, large])
        shared = measure_together([registered[name] for name in names if not is_unlimited(name)], large)
    if arguments.json:
        print(json.dumps(costs, indent=1))
        return
    columns = [folder.name for folder in folders] + ["large"]
    print(f"{'baseline':24s}{'speed':>9s}" + "".join(f"{column + ' first':>20s}{'again':>8s}" for column in columns))
    for name, by_episode in costs.items():
        cells = "".join(f"{by_episode[column][0]:20.3f}{by_episode[column][1]:8.3f}" for column in columns)
        print(f"{name:24s}{registered[name].speed:>9s}{cells}")
    print(f"all but {', '.join((*NAMED, *CAUSAL))}, together, with one reading: {shared:.3f}")


if __name__ == "__main__":
    main()
