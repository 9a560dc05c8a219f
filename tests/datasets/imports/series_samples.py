"""Miniature copies of labelled series in the layouts of their publishers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

TRAIN, TEST, METRICS = 30, 20, 3
ANOMALIES = ((5, 8), (12, 12))
"""First and last labelled steps of the test part."""


def machine_arrays() -> dict[str, np.ndarray]:
    values = np.linspace(0, 1, (TRAIN + TEST) * METRICS, dtype=np.float32).reshape(-1, METRICS)
    labels = np.zeros(TEST)
    for first, last in ANOMALIES:
        labels[first : last + 1] = 1
    return {"train": values[:TRAIN], "test": values[TRAIN:], "test_label": labels}


def write_pickles(root: Path, machine: str = "machine-9-1", protocol: int = 3) -> Path:
    """Write a machine as InterFusion publishes it."""
    folder = root / "data/processed"
    folder.mkdir(parents=True, exist_ok=True)
    for part, array in machine_arrays().items():
        (folder / f"{machine}_{part}.pkl").write_bytes(pickle.dumps(array, protocol))
    notes = root / "data/interpretation_label"
    notes.mkdir(exist_ok=True)
    (notes / f"{machine}.txt").write_text("5-8:1,3\n12-12:2")
    return folder


def write_texts(root: Path, machine: str = "machine-9-2") -> Path:
    """Write a machine as OmniAnomaly publishes it."""
    for part, array in machine_arrays().items():
        (root / part).mkdir(parents=True, exist_ok=True)
        np.savetxt(root / part / f"{machine}.txt", array, fmt="%.6f" if array.ndim > 1 else "%d", delimiter=",")
    return root


def times(count: int, start: str = "2014-04-10 00:00:00") -> list[datetime]:
    first = datetime.fromisoformat(start)
    return [first + timedelta(minutes=5 * number) for number in range(count)]


def write_nab(root: Path, rows: int = 40, windows: Sequence[tuple[int, int]] = ((20, 24),)) -> Path:
    """Write a series of NAB; windows are numbers of rows."""
    stamps = times(rows)
    file = root / "data/realAWSCloudwatch/cpu_9.csv"
    file.parent.mkdir(parents=True)
    lines = [f"{stamp},{number}.5" for number, stamp in enumerate(stamps)]
    file.write_text("timestamp,value\n" + "\n".join(lines) + "\n")
    (root / "labels").mkdir()
    content = {
        "realAWSCloudwatch/cpu_9.csv": [
            [f"{stamps[first]}.000000", f"{stamps[last]}.000000"] for first, last in windows
        ],
        "realTweets/elsewhere.csv": [],
    }
    (root / "labels/combined_windows.json").write_text(json.dumps(content))
    return file


def write_cloud(root: Path, rows: int = 40, *, quoted: bool = True) -> Path:
    """Write a series of the cloud monitoring dataset with two anomalies."""
    file = root / "data/api-latency/api-9.csv"
    file.parent.mkdir(parents=True)
    lines = [
        f'"{stamp:%Y-%m-%dT%H:%M:%SZ}",{number},{int(number in (10, 11, 30))}' if quoted
        else f"{stamp},{number}.0,{int(number in (10, 11, 30))}"
        for number, stamp in enumerate(times(rows))
    ]  # fmt: skip
    file.write_bytes(("TimeStamp,Value,Label\r\n" + "\r\n".join(lines) + "\r\n").encode())
    file.with_name("api-9.csv-metadata.json").write_text("{}")
    return file


def write_tsb_ad(root: Path, rows: int = 40) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    file = root / "007_SED_id_7_Medical_tr_15_1st_20.csv"
    lines = [f"{number}.25,{-number},{int(20 <= number < 23)}" for number in range(rows)]
    file.write_text("Data,Other,Label\n" + "\n".join(lines) + "\n")
    return file
