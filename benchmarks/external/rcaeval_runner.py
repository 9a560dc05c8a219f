"""Compare RCAEval's runner with ours: BARO on the same cases and machine, in one run.

    python benchmarks/external/rcaeval_runner.py [--cases 735] [--columns 376] [--workers N] [--python PYTHON] [--json]

Cases: faults of the sample dataset, written by our RCAEval export, in the shape of RE2-TT. The rows before the onset
are repeated until they fill half of a case, the rows after it fill the other half. Each sample is multiplied by
1 + 0.01 N(0, 1), so that no value repeats. Cases are stored as in RCAEval: `simple_metrics.csv` (layout Z) and
`metrics.parquet` (layout H).

RCAEval: release 1.8.1 from the package index, in a separate virtual environment with Python 3.12, which it needs. Its
`main.py` is not in the package, so this script repeats its steps for each case: read, drop the 50th percentiles,
fill, cut ten minutes on each side, count candidates, rename, call `baro`, write the answer.

Ours: the commands `faultset dataset import` and `faultset evaluate --baselines baro --tasks localization --protocol
oracle`. For both sides, the time includes starting Python and importing libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from faultset.datasets.exports.exporter import export_dataset

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
START = 1_690_000_000
RELEASE = "RCAEval==1.8.1"
NEEDED = ("numpy", "pandas", "scikit-learn", "pyarrow", "requests", "tqdm", "networkx")

THEIR_RUNNER = """
import glob, json, os, sys, warnings
warnings.filterwarnings("ignore")
from os.path import basename, dirname, join
import numpy as np
import pandas as pd
from RCAEval.e2e.baro import baro
from RCAEval.io.time_series import preprocess
from RCAEval.utility import dump_json, read_metrics

layout, root, results = sys.argv[1:]
os.makedirs(results, exist_ok=True)
if layout == "csv":
    paths = sorted(glob.glob(join(root, "**/simple_metrics.csv"), recursive=True))
else:
    paths = sorted(glob.glob(join(root, "*/metrics.parquet")))
for path in paths:
    folder = dirname(path)
    data = pd.read_csv(path) if layout == "csv" else read_metrics(folder)
    data = data.loc[:, ~data.columns.str.endswith("_latency-50")]
    data = data.replace([np.inf, -np.inf], np.nan)
    data = data.ffill()
    data = data.fillna(0)
    with open(join(folder, "inject_time.txt")) as file:
        inject_time = int(file.readlines()[0].strip())
    half = 20 * 60 // 2
    normal = data[data["time"] < inject_time].tail(half)
    anomal = data[data["time"] >= inject_time].head(half)
    data = pd.concat([normal, anomal], ignore_index=True)
    columns = preprocess(data.copy(), dataset="re2-tt", dk_select_useful=False).columns
    {c.split("_")[0].replace("-db", "") for c in columns if c != "time"}
    data = data.rename(
        columns={c: c.replace("_latency-90", "_latency") for c in data.columns if c.endswith("_latency-90")}
    )
    answer = baro(data, inject_time, dataset="re2-tt", anomalies=None, dk_select_useful=False)
    name = f"{basename(dirname(folder))}_{basename(folder)}" if layout == "csv" else basename(folder)
    dump_json(filename=join(results, name + ".json"), data={0: answer.get("ranks")})
print(len(paths))
"""


def make_cases(folder: Path, count: int, rows: int, columns: int) -> None:
    """Write `count` cases in layout Z below `folder/csv`, and the same in layout H below `folder/parquet`."""
    with tempfile.TemporaryDirectory() as temporary:
        export_dataset("rcaeval", SAMPLE, Path(temporary) / "cases")
        index = pd.read_parquet(Path(temporary) / "cases" / "cases.parquet").sort_values("case")
        real = []
        for row in index.itertuples():
            path = Path(temporary) / "cases" / str(row.case) / "metrics.parquet"
            real.append((row.root_cause_service, row.inject_time, pd.read_parquet(path)))
    rng = np.random.default_rng(0)
    half = rows // 2
    for number in range(count):
        service, onset, frame = real[number % len(real)]
        chosen = _columns(frame, service, columns)
        before, after = (
            frame.loc[mask, chosen].ffill().fillna(0.0).to_numpy()
            for mask in (frame["time"] < onset, frame["time"] >= onset)
        )
        values = np.concatenate([np.resize(before, (half, columns)), np.resize(after, (rows - half, columns))])
        values = values * (1 + 0.01 * rng.standard_normal(values.shape))
        start = START + number * 10_000
        times = pa.array(np.arange(start, start + rows))
        table = pa.table([times, *map(pa.array, values.T)], names=["time", *chosen])
        zenodo = folder / "csv" / "RE2-TT" / f"{service}_cpu" / str(number)
        flat = folder / "parquet" / f"re2tt_{service}_cpu_{number}"
        for path in (zenodo, flat):
            path.mkdir(parents=True)
            (path / "inject_time.txt").write_text(f"{start + half}\n")
        pyarrow.csv.write_csv(table, zenodo / "simple_metrics.csv")
        pq.write_table(table, flat / "metrics.parquet")


def _columns(frame: pd.DataFrame, service: str, count: int) -> list[str]:
    """Choose columns: all of the faulty service, and evenly spaced ones of the others."""
    names = [name for name in frame.columns if name != "time"]
    service_columns = [name for name in names if name.startswith(f"{service}_")]
    others = [name for name in names if name not in set(service_columns)]
    room = max(0, count - len(service_columns))
    picked = [others[index] for index in np.linspace(0, len(others) - 1, room).astype(int)]
    if len({*service_columns, *picked}) < count:
        raise SystemExit(f"the sample has only {len(names)} columns, but --columns is {count}; lower it")
    return (service_columns + picked)[:count]


def time_command(argv: Sequence[object], environment: dict[str, str] | None = None) -> dict[str, float]:
    """Run a command and return its wall and processor seconds, including those of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [str(argument) for argument in argv], capture_output=True, text=True, env=environment, check=False
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{argv[0]} failed: {done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall, "cpu_s": cpu}


def install_rcaeval(work: Path, base_python: str) -> Path:
    """Return an interpreter with RCAEval; the virtual environment is created once per working folder."""
    home = work / "rcaeval-venv"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        subprocess.run([base_python, "-m", "venv", home], check=True)
        pip = [python, "-m", "pip", "install", "-q"]
        subprocess.run([*pip, *NEEDED], check=True)
        subprocess.run([*pip, "--no-deps", RELEASE], check=True)
        (home / "ready").touch()
    return python


def measure(
    work: Path, base_python: str, cases: int, rows: int, columns: int, workers: int
) -> dict[str, dict[str, float]]:
    """Run everything once and return the times of each part."""
    python = install_rcaeval(work, base_python)
    data, ours = work / "cases", work / "ours"
    for folder in (data, ours):
        shutil.rmtree(folder, ignore_errors=True)
    make_cases(data, cases, rows, columns)
    runner = work / "their_runner.py"
    runner.write_text(THEIR_RUNNER)
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    faultset = Path(sys.executable).with_name("faultset")
    options = ["--baselines", "baro", "--tasks", "localization", "--protocol", "oracle", "--workers", workers]
    times = {}
    for layout in ("csv", "parquet"):
        times[f"RCAEval, {layout}"] = time_command(
            [python, runner, layout, data / layout, work / f"theirs-{layout}"], one_thread
        )
        times[f"import from {layout}"] = time_command(
            [faultset, "dataset", "import", "rcaeval", data / layout, ours / layout, "--workers", workers], one_thread
        )
        for which in ("first", "again"):
            times[f"evaluate {which}, {layout}"] = time_command(
                [faultset, "evaluate", ours / layout, *options, "--out", ours / f"results-{layout}-{which}"], one_thread
            )
    return times


def main() -> None:
    """Print times and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=735, help="RCAEval has 735; they take 16 GB of disk")
    parser.add_argument("--columns", type=int, default=376, help="series in each case; RE2-TT has 340 to 376")
    parser.add_argument("--rows", type=int, default=1441)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--python", default="python3.12", help="interpreter for RCAEval: 3.10, 3.12 or 3.14")
    parser.add_argument("--work", type=Path, help="working folder, kept; a temporary one by default")
    parser.add_argument("--json", action="store_true", dest="as_json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = chosen.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        times = measure(work, chosen.python, chosen.cases, chosen.rows, chosen.columns, chosen.workers)
    for entry in times.values():
        entry["cases_per_minute"] = 60 * chosen.cases / entry["wall_s"]
    ratios = {}
    # wall time depends on the load of a shared machine, processor time does not
    for layout in ("csv", "parquet"):
        for what in ("wall_s", "cpu_s"):
            theirs = times[f"RCAEval, {layout}"][what]
            first = times[f"import from {layout}"][what] + times[f"evaluate first, {layout}"][what]
            ratios[f"first run with import, against {layout}, {what}"] = theirs / first
            ratios[f"repeated run, against {layout}, {what}"] = theirs / times[f"evaluate again, {layout}"][what]
    if chosen.as_json:
        print(json.dumps({"settings": vars(chosen), "times": times, "ratios": ratios}, indent=1, default=str))
        return
    print(f"{chosen.cases} cases of {chosen.rows} rows and {chosen.columns} series, {chosen.workers} workers of ours")
    for name, entry in times.items():
        each = 1000 / chosen.cases
        print(
            f"{name:24} {entry['wall_s']:8.1f} s  {entry['wall_s'] * each:7.0f} ms wall and "
            f"{entry['cpu_s'] * each:5.0f} ms CPU a case  {entry['cases_per_minute']:7.0f} cases/min"
        )
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.1f} times")


if __name__ == "__main__":
    main()
