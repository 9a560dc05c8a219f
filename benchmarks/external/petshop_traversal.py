"""The traversal of PetShop's authors, rebuilt from its description and code for comparison.

As in their protocol, the input is the reported node and metric, and all normal metrics. A node is anomalous if its
metric differs from its normal median by more than five median absolute deviations in the third row, or in the next row
in which the reported node does. Anomalous nodes that call no anomalous node are candidates; a candidate's score is the
sum of deviations on the best path of anomalous nodes from the reported node. If the median absolute deviation is zero,
which is usual for availability, any difference is infinite and candidates are equal.

Source: Hardt et al., The PetShop dataset: finding causes of performance issues across microservices, CLeaR 2024.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from faultset.datasets.imports.formats.petshop import read_graph

THRESHOLD = 5.0
FIRST_ROW = 2
MIN_NORMAL = 10


def traversal(
    calls: Sequence[tuple[str, str]], node: str, normal: pd.DataFrame, issue: pd.DataFrame
) -> dict[str, float]:
    """Return candidates and their scores; empty if the reported node is not anomalous.

    Parameters
    ----------
    calls
        Caller and callee.
    node
        Reported node.
    normal, issue
        Reported metric: a column for each node, a row every five minutes.
    """
    deviations, limits = _deviations(normal, issue)
    if node not in deviations or len(issue) <= FIRST_ROW:
        return {}
    rows = [row for row in range(FIRST_ROW, len(issue)) if deviations[node][row] > limits[node]]
    if not rows:
        return {}
    distances = {
        name: float(distance[rows[0]]) for name, distance in deviations.items() if distance[rows[0]] > limits[name]
    }
    callees: dict[str, set[str]] = {name: set() for name in distances}
    for caller, callee in calls:
        if caller in distances and callee in distances:
            callees[caller].add(callee)
    best: dict[str, float] = {}
    _walk(node, (), 0.0, distances, callees, best)
    return {name: score for name, score in best.items() if not callees[name]}


def traversal_answers(dataset: Path) -> dict[tuple[str, str], tuple[dict[str, float], str]]:
    """Return (issue, metric) -> the traversal's scores and the root cause, for issues that have normal metrics."""
    answers = {}
    for graph in sorted(dataset.rglob("graph.csv")):
        scenario = graph.parent
        file = scenario / "noissue" / "metrics.csv"
        if not file.is_file():
            continue
        _, calls = read_graph(graph)
        normal = _read(file)
        for path in sorted(scenario.glob("*/issue_*/target.json")):
            content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            target = content["target"]
            chosen = (target["metric"], target["agg"])
            issue = _read(path.parent / "metrics.csv")
            scores = traversal(calls, target["node"], _of(normal, *chosen), _of(issue, *chosen))
            key = path.parent.relative_to(scenario.parent).as_posix()
            answers[key, target["metric"]] = scores, content["root_cause"]["node"]
    return answers


def _deviations(normal: pd.DataFrame, issue: pd.DataFrame) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    deviations, limits = {}, {}
    for name in issue.columns:
        usual = normal[name].dropna().to_numpy() if name in normal else np.zeros(0)
        if len(usual) < MIN_NORMAL:
            continue
        if np.std(usual) == 0:
            center, spread, limits[name] = usual.mean(), 1.0, 0.0
        else:
            center = float(np.median(usual))
            spread = 1.4826 * float(np.median(np.abs(usual - center)))
            limits[name] = THRESHOLD
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.abs(issue[name].to_numpy() - center) / spread
        deviations[name] = np.where(np.isnan(distance), 0.0, distance)
    return deviations, limits


def _walk(
    name: str,
    path: tuple[str, ...],
    score: float,
    distances: Mapping[str, float],
    callees: Mapping[str, set[str]],
    best: dict[str, float],
) -> None:
    score += distances[name]
    best[name] = max(best.get(name, 0.0), score)
    for callee in sorted(callees[name] - {*path, name}):
        _walk(callee, (*path, name), score, distances, callees, best)


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, header=[0, 1, 2], index_col=0)


def _of(frame: pd.DataFrame, metric: str, statistic: str) -> pd.DataFrame:
    """Choose one statistic of one metric; columns are nodes."""
    chosen = [column for column in frame.columns if column[1:] == (metric, statistic)]
    columns = frame.loc[:, chosen]
    return columns.set_axis([column[0] for column in chosen], axis=1)
