"""Scaling of evaluation: cost and memory over many episodes, overhead, and the gain of a second worker.

    python benchmarks/evaluation_scale.py [--episodes 500] [--source FOLDER] [--baselines NAMES] [--workers N]
    python benchmarks/evaluation_scale.py --large --baselines cheap
    python benchmarks/evaluation_scale.py --speedup [--episodes 24]
    python benchmarks/evaluation_scale.py --profile [--episodes 60]

The dataset consists of copies of the episodes of the dataset folder `--source`. By default, the source has ten
synthetic episodes of six minutes, with `--large` five that are as large as those of a standard run. "cheap" selects all
baselines but the named and causal ones. Prints one JSON object. The first two forms sample the memory of the evaluation
and of its runners while it runs. `--speedup` runs a purely computing method with one and with two workers, and prints
the ratio of elapsed times. `--profile` prints the time spent in the evaluation itself, without methods.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from baseline_costs import is_unlimited, write_large_episode

from faultset.baselines.contract import Detection, TrainingFreeBaseline
from faultset.baselines.registry import BaselineSpec, get_baseline, list_baselines
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.version_files import FileRecord, compute_sha256
from faultset.datasets.format.versions import create_version, read_version, write_version_file
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.method_runs import Checkpoint
from faultset.evaluators.execution.plan import make_plan
from faultset.evaluators.execution.scheduling import local_client, run_plan
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.results.rows import ResultRow, write_rows

CHEAP = "ksigma,always-yes,clock,baro,max-z,random,most-frequent"
MIB = 2**20


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--baselines", default=CHEAP)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--speedup", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faultset-scale-") as folder:
        few = Path(folder) / "few"
        source = options.source or (_large(few) if options.large else _six_minutes(few))
        names = options.baselines.split(",")
        if names == ["cheap"]:
            names = [name for name in list_baselines() if not is_unlimited(name)]
        began = time.perf_counter()
        dataset = link_episodes(source, Path(folder) / "many", options.episodes)
        linking_s = time.perf_counter() - began
        if options.speedup:
            figures = _speedup(dataset)
        elif options.profile:
            figures = _profile(dataset, names, options.workers)
        else:
            figures = _scale(dataset, names, options.workers)
    print(json.dumps({"episodes": options.episodes, "linking_s": round(linking_s, 1), **figures}, indent=1))


def _six_minutes(root: Path) -> Path:
    write_example_dataset(root, episodes=10, seed=1, baseline_s=180, fault_s=180)
    return root


def _large(root: Path) -> Path:
    for seed in range(5):
        write_large_episode(root, seed, f"large-{seed}")
    create_version(root, provenance={})
    return root


def link_episodes(source: Path, root: Path, episodes: int) -> Path:
    """Create a dataset of many episodes that share the telemetry of a few."""
    version_file = read_version(source)
    source_episodes = sorted(version_file.episodes)
    files: dict[str, dict[str, FileRecord]] = {}
    for number in range(episodes):
        old, new = source_episodes[number % len(source_episodes)], f"x{number:06d}"
        files[new] = {}
        for name, record in version_file.episodes[old].items():
            origin, path = source / "episodes" / old / name, root / "episodes" / new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name == "context.json":
                path.write_text(json.dumps(json.loads(origin.read_text()) | {"episode": new}))
            elif path.suffix == ".parquet":
                rows = pq.read_table(origin)
                episode_column = rows.column_names.index("episode")
                ids = pa.array([new] * len(rows), pa.string())
                pq.write_table(rows.set_column(episode_column, rows.schema.field(episode_column), ids), path)
            else:
                os.link(origin, path)
            files[new][name] = replace(record, bytes=path.stat().st_size, sha256=compute_sha256(path))
    root.mkdir(exist_ok=True)
    write_version_file(root, replace(version_file, version="1.0.0", episodes=files, splits={}))
    return root


class _Memory:
    """Memory of this process and of its largest runner, sampled while a block runs."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int, int]] = []
        self._over = threading.Event()

    def __enter__(self) -> _Memory:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        this_process = psutil.Process()
        began = time.perf_counter()
        while not self._over.wait(0.2):
            runners = [0]
            for child in this_process.children(recursive=True):
                try:
                    runners.append(child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            self.samples.append((time.perf_counter() - began, this_process.memory_info().rss, max(runners)))

    def quarters(self, column: int) -> list[int]:
        """Return the largest MiB in each quarter of the time."""
        values = [sample[column] for sample in self.samples]
        return [round(max(quarter, default=0) / MIB) for quarter in np.array_split(np.array(values), 4)]


def _scale(dataset: Path, names: list[str], workers: int) -> dict[str, Any]:
    steps: dict[str, float] = {}
    with _Memory() as memory, tempfile.TemporaryDirectory() as out, local_client(workers) as client:
        began = time.perf_counter()
        plan = _plan(dataset, [get_baseline(name) for name in names], workers)
        steps["open_and_plan_s"] = time.perf_counter() - began
        began = time.perf_counter()
        with Checkpoint(Path(out), {}) as checkpoint:
            checkpoint.begin({})
            rows = run_plan(plan, client, keep=checkpoint.add)
        steps["answers_s"] = time.perf_counter() - began
        steps |= _after(rows, Path(out))
    method_cpu_s = sum(row.cpu_seconds or 0.0 for row in rows)
    episodes = len({row.episode for row in rows})
    return {
        "baselines": names,
        "workers": workers,
        "rows": len(rows),
        "failed": sum(row.status not in ("ok", "no_alarm") for row in rows),
        **{name: round(value, 2) for name, value in steps.items()},
        "ms_per_episode": round(1000 * steps["answers_s"] / episodes, 1),
        "cpu_ms_of_methods_per_episode": round(1000 * method_cpu_s / episodes, 1),
        "mib_of_evaluation_by_quarter": memory.quarters(1),
        "mib_of_largest_runner_by_quarter": memory.quarters(2),
    }


def _plan(dataset: Path, specs: list[BaselineSpec], workers: int):
    opened = open_dataset(dataset)
    opened.check_files(workers)
    return make_plan(
        EvaluationScope(source=DatasetSource.of(opened), settings=EvaluationSettings(calibrate=True)), specs, workers
    )


def _after(rows: list[ResultRow], out: Path) -> dict[str, float]:
    began = time.perf_counter()
    write_rows(rows, out / "results.parquet")
    written = time.perf_counter()
    build_leaderboard(rows)
    return {"write_s": written - began, "leaderboard_s": time.perf_counter() - written}


class Computes(TrainingFreeBaseline):
    """Multiply matrices for about a quarter of a second."""

    name, needs, tables = "computes", frozenset(), ()

    def detect(self, episode) -> Detection:
        """Compute, and raise no alarm."""
        began = time.process_time()
        matrix = np.random.default_rng(0).random((200, 200))
        while time.process_time() - began < 0.25:
            matrix = matrix @ matrix / np.abs(matrix).max()
        return Detection.silent()


def _speedup(dataset: Path) -> dict[str, Any]:
    import __main__

    cloudpickle.register_pickle_by_value(__main__)
    spec = BaselineSpec(
        name="computes",
        task="detection",
        tables=(),
        factory=Computes,
    )
    elapsed_s = {}
    for workers in (1, 2):
        with local_client(workers) as client:
            run_plan(_plan(dataset, [get_baseline("always-no")], workers), client)  # starts the runners
            plan = _plan(dataset, [spec], workers)
            began = time.perf_counter()
            run_plan(plan, client)
            elapsed_s[workers] = time.perf_counter() - began
    return {
        "one_worker_s": round(elapsed_s[1], 2),
        "two_workers_s": round(elapsed_s[2], 2),
        "times_faster": round(elapsed_s[1] / elapsed_s[2], 2),
    }


def _profile(dataset: Path, names: list[str], workers: int) -> dict[str, Any]:
    """Profile the process of the evaluation; the threads of dask and of runners appear only as waiting time."""
    profile = cProfile.Profile()
    with local_client(workers) as client, tempfile.TemporaryDirectory() as out:
        profile.enable()
        plan = _plan(dataset, [get_baseline(name) for name in names], workers)
        rows = run_plan(plan, client)
        _after(rows, Path(out))
        profile.disable()
    statistics: Any = pstats.Stats(profile)
    costs = sorted(statistics.stats.items(), key=lambda item: -item[1][3])
    shown = [
        {"function": f"{Path(file).name}:{line} {name}", "calls": calls, "seconds": round(total, 3)}
        for (file, line, name), (_, calls, _, total, _) in costs
        if "faultset" in file or "distributed" in file
    ]
    return {"rows": len(rows), "costs": shown[:40]}


if __name__ == "__main__":
    main()
