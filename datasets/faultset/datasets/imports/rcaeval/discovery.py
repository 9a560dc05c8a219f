"""Where RCAEval's cases are: folders whose name gives the label."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.datasets.imports.columns import epoch_ns, read_parquet
from faultset.datasets.imports.contract import Case

METRIC_FILES = (
    "metrics.parquet", "metrics.json", "simple_metrics.csv", "simple_data.csv", "data.csv", "metrics.csv",
)  # fmt: skip
"""Files with a case's metrics; the first that a case has is the input of RCAEval's published tables."""
RAW_FILES = ("data.csv", "metrics.csv")
"""They may have the raw names of Prometheus and Istio."""
INDEX = "cases.parquet"
ONSET_FILE = "inject_time.txt"
APPS = {"OB": "online-boutique", "SS": "sock-shop", "TT": "train-ticket"}

_FLAT = re.compile(r"(re[1-9])-?(ob|ss|tt)_([^_]+)_([^_]+)_(\d+)", re.IGNORECASE)
_OTHER_APP = re.compile(r"([^_]+)_([^_]+)_([^_]+)_(\d+)")
_PAIR = re.compile(r"([^_]+)_([^_]+)")
_SUITE = re.compile(r"(RE[1-9])-(OB|SS|TT)", re.IGNORECASE)
_DEEPEST = 6


def case_folders(path: Path) -> Iterator[tuple[Path, tuple[str, ...], dict[str, str]]]:
    """Yield every case's folder, its files with metrics, and suite, service, fault and instance.

    Folders are sorted, and visited only as deep as cases can lie.
    """
    root = path.resolve() if path.is_dir() else path
    for folder, inner, files in os.walk(root):
        here = Path(folder)
        candidates = tuple(name for name in METRIC_FILES if name in files)
        label = _label(here) if candidates else None
        if label is not None:
            inner.clear()
            yield here, candidates, label
            continue
        inner.sort()
        if len(here.relative_to(root).parts) >= _DEEPEST:
            inner.clear()


def is_case_file(path: Path) -> bool:
    """Say whether a path is that of the metrics of a case."""
    return path.name in METRIC_FILES and _label(path.parent) is not None


def found_cases(path: Path) -> Sequence[Case]:
    """Return all cases below a path, sorted by suite, service, fault and instance."""
    indices: dict[Path, dict[str, dict[str, Any]]] = {}
    cases = []
    for folder, candidates, label in case_folders(path):
        if folder.parent not in indices:
            indices[folder.parent] = _index(folder.parent)
        facts: dict[str, Any] = dict(label)
        facts.update(indices[folder.parent].get(folder.name, {}))
        key = f"{facts['suite']}/{facts['service']}_{facts['fault']}/{facts['instance']}"
        cases.append(Case(key=key, paths=(folder,), facts=facts, candidates=candidates, has_fault=True))
    if not cases:
        raise DataError(
            f"{path} holds no RCAEval case: a folder such as RE2-OB/cartservice_cpu/1 or re2ob_cartservice_cpu_1 with "
            f"one of {', '.join(METRIC_FILES)}; give the folder that was unpacked"
        )
    return sorted(cases, key=lambda case: case.key)


def find_onset(case: Case) -> tuple[int, Path]:
    """Return when the fault of a case was injected and the file that says so: its own, else the index of all cases."""
    path = case.paths[0] / ONSET_FILE
    try:
        line = path.read_text(encoding="utf-8-sig").strip().splitlines()[0]
        return int(epoch_ns([float(line)])[0]) if "." in line else int(epoch_ns([int(line)])[0]), path
    except FileNotFoundError:
        if "inject_ns" in case.facts:
            return int(case.facts["inject_ns"]), case.paths[0].parent / INDEX
        raise DataError(
            f"{path} is missing and no {INDEX} beside the case tells its onset; leave the case out"
        ) from None
    except (ValueError, IndexError):
        raise DataError(f"{path} must hold the time of the injection in seconds since 1970; restore it") from None


def _label(folder: Path) -> dict[str, str] | None:
    flat = _FLAT.fullmatch(folder.name)
    if flat:
        series, app, service, fault, instance = flat.groups()
        return {
            "suite": f"{series.upper()}-{app.upper()}",
            "service": service,
            "fault": fault,
            "instance": instance,
        }
    other = _OTHER_APP.fullmatch(folder.name)
    if other:
        app, service, fault, instance = other.groups()
        return {"suite": app, "service": service, "fault": fault, "instance": instance}
    pair = _PAIR.fullmatch(folder.parent.name)
    if pair and folder.name.isdigit():
        suite = folder.parent.parent.name
        known = next((found for part in reversed(folder.parts) if (found := _SUITE.fullmatch(part))), None)
        return {
            "suite": known[0].upper() if known else suite,
            "service": pair[1],
            "fault": pair[2],
            "instance": folder.name,
        }
    return None


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what the index of layout H says of each case's folder."""
    path = folder / INDEX
    if not path.is_file():
        return {}
    table = read_parquet(path)
    onset = next((name for name in table.column_names if "inject" in name.lower()), None)
    if "case" not in table.column_names or onset is None:
        return {}
    found = {}
    for name, value in zip(table["case"].to_pylist(), table[onset].to_pylist(), strict=True):
        if name is None or value is None:
            continue
        stamp = int(value.timestamp() * 1e9) if hasattr(value, "timestamp") else int(epoch_ns([value])[0])
        found[Path(str(name)).name] = {"inject_ns": stamp}
    return found
