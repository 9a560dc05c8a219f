"""Metrics in the text format of OpenMetrics, one file for each episode, with the times at which they were sampled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.format.episodes import table_file

_KEYS = ["service", "pod", "container", "labels"]


class OpenMetricsExport:
    """`<episode>.om`.

    Counters and gauges keep their types. Parts of histograms are families of type unknown: a recording may lack some of
    their buckets, and then no reader takes them for a histogram.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._folder = folder

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse an episode without metrics."""
        if not self._dataset.files[episode].get(table_file("metrics")):
            return "OpenMetrics has no place for an episode without metrics"
        return None

    def write(self, episode: str) -> None:
        """Write the samples of one episode, family by family and series by series."""
        table = self._dataset.view(episode).table("metrics").unify_dictionaries()
        (self._folder / f"{episode}.om").write_text(openmetrics_text(table), encoding="utf-8")

    def finish(self) -> None:
        """Do nothing: every file stands for itself."""


def openmetrics_text(metrics: pa.Table) -> str:
    """Return the samples of a metrics table as OpenMetrics text; the first of two at one time is kept."""
    columns = {name: metrics[name].cast(pa.string()).fill_null("").to_pandas() for name in ("metric", "kind", *_KEYS)}
    frame = pd.DataFrame(columns)
    frame["time"] = metrics["time"].cast(pa.int64()).to_numpy()
    frame["value"] = metrics["value"].to_numpy()
    frame = frame.sort_values(["metric", *_KEYS, "time"], kind="stable")
    frame = frame.drop_duplicates(["metric", *_KEYS, "time"])
    series = frame.groupby(["metric", *_KEYS], sort=False).ngroup().to_numpy()
    first = np.flatnonzero(np.diff(series, prepend=-1))
    heads = [_series(*row) for row in frame[["metric", *_KEYS]].iloc[first].itertuples(index=False)]
    times = frame["time"].to_numpy()
    stamps = [f"{second}.{rest:09d}" for second, rest in zip(times // SECOND_NS, times % SECOND_NS, strict=True)]
    values = [_number(value) for value in frame["value"].tolist()]
    lines = np.array([f"{heads[n]} {value} {stamp}" for n, value, stamp in zip(series, values, stamps, strict=True)])
    names = frame["metric"].to_numpy()
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else np.zeros(0, int)
    parts = []
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        parts.append(_type_line(str(names[start]), str(frame["kind"].iloc[start])))
        parts += lines[start:end].tolist()
    return "\n".join([*parts, "# EOF"]) + "\n"


def _type_line(metric: str, kind: str) -> str:
    if kind == "counter" and metric.endswith("_total"):
        return f"# TYPE {metric.removesuffix('_total')} counter"
    return f"# TYPE {metric} {'gauge' if kind == 'gauge' else 'unknown'}"


def _series(metric: str, service: str, pod: str, container: str, labels: str) -> str:
    known = {"service": service, "pod": pod, "container": container}
    found = {name: value for name, value in known.items() if value}
    for name, value in json.loads(labels or "{}").items():
        found[f"label_{name}" if name in known else name] = value if isinstance(value, str) else json.dumps(value)
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in found.items())
    return f"{metric}{{{inside}}}" if inside else metric


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if np.isfinite(value):
        return repr(value)
    return "NaN" if np.isnan(value) else "+Inf" if value > 0 else "-Inf"
