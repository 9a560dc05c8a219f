"""Metrics as OpenMetrics text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.exports.exporter import ExportLayout
from faultset.datasets.format.episodes import table_file
from faultset.datasets.metrics.series import sample_text, series_labels
from faultset.datasets.telemetry_formats.prometheus import KIND_MARK

_KEYS = ["service", "pod", "container", "labels"]


class OpenMetricsExport(ExportLayout):
    """`<episode>.om`.

    Gauges keep their type, and so do counters whose names end in `_total`. All other metrics have the type unknown:
    parts of histograms may lack buckets that readers of histograms require. There are no exemplars.
    """

    def unavailable_reason(self, episode: str) -> str | None:
        """Return a reason if the episode has no metrics."""
        if not self.dataset.files[episode].get(table_file("metrics")):
            return "OpenMetrics needs metrics, but the episode has none"
        return None

    def write(self, episode: str) -> None:
        """Write the samples of an episode, sorted by family and series."""
        table = self.dataset.view(episode).table("metrics").unify_dictionaries()
        (self.folder / f"{episode}.om").write_text(openmetrics_text(table), encoding="utf-8")


def openmetrics_text(metrics: pa.Table) -> str:
    """Return the samples of a metrics table as OpenMetrics text; samples that repeat a time of their series are
    dropped."""
    columns = {name: metrics[name].cast(pa.string()).fill_null("").to_pandas() for name in ("metric", "kind", *_KEYS)}
    frame = pd.DataFrame(columns)
    frame["time"] = metrics["time"].cast(pa.int64()).to_numpy()
    frame["value"] = metrics["value"].to_numpy()
    frame = frame.sort_values(["metric", *_KEYS, "time"], kind="stable")
    frame = frame.drop_duplicates(["metric", *_KEYS, "time"])
    series = frame.groupby(["metric", *_KEYS], sort=False).ngroup().to_numpy()
    first = np.flatnonzero(np.diff(series, prepend=-1))
    prefixes = [_format_series(*row) for row in frame[["metric", *_KEYS]].iloc[first].itertuples(index=False)]
    times = frame["time"].to_numpy()
    stamps = [
        f"{second}.{fraction:09d}" for second, fraction in zip(times // SECOND_NS, times % SECOND_NS, strict=True)
    ]
    values = [sample_text(value) for value in frame["value"].tolist()]
    lines = np.array([f"{prefixes[n]} {value} {stamp}" for n, value, stamp in zip(series, values, stamps, strict=True)])
    names = frame["metric"].to_numpy()
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else np.zeros(0, int)
    text = []
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        text += _head_lines(str(names[start]), str(frame["kind"].iloc[start]))
        text += lines[start:end].tolist()
    return "\n".join([*text, "# EOF"]) + "\n"


def _head_lines(metric: str, kind: str) -> list[str]:
    """Return the lines with type and help of a metric; the help names our kind, which a re-import reads."""
    family = metric.removesuffix("_total") if kind == "counter" else metric
    declared = "counter" if family != metric else "gauge" if kind == "gauge" else "unknown"
    return [f"# HELP {family} {KIND_MARK}{kind}", f"# TYPE {family} {declared}"]


def _format_series(metric: str, service: str, pod: str, container: str, labels: str) -> str:
    pairs = series_labels(service, pod, container, labels)
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in pairs.items())
    return f"{metric}{{{inside}}}" if inside else metric


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
