"""Responses of Prometheus' HTTP API about an episode, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from faultset.datasets.serve.promql.evaluation import answer_instant, answer_range, read_matchers
from faultset.datasets.serve.promql.series import NEVER_MS, Labels, QueryError
from faultset.datasets.serve.request_times import Parameters, duration_s, parse_integer, parse_time_ns, single
from faultset.datasets.serve.telemetry import NS_PER_MS, ServedTelemetry

_VERSION = "3.0.0"
_Item = TypeVar("_Item")


class PrometheusApi:
    """Answers requests below `/api/v1/`."""

    def __init__(self, telemetry: ServedTelemetry) -> None:
        self._telemetry = telemetry
        self._resources: Mapping[str, Callable[[Parameters], Any]] = {
            "query": self._query,
            "query_range": self._query_range,
            "series": self._series,
            "labels": self._labels,
            "metadata": self._metadata,
            "targets": self._targets,
            "status/config": self._config,
            "status/buildinfo": lambda parameters: {"version": _VERSION, "revision": "faultset"},
            "rules": lambda parameters: {"groups": []},
            "alerts": lambda parameters: {"alerts": []},
            "query_exemplars": lambda parameters: [],
        }

    def answer(self, resource: str, parameters: Parameters) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the document for a path below `/api/v1/`, such as `query_range`."""
        words = resource.split("/")
        try:
            if len(words) == 3 and words[0] == "label" and words[2] == "values":
                return 200, {"status": "success", "data": self._label_values(words[1], parameters)}
            if resource not in self._resources:
                message = f'"{resource}" is not served; use {", ".join(self._resources)} or label/NAME/values'
                return 404, {"status": "error", "errorType": "not_found", "error": message}
            return 200, {"status": "success", "data": self._resources[resource](parameters)}
        except QueryError as error:
            status = 422 if error.kind == "execution" else 400
            return status, {"status": "error", "errorType": error.kind, "error": str(error)}

    def _query(self, parameters: Parameters) -> Any:
        at_ms = self._time_ms(parameters, "time", self._telemetry.clock.now_ns)
        return answer_instant(single(parameters, "query"), self._telemetry.series, at_ms, self._now_ms)

    def _query_range(self, parameters: Parameters) -> Any:
        start_ms, end_ms = self._time_ms(parameters, "start", None), self._time_ms(parameters, "end", None)
        step_ms = round(1e3 * duration_s(single(parameters, "step"), "step"))
        query = single(parameters, "query")
        return answer_range(query, self._telemetry.series, start_ms, end_ms, step_ms, self._now_ms)

    @property
    def _now_ms(self) -> int:
        return self._telemetry.clock.now_ns // NS_PER_MS

    def _time_ms(self, parameters: Parameters, name: str, default_ns: int | None) -> int:
        return parse_time_ns(parameters, name, default_ns) // NS_PER_MS

    def _series(self, parameters: Parameters) -> Any:
        if not parameters.get("match[]"):
            raise QueryError('"match[]" is missing; give a series selector')
        return [dict(labels) for labels in _apply_limit(self._list_matching(parameters), parameters)]

    def _labels(self, parameters: Parameters) -> Any:
        return _apply_limit(
            sorted({name for labels in self._list_matching(parameters) for name, _ in labels}), parameters
        )

    def _label_values(self, name: str, parameters: Parameters) -> Any:
        values = {value for labels in self._list_matching(parameters) for key, value in labels if key == name}
        return _apply_limit(sorted(values), parameters)

    def _list_matching(self, parameters: Parameters) -> Sequence[Labels]:
        """Return the labels of the series with samples in the requested window that match any selector."""
        start_ms = self._time_ms(parameters, "start", 0)
        end_ms = self._time_ms(parameters, "end", NEVER_MS)
        selectors = parameters.get("match[]") or ['{__name__!=""}']
        matching = {
            series.labels
            for selector in selectors
            for series in self._telemetry.series.select(read_matchers(selector), self._now_ms)
            if series.has_samples(start_ms, end_ms)
        }
        return sorted(matching)

    def _metadata(self, parameters: Parameters) -> Any:
        metric = (parameters.get("metric") or [""])[0]
        types = self._telemetry.metric_types
        chosen = [name for name in types if metric in ("", name)]
        return {name: [{"type": types[name], "help": "", "unit": ""}] for name in _apply_limit(chosen, parameters)}

    def _targets(self, parameters: Parameters) -> Any:
        targets = {}
        for series in self._telemetry.series.select([], self._now_ms):
            labels = {name: value for name, value in series.labels if name in _TARGET_LABELS}
            if "instance" in labels:
                targets[labels["instance"]] = labels
        interval_s = self._telemetry.interval_s
        extra = {} if interval_s is None else {"scrapeInterval": f"{round(1e3 * interval_s)}ms"}
        active = [
            {"labels": labels, "discoveredLabels": {}, "scrapePool": labels.get("job", ""), "health": "up", **extra}
            for _, labels in sorted(targets.items())
        ]
        return {"activeTargets": active, "droppedTargets": []}

    def _config(self, parameters: Parameters) -> Any:
        interval_s = self._telemetry.interval_s or 60.0
        return {"yaml": f"global:\n  scrape_interval: {round(1e3 * interval_s)}ms\n"}


def _apply_limit(names: Sequence[_Item], parameters: Parameters) -> Sequence[_Item]:
    """Return at most as many names as the parameter `limit` allows; 0 means no limit."""
    limit = parse_integer(parameters, "limit", 0)
    if limit < 0:
        raise QueryError(f'"limit" must be at least 0, got {limit}')
    return names[: limit or None]


_TARGET_LABELS = frozenset({"job", "instance", "namespace", "service", "pod", "container"})
