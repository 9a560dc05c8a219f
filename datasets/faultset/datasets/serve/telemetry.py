"""The telemetry of one episode and its clock, with the names and labels of monitoring systems and without the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from faultset.core.errors import UsageError
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.metrics.series import series_labels
from faultset.datasets.serve.promql.series import NAME, SampledSeries, SeriesSet, build_series
from faultset.datasets.views import EpisodeView, read_frame, read_table

if TYPE_CHECKING:
    import pandas as pd


_SECOND_NS = 1_000_000_000


class ServedClock:
    """Current time of a served episode, `now_s` after the start of the view; later rows are hidden.

    With `live_since_ns`, the time on this machine that corresponds to `now_s`, the clock runs and `offset_ns` is added
    to all recorded times. Otherwise it stops at `now_s`, by default the end of the view.
    """

    def __init__(
        self,
        context: EpisodeContext,
        now_s: float | None = None,
        *,
        live_since_ns: int | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        length_s = (context.view_end_ns - context.view_start_ns) / _SECOND_NS
        if now_s is not None and now_s > length_s:
            raise UsageError(
                f"the current time must be at most {length_s:g} s, the length of the view of {context.episode}, got "
                f"{now_s:g}"
            )
        self._fixed_ns = context.view_start_ns + round(_SECOND_NS * (length_s if now_s is None else now_s))
        self._wall_ns = None if live_since_ns is None else wall_ns
        self.offset_ns = 0 if live_since_ns is None else live_since_ns - self._fixed_ns
        self.start_ns = context.view_start_ns + self.offset_ns

    @property
    def now_ns(self) -> int:
        return self._fixed_ns if self._wall_ns is None else self._wall_ns()


NS_PER_MS = 1_000_000
_SERIES = ("metric", "service", "pod", "container", "labels")
_SPANS = (
    "time", "trace_id", "span_id", "parent_span_id", "reported_service", "peer_service", "pod", "operation", "kind",
    "duration_ns", "status", "status_code", "attributes",
)  # fmt: skip
_LOGS = ("time", "service", "pod", "container", "level", "message", "trace_id", "span_id")
_CLUSTER_PREFIXES = ("container_", "kube_")
"""Prefixes of metrics that are scraped from kubelets and kube-state-metrics rather than from the pods."""


class ServedTelemetry:
    """The tables of a view, read when they are needed; all pods are in the namespace of the application's name."""

    def __init__(self, view: EpisodeView, clock: ServedClock) -> None:
        self.clock = clock
        self.namespace = view.context.app
        self.interval_s = view.context.source_intervals_s.get("metrics")
        self._view = view

    @cached_property
    def series(self) -> SeriesSet:
        table = read_table(self._view, "metrics", ["time", "value", *_SERIES]).unify_dictionaries()
        times_ms = (table["time"].cast(pa.int64()).to_numpy() + self.clock.offset_ns) // NS_PER_MS
        values = table["value"].to_numpy()
        keys = table.select(list(_SERIES)).to_pandas().groupby(list(_SERIES), observed=True, dropna=False, sort=False)
        return SeriesSet(
            self._build_series(dict(zip(_SERIES, key, strict=True)), times_ms[rows], values[rows])
            for key, rows in keys.indices.items()
        )

    def _build_series(self, key: Mapping[str, Any], times_ms: Any, values: Any) -> SampledSeries:
        row = {name: value if isinstance(value, str) else "" for name, value in key.items()}
        labels = series_labels(row["service"], row["pod"], row["container"], row["labels"])
        if row["pod"] and not row["metric"].startswith(_CLUSTER_PREFIXES):
            labels = {"job": row["service"], "instance": row["pod"]} | labels
        labels = {"namespace": self.namespace} | labels | {NAME: row["metric"]}
        return build_series(labels, times_ms, values, self.interval_s)

    @cached_property
    def metric_types(self) -> dict[str, str]:
        table = read_table(self._view, "metrics", ["metric", "kind"]).unify_dictionaries()
        pairs = table.group_by(["metric", "kind"]).aggregate([]).to_pylist()
        kinds = {pair["metric"]: pair["kind"] for pair in pairs}
        types: dict[str, str] = {}
        for metric, kind in sorted(kinds.items()):
            family = metric.removesuffix(f"_{kind}")
            if kind in ("bucket", "sum", "count") and family != metric:
                types[family] = "histogram" if f"{family}_bucket" in kinds else "summary"
            else:
                types[metric] = "counter" if kind == "counter" else "gauge"
        return types

    @cached_property
    def spans(self) -> pd.DataFrame:
        """All spans in order of their start, with times as served."""
        frame = read_frame(self._view, "spans", _SPANS)
        return frame.assign(time=frame["time"] + self.clock.offset_ns)

    @cached_property
    def logs(self) -> pd.DataFrame:
        """All log lines in time order, with times as served."""
        frame = read_frame(self._view, "logs", _LOGS)
        return frame.assign(time=frame["time"] + self.clock.offset_ns)
