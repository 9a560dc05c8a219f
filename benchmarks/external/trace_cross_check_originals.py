"""What RCAEval's methods on traces and on all three sources answer to exported cases; see trace_cross_check.py.

    python trace_cross_check_originals.py CASES ANSWERS.json

CASES holds folders in RCAEval's layout H and `coverage.json`. Nothing of faultset is imported here. A function that
fails leaves its error in the answers.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import warnings
from ast import literal_eval
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from cross_check_originals import answered

MICROSECONDS = 1_000_000
SCRIPT_FOLDER = Path("data") / "mm-ob" / "checkoutservice_cpu" / "1"
"""Where the script of PDiagnose reads its only case."""
NUMBERS = r"\d[\d_-]*"
"""Numbers in names of operations, as in the keys of a cache."""


def spans_of(case: Path) -> tuple[pd.DataFrame, int]:
    """Return spans and onset; each function fails on operations that the healthy time lacks, so these are left out."""
    spans = pd.read_parquet(case / "traces.parquet")
    onset = int((case / "inject_time.txt").read_text()) * MICROSECONDS
    spans["methodName"] = spans["methodName"].str.replace(NUMBERS, "N", regex=True)
    is_healthy = spans["startTime"] + spans["duration"] < onset
    healthy = set(zip(spans["serviceName"][is_healthy], spans["methodName"][is_healthy], strict=True))
    known = [pair in healthy for pair in zip(spans["serviceName"], spans["methodName"], strict=True)]
    return spans[known].reset_index(drop=True), onset


def microrank(case: Path) -> dict[str, Any]:
    """Return the ranking, how many traces it calls abnormal, and the most that it says one operation is in."""
    spans, onset = spans_of(case)
    module: Any = import_module("RCAEval.e2e.microrank")
    counts: dict[str, int] = {}
    original = module.calculate_spectrum_without_delay_list

    def counted(**given: Any) -> Any:
        counts.update(abnormal=given["anomaly_list_len"], most=max(given["anomaly_num_list"].values()))
        return original(**given)

    module.calculate_spectrum_without_delay_list = counted
    return {"ranks": module.microrank(spans, inject_time=onset)["ranks"], **counts}


def tracerca(case: Path) -> dict[str, Any]:
    """Return the ranking, and what it counts: slow spans of each operation and all, since the onset."""
    spans, onset = spans_of(case)
    ranks = import_module("RCAEval.e2e.tracerca").tracerca(spans, inject_time=onset)["ranks"]
    spans["name"] = spans["serviceName"] + "_" + spans["methodName"]
    is_since = spans["startTime"] + spans["duration"] >= onset
    usual = spans[~is_since].groupby("name")["duration"].agg(["mean", "std"]).div(1000).round(2)
    since = spans[is_since].join(usual, on="name")
    since["slow"] = since["duration"] / 1000 >= since["mean"] + 3 * since["std"]
    counts = since.groupby("name", sort=False)["slow"].agg(["sum", "count"])
    return {"ranks": ranks, "slow": counts["sum"].astype(int).to_dict(), "spans": counts["count"].to_dict()}


def pdiagnose(case: Path) -> list[list[Any]]:
    """Run the script where it finds the case; it splits the names of metrics at their only underscore."""
    script = import_module("RCAEval.e2e.pdiagnose")
    metrics = pd.read_parquet(case / "metrics.parquet")
    names = {name: name.replace("_", "/", 1).replace("_", "-").replace("/", "_") for name in metrics.columns}
    metrics = metrics.rename(columns=names)
    services = {name.partition("_")[0] for name in metrics.columns if name != "time"}
    logs = pd.read_parquet(case / "logs.parquet")
    spans, _ = spans_of(case)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / SCRIPT_FOLDER
        place.mkdir(parents=True)
        metrics.to_csv(place / "simple_metrics.csv", index=False)
        logs[logs["container_name"].isin(services)].to_csv(place / "logs.csv", index=False)
        logs.head(0).to_csv(place / "logts.csv", index=False)
        spans[spans["serviceName"].isin(services)].to_csv(place / "traces.csv", index=False)
        (place / "inject_time.txt").write_text((case / "inject_time.txt").read_text())
        printed = io.StringIO()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(printed):
                script.main()
        finally:
            os.chdir(before)
    return [[name, float(score)] for name, score in literal_eval(printed.getvalue().strip().splitlines()[-1])]


def weights(graph: dict[str, Any]) -> dict[str, float]:
    found, _ = import_module("RCAEval.e2e.microrank").trace_pagerank(
        graph["children"], graph["of_trace"], graph["of_operation"], graph["of_trace"], False
    )
    return {name: float(weight) for name, weight in found.items()}


METHODS: dict[str, Callable[[Path], Any]] = {"microrank": microrank, "tracerca": tracerca, "pdiagnose": pdiagnose}


def main() -> None:
    warnings.simplefilter("ignore")
    cases = Path(sys.argv[1])
    answers: dict[str, dict[str, Any]] = {}
    for case in sorted(path for path in cases.iterdir() if path.is_dir()):
        answers[case.name] = {name: answered(partial(method, case)) for name, method in METHODS.items()}
    for name, graph in json.loads((cases / "coverage.json").read_text()).items():
        answers[name] = {"normal": answered(partial(weights, graph))}
    Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
