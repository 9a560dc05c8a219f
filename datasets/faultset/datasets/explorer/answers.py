"""Read the answers of methods on each episode from the results of an evaluation."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import parquet_path

RESULTS_FILE, ALARMS_FILE = "results.parquet", "alarms.parquet"
_COLUMNS = ("baseline", "kind", "episode", "task", "protocol", "seed", "status", "alarm_ns", "ranking", "answer")
_PROTOCOLS = ("detected", "oracle")
_MAX_SERVICES = 3


def read_answers(results: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the answers of an evaluation by episode and recording; only the first seed of each method is read.

    Parameters
    ----------
    results
        Folder that `evaluate` wrote, or its `results.parquet`.

    Raises
    ------
    DataError
        The results are missing or damaged.
    """
    path = results / RESULTS_FILE if results.is_dir() else results
    try:
        rows = pq.read_table(parquet_path(path), columns=list(_COLUMNS)).to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError(f"{path} cannot be read as results ({error}); give a folder that evaluate wrote") from error
    if rows and set(_COLUMNS) - set(rows[0]):
        raise DataError(f"{path} lacks columns of results; give a folder that evaluate wrote")
    answers: dict[str, dict[tuple[str, ...], dict[str, Any]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row["task"], row["baseline"], row["protocol"], row["seed"])):
        if row["protocol"] in _PROTOCOLS:
            key = row["task"], row["baseline"], row["protocol"]
            answers[row["episode"]].setdefault(key, _describe_answer(row))
    by_unit = {episode: list(by_key.values()) for episode, by_key in answers.items()}
    return by_unit | _read_alarms(path.with_name(ALARMS_FILE))


def _read_alarms(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the alarms of detectors by recording; empty if the evaluation had no recordings."""
    if not path.is_file():
        return {}
    try:
        table = pq.read_table(parquet_path(path), columns=["recording", "baseline", "seed", "alarm_ns"])
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError(f"{path} cannot be read as alarms ({error}); give a folder that evaluate wrote") from error
    alarms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    first_seeds: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        first_seeds.setdefault(row["baseline"], row["seed"])
    for row in rows:
        if row["seed"] == first_seeds[row["baseline"]]:
            alarms[row["recording"]].append({"method": row["baseline"], "alarm_ns": row["alarm_ns"]})
    return dict(alarms)


def _describe_answer(row: Mapping[str, Any]) -> dict[str, Any]:
    ranking = json.loads(row["ranking"] or "{}")
    cause = json.loads(row["answer"] or "{}") if row["task"] == "rca" else {}
    return {
        "task": row["task"],
        "method": row["baseline"],
        "kind": row["kind"],
        "protocol": row["protocol"],
        "status": row["status"],
        "alarm_ns": row["alarm_ns"],
        "services": sorted(ranking, key=lambda name: (-ranking[name], name))[:_MAX_SERVICES],
        "level": cause.get("system_level"),
        "type": cause.get("fault_type"),
    }
