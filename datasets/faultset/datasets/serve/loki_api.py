"""Responses of Loki's HTTP API about an episode, without I/O, and its query language LogQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.datasets.serve.promql.evaluation import answer_instant, answer_range, read_matchers
from faultset.datasets.serve.promql.series import NAME, LabelMatcher, QueryError, SeriesSet, build_series
from faultset.datasets.serve.request_times import Parameters, duration_s, parse_integer, parse_time_ns, single
from faultset.datasets.serve.telemetry import NS_PER_MS, ServedTelemetry

_STRING = r'(?:"(?:[^"\\]|\\.)*"|`[^`]*`)'
_SELECTOR = r"\{(?:[^{}\"`]|" + _STRING + r")*\}"
_FILTER = r"\s*(?:\|=|!=|\|~|!~)\s*" + _STRING + r"(?:\s+or\s+" + _STRING + r")*"
_LABELS = r"\s*\|\s*[A-Za-z_]\w*\s*(?:=~|!~|!=|=)\s*" + _STRING
_DROP = r"\s*\|\s*drop\s+__error(?:_details)?__(?:\s*,\s*__error(?:_details)?__)*"
"""Stage that Grafana adds to its queries for the log volume; it has no effect, because no line has these labels."""
_STAGES = rf"(?:{_FILTER}|{_LABELS}|{_DROP})*"
_PIPELINE = re.compile(rf"\s*(?P<selector>{_SELECTOR})(?P<stages>{_STAGES})\s*")
_EACH_STAGE = re.compile(
    rf"\s*(?P<sign>\|=|!=|\|~|!~)\s*(?P<texts>{_STRING}(?:\s+or\s+{_STRING})*)"
    rf"|\s*\|\s*(?P<condition>[A-Za-z_]\w*\s*(?:=~|!~|!=|=)\s*{_STRING})"
)
_EACH_STRING = re.compile(_STRING)
_COUNT = re.compile(
    r"\b(?P<function>count_over_time|rate|bytes_over_time|bytes_rate)\s*\(\s*"
    rf"(?P<pipeline>{_SELECTOR}{_STAGES})\s*\[(?P<range>\w+)\]\s*(?P<offset>offset\s+-?\w+\s*)?\)"
)
_SUPPORTED = (
    "use stream selectors with the line filters |= != |~ !~ and conditions on labels, or count_over_time, rate, "
    "bytes_over_time and bytes_rate of them"
)


@dataclass(frozen=True)
class LineFilter:
    """A condition on log lines: a line must contain one of the patterns, or none if `is_negated`."""

    patterns: tuple[re.Pattern[str], ...]
    is_negated: bool

    def accepts(self, line: str) -> bool:
        """Return whether a line passes."""
        return any(pattern.search(line) for pattern in self.patterns) != self.is_negated


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A stream selector with its conditions on labels, and its line filters."""

    matchers: Sequence[LabelMatcher]
    filters: Sequence[LineFilter]

    def accepts(self, line: str) -> bool:
        """Return whether a line passes all filters."""
        return all(item.accepts(line) for item in self.filters)


def parse_pipeline(query: str) -> Pipeline:
    """Parse a query for log lines; raise QueryError if it is invalid or not supported."""
    match = _PIPELINE.fullmatch(query)
    if match is None:
        raise QueryError(f'the LogQL query "{query[:200]}" is invalid or not supported; {_SUPPORTED}')
    stages = [*_EACH_STAGE.finditer(match["stages"])]
    conditions = [stage["condition"] for stage in stages if stage["condition"]]
    selector = ",".join([match["selector"].strip("{} ").rstrip(","), *conditions])
    return Pipeline(
        matchers=read_matchers(f"{{{selector}}}"),
        filters=[_read_filter(stage["sign"], stage["texts"]) for stage in stages if stage["sign"]],
    )


def is_pipeline(query: str) -> bool:
    """Return whether a query selects log lines rather than computing numbers."""
    return query.lstrip().startswith("{")


def extract_counts(query: str, register: Callable[[Pipeline, bool], str]) -> str:
    """Return the PromQL of a LogQL query that counts lines.

    `register` gets each pipeline and whether to count bytes; it returns the name of a metric with the number of lines
    or bytes per point in time.
    """

    def replace(match: re.Match[str]) -> str:
        function = match["function"]
        metric = register(parse_pipeline(match["pipeline"]), function.startswith("bytes"))
        total = f"sum_over_time({metric}[{match['range']}] {match['offset'] or ''})"
        if function in ("rate", "bytes_rate"):
            return f"({total} / {duration_s(match['range'], 'range')!r})"
        return total

    promql = _COUNT.sub(replace, query)
    if "{" in promql or "|" in promql:
        raise QueryError(f'the LogQL query "{query[:200]}" is invalid or not supported; {_SUPPORTED}')
    return promql


def _read_filter(sign: str, texts: str) -> LineFilter:
    strings = [_read_string(text) for text in _EACH_STRING.findall(texts)]
    is_regular = sign.endswith("~")
    try:
        patterns = tuple(re.compile(text if is_regular else re.escape(text)) for text in strings)
    except re.error as error:
        raise QueryError(f'the regular expression in the line filter "{texts[:100]}" is invalid ({error})') from None
    return LineFilter(patterns, is_negated=sign.startswith("!"))


def _read_string(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]
    try:
        return str(ast.literal_eval(text.replace("\n", "\\n")))
    except (ValueError, SyntaxError):
        raise QueryError(f"the string {text[:100]} is invalid; write backslashes twice or use backticks") from None


_DEFAULT_LIMIT, _MAX_LINES = 100, 5_000
"""Default and maximum number of lines, as in Loki."""
_HOUR_NS = 3_600_000_000_000
_STREAM = ("service", "pod", "container", "level")
Rows = npt.NDArray[np.int64]


class LokiApi:
    """Answers requests below `/loki/api/v1/`.

    The labels of a stream are namespace, app and service_name (both the service), pod, container and level; the ids of
    the trace and the span are structured metadata.
    """

    def __init__(self, telemetry: ServedTelemetry) -> None:
        self._telemetry = telemetry
        self._resources: Mapping[str, Callable[[Parameters], Any]] = {
            "query": self._query,
            "query_range": self._query_range,
            "labels": self._labels,
            "label": self._labels,
            "series": self._select_streams,
            "index/stats": self._stats,
            "status/buildinfo": lambda parameters: {"version": "3.0.0", "revision": "faultset"},
        }

    def answer(self, resource: str, parameters: Parameters) -> tuple[int, Any]:
        """Return the HTTP status and the document for a path such as `query_range`; errors are plain text, as in
        Loki.
        """
        words = resource.split("/")
        try:
            if len(words) == 3 and words[0] == "label" and words[2] == "values":
                return 200, {"status": "success", "data": self._label_values(words[1], parameters)}
            if resource not in self._resources:
                return 404, f'"{resource}" is not served; use {", ".join(self._resources)} or label/NAME/values'
            data = self._resources[resource](parameters)
        except QueryError as error:
            return 400, str(error)
        is_bare = resource in ("index/stats", "status/buildinfo")
        return 200, data if is_bare else {"status": "success", "data": data}

    @cached_property
    def _streams(self) -> tuple[list[dict[str, str]], Rows]:
        """Labels of each stream, and the stream of each line."""
        names = list(_STREAM)
        frame = self._telemetry.logs
        stream_of = np.asarray(frame.groupby(names, observed=True, dropna=False).ngroup(), dtype=np.int64)
        first = np.unique(stream_of, return_index=True)[1]
        labels = []
        for row in frame.iloc[first][names].to_dict("records"):
            words = {str(name): value for name, value in row.items() if isinstance(value, str)}
            service = words.pop("service", None)
            copies = {"app": service, "service_name": service} if service else {}
            labels.append({"namespace": self._telemetry.namespace, **copies, **words})
        return labels, stream_of

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return {name: self._telemetry.logs[name].tolist() for name in ("message", "trace_id", "span_id")}

    @cached_property
    def _times_ns(self) -> Rows:
        return self._telemetry.logs["time"].to_numpy()

    def _query(self, parameters: Parameters) -> Any:
        now_ns = parse_time_ns(parameters, "time", self._telemetry.clock.now_ns)
        query = single(parameters, "query")
        if is_pipeline(query):
            return self._lines(query, parameters, now_ns - _HOUR_NS, now_ns)
        return answer_instant(*self._count_lines(query), now_ns // NS_PER_MS, self._now_ms)

    def _query_range(self, parameters: Parameters) -> Any:
        end_ns = parse_time_ns(parameters, "end", self._telemetry.clock.now_ns)
        period = (parameters.get("since") or ["1h"])[0]
        start_ns = parse_time_ns(parameters, "start", end_ns - round(1e9 * duration_s(period, "since")))
        query = single(parameters, "query")
        if is_pipeline(query):
            return self._lines(query, parameters, start_ns, end_ns)
        step = (parameters.get("step") or [str(max(1, (end_ns - start_ns) // (250 * 1_000_000_000)))])[0]
        step_ms = round(1e3 * duration_s(step, "step"))
        promql, series = self._count_lines(query)
        return answer_range(promql, series, start_ns // NS_PER_MS, end_ns // NS_PER_MS, step_ms, self._now_ms)

    @property
    def _now_ms(self) -> int:
        return self._telemetry.clock.now_ns // NS_PER_MS

    def _count_lines(self, query: str) -> tuple[str, SeriesSet]:
        """Return the PromQL of a query that counts lines, and the series with the counts."""
        series = []

        def register(pipeline: Pipeline, counts_bytes: bool) -> str:
            metric = f"faultset_lines_{len(series)}"
            labels, stream_of = self._streams
            rows = np.array(list(self._filter_rows(pipeline, np.arange(len(stream_of)))), dtype=np.int64)
            for stream in np.unique(stream_of[rows]):
                inside = rows[stream_of[rows] == stream]
                times_ms, index = np.unique(self._times_ns[inside] // NS_PER_MS, return_inverse=True)
                messages = self._columns["message"]
                sizes = [len(messages[row].encode()) if counts_bytes else 1 for row in inside]
                counts = np.bincount(index, weights=np.array(sizes, dtype=float)).astype(float)
                series.append(build_series({**labels[stream], NAME: metric}, times_ms, counts))
            return metric

        return extract_counts(query, register), SeriesSet(series)

    def _lines(self, query: str, parameters: Parameters, start_ns: int, end_ns: int) -> dict[str, Any]:
        pipeline = parse_pipeline(query)
        limit = parse_integer(parameters, "limit", _DEFAULT_LIMIT)
        if not 0 < limit <= _MAX_LINES:
            raise QueryError(f'"limit" must be from 1 to {_MAX_LINES}, got {limit}')
        direction = (parameters.get("direction") or ["backward"])[0].lower()
        if direction not in ("forward", "backward"):
            raise QueryError(f'"direction" must be forward or backward, got "{direction}"')
        end_ns = min(end_ns, self._telemetry.clock.now_ns)
        first, stop = np.searchsorted(self._times_ns, [start_ns, end_ns])
        rows = np.arange(first, stop)
        streams: dict[tuple[tuple[str, str], ...], list[list[str]]] = {}
        labels, stream_of = self._streams
        matches = self._filter_rows(pipeline, rows if direction == "forward" else rows[::-1])
        for _, row in zip(range(limit), matches, strict=False):
            ids = {name: self._columns[name][row] for name in ("trace_id", "span_id")}
            metadata = {name: value for name, value in ids.items() if isinstance(value, str) and value}
            key = tuple(sorted((labels[stream_of[row]] | metadata).items()))
            streams.setdefault(key, []).append([str(self._times_ns[row]), self._columns["message"][row]])
        result = [{"stream": dict(key), "values": values} for key, values in streams.items()]
        return {"resultType": "streams", "result": result, "stats": {}}

    def _filter_rows(self, pipeline: Pipeline, rows: Rows) -> Iterator[int]:
        labels, stream_of = self._streams
        matching = np.array([_satisfies(item, pipeline.matchers) for item in labels] or [False])
        messages = self._columns["message"]
        return (int(row) for row in rows if matching[stream_of[row]] and pipeline.accepts(messages[row]))

    def _select_streams(self, parameters: Parameters) -> list[dict[str, str]]:
        """Return the labels of the streams with lines in the requested window that match any selector."""
        labels, stream_of = self._streams
        start_ns = parse_time_ns(parameters, "start", 0)
        end_ns = min(parse_time_ns(parameters, "end", 1 << 62), self._telemetry.clock.now_ns)
        first, stop = np.searchsorted(self._times_ns, [start_ns, end_ns])
        present = [labels[stream] for stream in np.unique(stream_of[first:stop])]
        selectors = [text for name in ("match[]", "match", "query") for text in parameters.get(name, ()) if text]
        if not selectors:
            return present
        alternatives = [read_matchers(selector) for selector in selectors]
        return [item for item in present if any(_satisfies(item, matchers) for matchers in alternatives)]

    def _labels(self, parameters: Parameters) -> list[str]:
        return sorted({name for labels in self._select_streams(parameters) for name in labels})

    def _label_values(self, name: str, parameters: Parameters) -> list[str]:
        return sorted({labels[name] for labels in self._select_streams(parameters) if name in labels})

    def _stats(self, parameters: Parameters) -> dict[str, int]:
        return {"streams": len(self._select_streams(parameters)), "chunks": 0, "bytes": 0, "entries": 0}


def _satisfies(labels: Mapping[str, str], matchers: Sequence[LabelMatcher]) -> bool:
    return all(matcher.matches(labels.get(matcher.name, "")) for matcher in matchers)
