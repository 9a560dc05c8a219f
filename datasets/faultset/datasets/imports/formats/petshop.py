"""Import PetShop: metrics of an AWS application every five minutes, issues of five rows, and two healthy days.

A row's time stamp is the start of its five minutes. The time stamp of an issue falls into the second or third row.
The normal metrics were recorded on other days. Their last sixty rows, moved to the start of the case, are the
reference. Segments of the normal metrics also become cases without a fault; they are cut where the source cuts them to
measure specificity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.columns import Ints, epoch_ns, long_metrics, parse_numbers, parsing
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_cause,
    build_gauge_roles,
    report_issues,
)

STEP_S = 300
REFERENCE_ROWS = 60
CASE_ROWS = 5
"""Number of rows of a case, with or without a fault."""
FIRST_CUT, CUT_SHARE, LAST_ROWS = 0.5, 0.1, 3
"""Position of the first cut and distance between cuts, as shares of the rows; number of rows at the end without a cut.

All values come from the source.
"""
_STEP_NS = STEP_S * SECOND_NS
_NORMAL = "noissue"
_PARAMETER = re.compile(r"--name '/\w+/(\w+)'|-m (\w+)")

METRIC_ROLES = build_gauge_roles(
    "petshop",
    (
        ("latency_*", "latency", "s", "mean", "duration of requests; the suffix names the statistic"),
        ("requests_*", "traffic", "1", "mean", "requests in five minutes"),
        ("availability_*", "errors", "%", "mean", "share of successful requests; low is bad"),
    ),
)


class PetShopImport(ImportFormat):
    """PetShop (CLeaR 2024): a folder per traffic scenario, or an archive of them."""

    name = "petshop"
    title = "PetShop"
    layout = (
        ("graph.csv", r"graph\.csv$"),
        (f"folders issue_n or {_NORMAL}", rf"(/issue_|{re.escape(_NORMAL)}$)"),
    )
    weakness = (
        "There are metrics only, with a step of five minutes. A case has five rows. The normal metrics were recorded "
        "on another day. All issues of the training set have the same root cause."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        root = unpack(path)
        report_issues(partial(_find_issues, root))
        cases = []
        for scenario in _find_scenarios(root):
            normal = scenario / _NORMAL / "metrics.csv"
            for target in _list_targets(scenario):
                key = target.parent.relative_to(scenario.parent).as_posix()
                cases.append(Case(key=key, paths=(target.parent, scenario), facts={"row": None}, has_fault=True))
            if normal.is_file():
                for row in cuts(len(_read_metrics(normal))):
                    key = f"{scenario.name}/{_NORMAL}/{row}"
                    cases.append(Case(key=key, paths=(normal.parent, scenario), facts={"row": row}, has_fault=False))
        if not cases:
            raise DataError(f"{path} holds no PetShop scenario; give the folder `dataset` with low_traffic and others")
        return cases

    def load(self, case: Case) -> ForeignEpisode:
        folder, scenario = case.paths
        row = case.facts["row"]
        normal_file = scenario / _NORMAL / "metrics.csv"
        nodes, calls = read_graph(scenario / "graph.csv")
        frame = _read_metrics(folder / "metrics.csv")
        if row is None:
            target = _read_target(folder / "target.json")
            normal = _read_metrics(normal_file).iloc[-REFERENCE_ROWS:] if normal_file.is_file() else None
        else:
            target = None
            normal = frame.iloc[max(0, row - REFERENCE_ROWS) : row]
            frame = frame.iloc[row : row + CASE_ROWS]
        files = [folder / "metrics.csv", scenario / "graph.csv"]
        files += [folder / "target.json", normal_file] if row is None else []
        inputs = [path for path in files if path.is_file()]
        return _build_episode(case.key, scenario.name, nodes, calls, frame, normal, target, inputs)


def _find_issues(root: Path) -> Iterator[DataIssue]:
    """Yield an issue for scenarios and nodes without normal metrics, and for a root cause that all issues share."""
    causes = set()
    for scenario in _find_scenarios(root):
        normal = scenario / _NORMAL / "metrics.csv"
        nodes = set(_read_metrics(normal).columns.get_level_values(0)) if normal.is_file() else None
        if nodes is None:
            problem = "There are no normal metrics."
            yield DataIssue("warning", scenario.name, problem, "The reference is the one or two rows before the issue.")
        for target in _list_targets(scenario):
            causes.add(_read_target(target)["root_cause"]["node"])
            new = set(_read_metrics(target.parent / "metrics.csv").columns.get_level_values(0)) - (nodes or set())
            if nodes is not None and new:
                location = target.parent.relative_to(scenario.parent).as_posix()
                problem = f"{len(new)} nodes are not in the normal metrics ({', '.join(sorted(new)[:2])})."
                handling = "They are imported, but methods have no healthy data for them."
                yield DataIssue("note", location, problem, handling)
    if len(causes) == 1:
        problem = f"Every issue has the root cause {causes.pop()}."
        handling = "The issues are imported, but a method that always names this node is always right."
        yield DataIssue("warning", ".", problem, handling)


def cuts(rows: int) -> list[int]:
    """Return the rows, of so many, at which the source cuts normal metrics to measure specificity.

    >>> cuts(589)
    [294, 352, 410, 468, 526, 584]
    """
    step = max(1, int(rows * CUT_SHARE))
    return [row for row in range(int(rows * FIRST_CUT), rows - LAST_ROWS, step) if row + CASE_ROWS <= rows]


def read_graph(path: Path) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the sorted nodes and the calls as (caller, callee) from the adjacency matrix of a scenario."""
    with parsing(path, "be a graph"):
        table = pd.read_csv(path, index_col=0, encoding="utf-8-sig")
        edges = table.to_numpy(dtype=float)
    if list(table.index) != list(table.columns):
        raise DataError(f"{path} must have the same nodes in its rows and columns; restore the file")
    names = [str(name) for name in table.columns]
    calls = sorted((names[a], names[b]) for a, b in np.argwhere(edges > 0))
    return tuple(sorted(names)), tuple(calls)


def _build_episode(
    key: str,
    scenario: str,
    nodes: Sequence[str],
    calls: Sequence[tuple[str, str]],
    frame: pd.DataFrame,
    normal: pd.DataFrame | None,
    target: Mapping[str, Any] | None,
    inputs: Sequence[Path],
) -> ForeignEpisode:
    times = epoch_ns(frame.index.to_numpy(dtype=float))
    if not len(times):
        raise DataError(f"{key} has no rows; leave it out")
    onset = target["target"]["timestamp"] * SECOND_NS if target else None
    moved_ns = 0
    start = reference_end = int(times[0])
    if normal is not None and len(normal):
        healthy = epoch_ns(normal.index.to_numpy(dtype=float))
        moved_ns = reference_end - _STEP_NS - int(healthy[-1])
        start = int(healthy[0]) + moved_ns
        frames = [(healthy + moved_ns, normal), (times, frame)]
    else:
        frames = [(times, frame)]
        before = times[times + _STEP_NS <= onset] if onset is not None else times[:1]
        if not len(before):
            raise DataError(f"{key} needs normal metrics or rows before its issue; restore {_NORMAL}")
        reference_end = int(before[-1]) + _STEP_NS
    services = sorted({*nodes, *(str(node) for _, rows in frames for node in rows.columns.get_level_values(0))})
    cause = str(target["root_cause"]["node"]) if target else None
    if cause is not None and cause not in services:
        raise DataError(f"the root cause {cause} of {key} must be in its graph or metrics; leave the case out")
    return ForeignEpisode(
        app="petshop",
        view_start_ns=start,
        view_end_ns=int(times[-1]) + _STEP_NS,
        reference_end_ns=reference_end,
        reference_moved_ns=moved_ns,
        services=tuple(services),
        calls=tuple(calls),
        workload_entry=_find_entry(calls),
        source_intervals_s={"metrics": float(STEP_S)},
        metric_roles=METRIC_ROLES,
        tables={"metrics": partial(_metric_rows, frames)},
        label=_build_label(target, scenario),
        inputs=tuple(inputs),
    )


def _metric_rows(frames: Sequence[tuple[Ints, pd.DataFrame]]) -> list[pa.Table]:
    return [
        long_metrics(
            times,
            [
                (str(node), f"{metric}_{statistic}", frame.iloc[:, position].to_numpy(dtype=float))
                for position, (node, metric, statistic) in enumerate(frame.columns)
            ],
        )
        for times, frame in frames
    ]


def _build_label(target: Mapping[str, Any] | None, scenario: str) -> dict[str, Any]:
    if target is None:
        return {"fault": None, "workload": {"name": scenario}}
    cause = target["root_cause"]
    command = str(target.get("metadata", {}).get("reproducibility", {}).get("command", ""))
    match = _PARAMETER.search(command)
    node = str(cause["node"])
    return {
        "fault": next(name for name in match.groups() if name) if match else f"{target['target']['metric']}-issue",
        "targets": [node],
        "root_causes": [build_cause(node, kind="Node", metric=cause.get("metric"))],
        "inject_start": target["target"]["timestamp"] * SECOND_NS,
        "workload": {"name": scenario},
        "parameters": {
            "command": command,
            "target": dict(target["target"]),
            "alarm": {
                "service": str(target["target"]["node"]),
                "metric": f"{target['target']['metric']}_{target['target'].get('agg', '*')}",
            },
        },
    }


def _find_scenarios(root: Path) -> list[Path]:
    return sorted({path.parent for path in root.rglob("graph.csv") if not path.parent.name.startswith(".")})


def _list_targets(scenario: Path) -> list[Path]:
    """Return the file `target.json` of each issue, in order of their numbers."""

    def order(target: Path) -> tuple[str, int]:
        number = target.parent.name.removeprefix("issue_")
        return target.parent.parent.name, int(number) if number.isdigit() else 0

    return sorted(scenario.glob("*/issue_*/target.json"), key=order)


def _read_metrics(path: Path) -> pd.DataFrame:
    with parsing(path, "be a table of metrics with three header rows"):
        frame = pd.read_csv(path, header=[0, 1, 2], index_col=0, dtype=str, encoding="utf-8-sig")
        frame.index = frame.index.astype(float)
        values = parse_numbers(pd.Series(frame.to_numpy().ravel())).reshape(frame.shape)
        frame = pd.DataFrame(values, index=frame.index, columns=frame.columns)
    frame = frame[np.isfinite(frame.index.to_numpy())]
    return frame.loc[~frame.index.duplicated(), ~frame.columns.duplicated()].sort_index()


def _read_target(path: Path) -> dict[str, Any]:
    with parsing(path, "name a target and a root cause"):
        target = json.loads(path.read_text(encoding="utf-8-sig"))
        _ = target["root_cause"]["node"], target["target"]["node"], target["target"]["metric"]
        stamp = epoch_ns([int(target["target"]["timestamp"])])[0]
        target["target"]["timestamp"] = int(stamp) // SECOND_NS
        return target


def _find_entry(calls: Sequence[tuple[str, str]]) -> str:
    """Return the caller with the most calls among the services that are not called."""
    called = {callee for _, callee in calls}
    callers = [caller for caller, _ in calls if caller not in called]
    return max(sorted(set(callers)), key=callers.count, default="")
