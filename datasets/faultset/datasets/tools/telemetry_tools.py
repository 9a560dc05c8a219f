"""Tools for log lines, metrics, spans and traces."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from faultset.core.printable import count_text
from faultset.core.times import rfc3339
from faultset.datasets.kubectl.printing import (
    ToolAnswer,
    answer_absent,
    answer_empty,
    answer_invalid,
    answer_ok,
    format_folded_table,
    format_number,
    stamp,
)
from faultset.datasets.status_codes import is_error_code
from faultset.datasets.tools.recording import VisibleTables
from faultset.datasets.tools.state_tools import Cursor, Limit, ServiceFilter, SinceS

if TYPE_CHECKING:
    import pandas as pd

LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
_MAX_LINE_LENGTH = 1000
_MAX_PATTERNS = 40


class LogTools:
    """Tools for log lines."""

    recording: VisibleTables

    def get_logs(
        self,
        service: ServiceFilter = None,
        pod: Annotated[str | None, Field(description="Show only lines of this pod.")] = None,
        level: Annotated[
            str | None, Field(description=f"Show only lines of this level or above: {', '.join(LEVELS)}.")
        ] = None,
        pattern: Annotated[
            str | None, Field(max_length=200, description="Show only lines that contain this text.")
        ] = None,
        since_s: SinceS = None,
        limit: Limit = 100,
        cursor: Cursor = 0,
    ) -> ToolAnswer:
        """Show the newest `limit` log lines, oldest first; `cursor` skips newer ones."""
        if problem := self.recording.problem("logs", service):
            return problem
        if level is not None and level.lower() not in LEVELS:
            return answer_invalid(f'the level must be one of {", ".join(LEVELS)}, got "{level[:40]}"')
        since_ns = self.recording.clock.since_ns(since_s)
        lines = self.recording.frame("logs", since_ns)
        if pod is not None:
            pods = set(lines["pod"]) | set(self.recording.objects("Pod") if self.recording.has("objects") else ())
            if pod not in pods:
                return answer_absent("pod", pod, pods)
            lines = lines[lines["pod"] == pod]
        if service is not None:
            lines = lines[lines["service"] == service]
        if level is not None:
            lines = lines[lines["level"].isin(LEVELS[LEVELS.index(level.lower()) :])]
        if pattern is not None:
            lines = lines[lines["message"].str.contains(re.escape(pattern), case=False)]
        if not len(lines):
            return answer_empty(f"no such line from {stamp(since_ns)} to {stamp(self.recording.clock.now_ns)}")
        end = max(0, len(lines) - cursor)
        page = lines.iloc[max(0, end - limit) : end]
        text = "\n".join(
            f"{stamp(time.value)} {pod} {level if isinstance(level, str) else '-'} {message[:_MAX_LINE_LENGTH]}"
            for time, pod, level, message in zip(page["time"], page["pod"], page["level"], page["message"], strict=True)
        )
        if not text:
            return answer_empty(f"{count_text(len(lines), 'line')}, and the cursor skips all of them")
        return answer_ok(text, cursor + limit if end > limit else None)

    def log_patterns(self, service: ServiceFilter = None) -> ToolAnswer:
        """Count log patterns (lines with masked numbers) per minute, in the healthy reference and after it."""
        if problem := self.recording.problem("logs", service):
            return problem
        lines = self.recording.log_patterns()
        if service is not None:
            lines = lines.filter(pc.equal(lines["service"].cast(pa.string()), service))  # type: ignore[attr-defined]
        if not len(lines):
            return answer_empty("no log line" + (f" of {service}" if service else ""))
        return answer_ok(_format_patterns(lines, self.recording))


def _format_patterns(lines: pa.Table, recording: VisibleTables) -> str:
    context, clock = recording.context, recording.clock
    later = pc.greater_equal(lines["time"], context.reference_end_ns)  # type: ignore[attr-defined]
    keys = ["service", "level", "pattern"]
    groups = lines.select(keys).append_column("later", later.cast(pa.int64())).group_by(keys)
    counts = groups.aggregate([("later", "sum"), ([], "count_all")]).to_pandas()
    before_min = (min(context.reference_end_ns, clock.now_ns) - clock.start_ns) / 60e9
    after_min = max(0.0, (clock.now_ns - context.reference_end_ns) / 60e9)
    counts["before"] = (counts["count_all"] - counts["later_sum"]) / before_min
    counts["after"] = counts["later_sum"] / after_min if after_min else 0.0
    counts["change"] = (counts["after"] - counts["before"]).abs()
    counts = counts.sort_values("change", ascending=False, kind="stable").head(_MAX_PATTERNS)
    rows = [
        (f"{before:.1f}", f"{after:.1f}", *(word if isinstance(word, str) else "-" for word in words))
        for before, after, *words in zip(counts["before"], counts["after"], *(counts[key] for key in keys), strict=True)
    ]
    return format_folded_table(["REFERENCE/MIN", "AFTER/MIN", "SERVICE", "LEVEL", "PATTERN"], rows)


Statistic = Literal["mean", "min", "max", "last"]
_MAX_POINTS = 240
_MAX_SERIES = 12
_COMPARED_ROLES = tuple("cpu throttling memory network disk traffic errors latency restarts state".split())
_MAX_CHANGES = 25
_MAX_DEVIATIONS = 1000
_ROBUST_SIGMA = 1.4826


class MetricTools:
    """Tools for metrics."""

    recording: VisibleTables

    def list_metrics(self, service: ServiceFilter = None) -> ToolAnswer:
        """List the recorded metrics with their role and the number of services that have them."""
        if problem := self.recording.problem("metrics", service):
            return problem
        catalogue = self.recording.view.catalogue
        rows = [
            (metric, catalogue.role_of(metric), len(services))
            for metric, services in self.recording.series.items()
            if service is None or service in services
        ]
        if not rows:
            return answer_empty(f"no metric of {service}")
        return answer_ok(format_folded_table(["METRIC", "ROLE", "SERVICES"], rows))

    def get_metric(
        self,
        metric: Annotated[str, Field(description="Name from list_metrics.")],
        service: Annotated[
            str | None, Field(description="Show only data of this service; needed if many services have the metric.")
        ] = None,
        step_s: Annotated[float, Field(gt=0, le=3600, description="Length of a step in seconds.")] = 10.0,
        stat: Annotated[Statistic, Field(description="Aggregation of the samples in a step.")] = "mean",
        since_s: SinceS = None,
    ) -> ToolAnswer:
        """Show a metric over time, one column per series; counters become rates per second."""
        if problem := self.recording.problem("metrics", service):
            return problem
        if metric not in self.recording.series:
            return answer_absent("metric", metric, self.recording.metric_names)
        since_ns = self.recording.clock.since_ns(since_s)
        samples = self.recording.metric([metric], service, since_ns)
        if not len(samples):
            return answer_empty(f"no sample of {metric}" + (f" of {service}" if service else ""))
        return answer_ok(_aggregate_steps(samples, since_ns, self.recording.clock.now_ns, step_s, stat))

    def compare_metrics(self, service: ServiceFilter = None) -> ToolAnswer:
        """Rank series by the change of their level after the healthy reference, in robust standard deviations.

        This computes a part of a diagnosis, so its use is counted separately.
        """
        if problem := self.recording.problem("metrics", service):
            return problem
        rows = self._changes(service)
        if rows is None:
            return answer_empty("the healthy reference has not ended yet, so a later level is not available")
        if not rows:
            return answer_empty("no series has samples both in the reference and after it")
        return answer_ok(format_folded_table(["SERVICE", "METRIC", "REFERENCE", "AFTER", "DEVIATIONS"], rows))

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
        selected = np.ones(len(names), dtype=bool) if service is None else (names["service"] == service).to_numpy()
        values = frame.to_numpy()[:, selected]
        names = names[selected].reset_index(drop=True)
        usable = (np.isfinite(values[before]).sum(axis=0) >= 3) & np.isfinite(values[after]).any(axis=0)
        values, names = values[:, usable], names[usable].reset_index(drop=True)
        if not len(names):
            return []
        healthy, later = values[before], values[after]
        median = np.nanmedian(healthy, axis=0)
        spread = _ROBUST_SIGMA * np.nanmedian(np.abs(healthy - median), axis=0)
        level = np.nanmedian(later, axis=0)
        # A constant series gets 5 % of its level as spread, so that no deviation is infinite.
        deviation = np.abs(level - median) / np.maximum(spread, np.maximum(np.abs(median) / 20, 1e-9))
        order = np.argsort(-deviation, kind="stable")[:_MAX_CHANGES]
        return [
            (
                str(names["service"][i]),
                str(names["metric"][i]),
                format_number(float(median[i])),
                format_number(float(level[i])),
                _format_deviations(float(deviation[i])),
            )
            for i in order
            if deviation[i] > 0
        ]


def _format_deviations(value: float) -> str:
    return f"{value:.1f}" if value < _MAX_DEVIATIONS else f">{_MAX_DEVIATIONS}"


def _aggregate_steps(samples: pd.DataFrame, start_ns: int, end_ns: int, step_s: float, stat: str) -> str:
    import pandas as pd

    keys = ["service", "pod", "container", "labels"]
    samples = samples.assign(**{key: samples[key].astype(object).fillna("") for key in keys})
    is_counter = str(samples["kind"].iloc[0]) != "gauge"
    groups = samples.groupby(keys, sort=False)
    shown = list(groups)[:_MAX_SERIES]
    step_ns = max(round(step_s * 1e9), (end_ns - start_ns) // _MAX_POINTS + 1)
    columns: dict[str, pd.Series] = {}
    for key, rows_of_series in shown:
        values, times = rows_of_series["value"].to_numpy(), rows_of_series["time"].to_numpy()
        if is_counter:
            gaps = np.diff(times) / 1e9
            steps = np.diff(values)
            # a counter that decreases has restarted at zero
            values = np.where(steps < 0, values[1:], steps) / np.where(gaps > 0, gaps, np.nan)
            times = times[1:]
        series = pd.Series(values, index=(times - start_ns) // step_ns)
        columns[_name_series(*map(str, cast("tuple[str, ...]", key)))] = getattr(series.groupby(level=0), stat)()
    frame = pd.DataFrame(columns).sort_index()
    rows = [
        (
            rfc3339(start_ns + int(str(step)) * step_ns),
            *("-" if np.isnan(v) else format_number(v) for v in values),
        )
        for step, values in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    notes = [
        f"unit: {'per second, from a counter' if is_counter else 'as sampled'}; steps of {step_ns / 1e9:g} s, {stat}"
    ]
    if len(groups) > _MAX_SERIES:
        notes.append(f"the first {_MAX_SERIES} of {len(groups)} series are shown; name a service for the others")
    return format_folded_table(["TIME", *columns], rows) + "\n" + "\n".join(notes)


def _name_series(service: str, pod: str, container: str, labels: str) -> str:
    words = [f"{name}={value}" for name, value in json.loads(labels or "{}").items()]
    return (pod or service or "series") + (f"[{','.join(words)}]" if words else "")


_MAX_SPANS = 200


class TraceTools:
    """Tools for spans."""

    recording: VisibleTables

    def get_spans(
        self,
        service: ServiceFilter = None,
        operation: Annotated[
            str | None, Field(max_length=200, description="Show only operations that contain this text.")
        ] = None,
        errors_only: Annotated[bool, Field(description="Show only failed spans.")] = False,
        slower_than_ms: Annotated[float | None, Field(ge=0, description="Show only spans that took longer.")] = None,
        since_s: SinceS = None,
        limit: Limit = 50,
        cursor: Cursor = 0,
    ) -> ToolAnswer:
        """List spans, newest first."""
        if problem := self.recording.problem("spans", service):
            return problem
        since_ns = self.recording.clock.since_ns(since_s)
        spans = self.recording.frame("spans", since_ns)
        if service is not None:
            spans = spans[spans["service"] == service]
        if operation is not None:
            spans = spans[spans["operation"].astype(str).str.contains(operation, case=False, regex=False)]
        if errors_only:
            spans = spans[_is_failed(spans)]
        if slower_than_ms is not None:
            spans = spans[spans["duration_ns"] > slower_than_ms * 1e6]
        if not len(spans):
            return answer_empty(f"no such span from {stamp(since_ns)} to {stamp(self.recording.clock.now_ns)}")
        page = spans.iloc[::-1].iloc[cursor : cursor + limit]
        if not len(page):
            return answer_empty(f"{count_text(len(spans), 'span')}, and the cursor skips all of them")
        more = cursor + limit if cursor + limit < len(spans) else None
        return answer_ok(
            format_folded_table(["START", "TRACE", "SERVICE", "KIND", "OPERATION", "MS", "STATUS"], _list_cells(page)),
            more,
        )

    def get_trace(
        self, trace_id: Annotated[str, Field(max_length=200, description="Id from get_spans.")]
    ) -> ToolAnswer:
        """Show one trace as a tree."""
        if problem := self.recording.problem("spans"):
            return problem
        spans = self.recording.frame("spans")
        spans = spans[spans["trace_id"] == trace_id.strip().lower()]
        if not len(spans):
            return answer_absent("trace", trace_id, [])
        return answer_ok(_format_tree(spans.head(_MAX_SPANS)))

    def service_graph(self, since_s: SinceS = None) -> ToolAnswer:
        """Show the calls between services: calls per minute, share of errors and 95th percentile of the duration."""
        if problem := self.recording.problem("spans"):
            return problem
        since_ns = self.recording.clock.since_ns(since_s)
        spans = self.recording.frame("spans", since_ns)
        if not len(spans):
            return answer_empty(f"no span from {stamp(since_ns)} to {stamp(self.recording.clock.now_ns)}")
        return answer_ok(_format_graph(spans, (self.recording.clock.now_ns - since_ns) / 60e9))


def _is_failed(spans: pd.DataFrame) -> pd.Series:
    return (spans["status"] == "error") | is_error_code(spans["status_code"])


def _list_cells(spans: pd.DataFrame) -> list[tuple[object, ...]]:
    failed = _is_failed(spans)
    return [
        (
            stamp(time.value),
            trace,
            service,
            f"{kind} -> {peer}" if isinstance(peer, str) else kind,
            operation,
            f"{duration / 1e6:.1f}",
            ("error" if is_bad else status) + ("" if np.isnan(code) else f" {code:.0f}"),
        )
        for time, trace, service, kind, peer, operation, duration, status, code, is_bad in zip(
            spans["time"], spans["trace_id"], spans["service"], spans["kind"], spans["peer_service"],
            spans["operation"], spans["duration_ns"], spans["status"], spans["status_code"], failed, strict=True,
        )
    ]  # fmt: skip


def _format_tree(spans: pd.DataFrame) -> str:
    lines = dict(zip(spans["span_id"], _list_cells(spans), strict=True))
    parents = dict(zip(spans["span_id"], spans["parent_span_id"], strict=True))
    starts = dict(zip(spans["span_id"], spans["time"].astype("int64"), strict=True))
    children: dict[str | None, list[str]] = {}
    for span, parent in parents.items():
        children.setdefault(parent if parent in lines and parent != span else None, []).append(span)
    first_ns = min(starts.values())
    shown: list[tuple[object, ...]] = []
    waiting = [(span, 0) for span in reversed(children.get(None, []))]
    while waiting:
        span, depth = waiting.pop()
        _, _, service, kind, operation, milliseconds, status = lines[span]
        shown.append(
            (
                f"{(starts[span] - first_ns) / 1e6:.1f}",
                milliseconds,
                f"{'  ' * depth}{service}",
                kind,
                operation,
                status,
            )
        )
        waiting += [(child, depth + 1) for child in reversed(children.get(span, []))]
    return format_folded_table(["AT MS", "MS", "SERVICE", "KIND", "OPERATION", "STATUS"], shown)


def _format_graph(spans: pd.DataFrame, minutes: float) -> str:
    frame = spans[["service", "peer_service", "kind", "duration_ns"]].assign(failed=_is_failed(spans))
    frame[["service", "peer_service"]] = frame[["service", "peer_service"]].astype(object)
    rows: list[tuple[object, ...]] = []
    for kind, keys in (("server", ["service"]), ("client", ["service", "peer_service"])):
        for key, group in frame[frame["kind"] == kind].groupby(keys):
            names = [str(name) for name in key]
            caller, callee = ("*", names[0]) if len(names) == 1 else names
            p95 = float(np.quantile(group["duration_ns"], 0.95)) / 1e6
            rows.append(
                (caller, callee, f"{len(group) / minutes:.1f}", f"{100 * group['failed'].mean():.1f} %", f"{p95:.1f}")
            )
    return format_folded_table(["CALLER", "CALLEE", "CALLS/MIN", "ERRORS", "P95 MS"], rows)
