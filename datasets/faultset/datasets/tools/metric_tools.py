"""Tools about metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal, cast

import numpy as np
from pydantic import Field

from faultset.datasets.tools.clock import stamp
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.state_tools import ServiceFilter, SinceS
from faultset.datasets.tools.text_tables import folded_table, number
from faultset.datasets.tools.tool_answers import ToolAnswer, absent, empty, found, not_recorded

if TYPE_CHECKING:
    import pandas as pd

Statistic = Literal["mean", "min", "max", "last"]
_MOST_POINTS = 240
_MOST_SERIES = 12
_COMPARED_ROLES = (
    "cpu",
    "throttling",
    "memory",
    "network",
    "disk",
    "traffic",
    "errors",
    "latency",
    "restarts",
    "state",
)
_MOST_CHANGES = 25
_MOST_DEVIATIONS = 1000
_ROBUST_SIGMA = 1.4826


class MetricTools:
    """Tools that read the metrics."""

    recording: Recording

    def list_metrics(self, service: ServiceFilter = None) -> ToolAnswer:
        """List the recorded metrics with their role and how many services have them."""
        problem = self._problem(service)
        if problem:
            return problem
        catalogue = self.recording.view.catalogue
        rows = [
            (metric, catalogue.role_of(metric), len(services))
            for metric, services in self.recording.series.items()
            if service is None or service in services
        ]
        if not rows:
            return empty(f"no metric of {service}")
        return found(folded_table(["METRIC", "ROLE", "SERVICES"], rows))

    def get_metric(
        self,
        metric: Annotated[str, Field(description="Name as list_metrics gives it.")],
        service: Annotated[str | None, Field(description="Of this service; needed where many have it.")] = None,
        step_s: Annotated[float, Field(gt=0, le=3600, description="Length of a step in seconds.")] = 10.0,
        stat: Annotated[Statistic, Field(description="What becomes of the samples in a step.")] = "mean",
        since_s: SinceS = None,
    ) -> ToolAnswer:
        """Show a metric step by step, one column for each of its series; counters become rates per second."""
        problem = self._problem(service)
        if problem:
            return problem
        if metric not in self.recording.series:
            return absent("metric", metric, self.recording.metric_names)
        since_ns = self.recording.clock.since_ns(since_s)
        samples = self.recording.metric([metric], service, since_ns)
        if not len(samples):
            return empty(f"no sample of {metric}" + (f" of {service}" if service else ""))
        return found(_stepped(samples, since_ns, self.recording.clock.now_ns, step_s, stat))

    def compare_metrics(self, service: ServiceFilter = None) -> ToolAnswer:
        """Rank series by how far their level after the healthy reference lies from it, in robust deviations.

        This does a part of an algorithm's work, so its use is counted apart.
        """
        problem = self._problem(service)
        if problem:
            return problem
        rows = self._changes(service)
        if rows is None:
            return empty("the healthy reference has not ended yet, there is nothing to compare")
        if not rows:
            return empty("no series has samples both in the reference and after it")
        return found(folded_table(["SERVICE", "METRIC", "REFERENCE", "AFTER", "DEVIATIONS"], rows))

    def _changes(self, service: str | None) -> list[tuple[str, str, str, str, str]] | None:
        context, clock = self.recording.context, self.recording.clock
        if clock.now_ns <= context.reference_end_ns:
            return None
        frame = self.recording.view.wide(context.resolution_s, _COMPARED_ROLES)
        step_ns = round(context.resolution_s * 1e9)
        times = clock.start_ns + np.arange(len(frame)) * step_ns
        ended = times + step_ns <= clock.now_ns
        before, after = (
            ended & (times + step_ns <= context.reference_end_ns),
            ended & (times >= context.reference_end_ns),
        )
        names = frame.columns.to_frame(index=False).astype(object)
        kept = np.ones(len(names), dtype=bool) if service is None else (names["service"] == service).to_numpy()
        values = frame.to_numpy()[:, kept]
        names = names[kept].reset_index(drop=True)
        usable = (np.isfinite(values[before]).sum(axis=0) >= 3) & np.isfinite(values[after]).any(axis=0)
        values, names = values[:, usable], names[usable].reset_index(drop=True)
        if not len(names):
            return []
        healthy, later = values[before], values[after]
        median = np.nanmedian(healthy, axis=0)
        spread = _ROBUST_SIGMA * np.nanmedian(np.abs(healthy - median), axis=0)
        level = np.nanmedian(later, axis=0)
        # Series that stood still get a twentieth of their level, so that any move of theirs is not infinite.
        deviation = np.abs(level - median) / np.maximum(spread, np.maximum(np.abs(median) / 20, 1e-9))
        order = np.argsort(-deviation, kind="stable")[:_MOST_CHANGES]
        return [
            (
                str(names["service"][i]),
                str(names["metric"][i]),
                number(float(median[i])),
                number(float(level[i])),
                _deviations(float(deviation[i])),
            )
            for i in order
            if deviation[i] > 0
        ]

    def _problem(self, service: str | None) -> ToolAnswer | None:
        if not self.recording.has("metrics"):
            return not_recorded("this recording has no metrics")
        known = self.recording.services
        return absent("service", service, known) if service is not None and service not in known else None


def _deviations(value: float) -> str:
    return f"{value:.1f}" if value < _MOST_DEVIATIONS else f">{_MOST_DEVIATIONS}"


def _stepped(samples: pd.DataFrame, start_ns: int, end_ns: int, step_s: float, stat: str) -> str:
    import pandas as pd

    keys = ["service", "pod", "container", "labels"]
    samples = samples.assign(**{key: samples[key].astype(object).fillna("") for key in keys})
    counter = str(samples["kind"].iloc[0]) != "gauge"
    groups = samples.groupby(keys, sort=False)
    shown = list(groups)[:_MOST_SERIES]
    step_ns = max(round(step_s * 1e9), (end_ns - start_ns) // _MOST_POINTS + 1)
    columns: dict[str, pd.Series] = {}
    for key, part in shown:
        values, times = part["value"].to_numpy(), part["time"].to_numpy()
        if counter:
            gaps = np.diff(times) / 1e9
            steps = np.diff(values)
            # A counter that falls has begun again at zero.
            values = np.where(steps < 0, values[1:], steps) / np.where(gaps > 0, gaps, np.nan)
            times = times[1:]
        series = pd.Series(values, index=(times - start_ns) // step_ns)
        columns[_series_name(*map(str, cast("tuple[str, ...]", key)))] = getattr(series.groupby(level=0), stat)()
    frame = pd.DataFrame(columns).sort_index()
    rows = [
        (stamp(start_ns + int(str(step)) * step_ns, "seconds"), *("-" if np.isnan(v) else number(v) for v in values))
        for step, values in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    notes = [f"unit: {'per second, from a counter' if counter else 'as sampled'}; steps of {step_ns / 1e9:g} s, {stat}"]
    if len(groups) > _MOST_SERIES:
        notes.append(f"{len(groups)} series, the first {_MOST_SERIES} are shown; name a service for the others")
    return folded_table(["TIME", *columns], rows) + "\n" + "\n".join(notes)


def _series_name(service: str, pod: str, container: str, labels: str) -> str:
    words = [f"{name}={value}" for name, value in json.loads(labels or "{}").items()]
    return (pod or service or "series") + (f"[{','.join(words)}]" if words else "")
