"""Run RCAEval's methods on traces on exported cases; see trace_cross_check.py.

    python trace_cross_check_originals.py CASES ANSWERS.json

CASES holds folders in RCAEval's layout H and `coverage.json`. The script does not import faultset. If a function fails,
the error is its answer.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from cross_check_originals import call_published

MICROSECONDS = 1_000_000
NUMBERS = r"\d[\d_-]*"
"""Numbers in names of operations, as in the keys of a cache."""


def spans_of(case: Path) -> tuple[pd.DataFrame, int]:
    """Return the spans of operations that also occur in the healthy time, and the onset in microseconds."""
    spans = pd.read_parquet(case / "traces.parquet")
    onset = int((case / "inject_time.txt").read_text()) * MICROSECONDS
    spans["methodName"] = spans["methodName"].str.replace(NUMBERS, "N", regex=True)
    is_healthy = spans["startTime"] + spans["duration"] < onset
    healthy = set(zip(spans["serviceName"][is_healthy], spans["methodName"][is_healthy], strict=True))
    is_in_healthy_time = [pair in healthy for pair in zip(spans["serviceName"], spans["methodName"], strict=True)]
    return spans[is_in_healthy_time].reset_index(drop=True), onset


def microrank(case: Path) -> dict[str, Any]:
    """Return the ranking, the number of abnormal traces, and the largest number counted for one operation."""
    spans, onset = spans_of(case)
    module: Any = import_module("RCAEval.e2e.microrank")
    counts: dict[str, int] = {}
    original = module.calculate_spectrum_without_delay_list

    def counted(**arguments: Any) -> Any:
        counts.update(abnormal=arguments["anomaly_list_len"], most=max(arguments["anomaly_num_list"].values()))
        return original(**arguments)

    module.calculate_spectrum_without_delay_list = counted
    return {"ranks": module.microrank(spans, inject_time=onset)["ranks"], **counts}


def tracerca(case: Path) -> dict[str, Any]:
    """Return the ranking, and the numbers of slow spans and of all spans since the onset."""
    spans, onset = spans_of(case)
    ranks = import_module("RCAEval.e2e.tracerca").tracerca(spans, inject_time=onset)["ranks"]
    spans["name"] = spans["serviceName"] + "_" + spans["methodName"]
    is_since = spans["startTime"] + spans["duration"] >= onset
    usual = spans[~is_since].groupby("name")["duration"].agg(["mean", "std"]).div(1000).round(2)
    since = spans[is_since].join(usual, on="name")
    since["slow"] = since["duration"] / 1000 >= since["mean"] + 3 * since["std"]
    counts = since.groupby("name", sort=False)["slow"].agg(["sum", "count"])
    return {"ranks": ranks, "slow": counts["sum"].astype(int).to_dict(), "spans": counts["count"].to_dict()}


def weights(graph: dict[str, Any]) -> dict[str, float]:
    result, _ = import_module("RCAEval.e2e.microrank").trace_pagerank(
        graph["children"], graph["of_trace"], graph["of_operation"], graph["of_trace"], False
    )
    return {name: float(weight) for name, weight in result.items()}


METHODS: dict[str, Callable[[Path], Any]] = {"microrank": microrank, "tracerca": tracerca}


def main() -> None:
    warnings.simplefilter("ignore")
    cases = Path(sys.argv[1])
    answers: dict[str, dict[str, Any]] = {}
    for case in sorted(path for path in cases.iterdir() if path.is_dir()):
        answers[case.name] = {name: call_published(partial(method, case)) for name, method in METHODS.items()}
    for name, graph in json.loads((cases / "coverage.json").read_text()).items():
        answers[name] = {"normal": call_published(partial(weights, graph))}
    Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
