"""Catalogue of metrics: role, unit and combination of each metric name.

The catalogue is data (`metric_roles.csv`). Imported datasets add rows in the `metric_roles` of their contexts. The
metric of a row may be a pattern with `*`.
"""

from __future__ import annotations

import csv
import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from faultset.core.errors import DataError, unknown_name
from faultset.core.printable import quoted

ROLES = (
    *"cpu throttling memory network disk traffic errors latency saturation restarts state".split(),
    *"threads descriptors limits clock scrape other".split(),
)
"""All roles; metrics that are not in the catalogue have `other`."""

KINDS = ("counter", "gauge", "histogram")
COMBINATIONS = ("sum", "mean", "min", "max")

# Clock, limit and scrape metrics say nothing about health. Nor do generations, which count changes.
_EXCLUDED_ROLES = frozenset({"clock", "limits", "scrape"})
_EXCLUDED_SUFFIX = "_generation"
_DERIVED = {"_mean": "latency", "_rate": "traffic", "_error_rate": "errors"}
_HISTOGRAM_SUFFIX = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, kw_only=True)
class MetricRole:
    """A row of the catalogue."""

    source: str
    """Exporter of the metric: cadvisor, kube-state, runtime, prometheus, or the name of an importer."""
    metric: str
    """Name without the suffixes of histograms, or a pattern with `*`."""
    role: str
    unit: str
    """UCUM code of the raw sample: s, By, 1."""
    kind: str
    combine: str
    """How the values of a service's pods, containers and label sets are combined; rates of counters are summed."""
    keep_label: str = ""
    """Label that gets separate columns `metric{label="value"}` in wide frames; may be empty."""
    meaning: str = ""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("role", self.role, ROLES),
            ("kind", self.kind, KINDS),
            ("combine", self.combine, COMBINATIONS),
        ):
            if value not in allowed:
                raise DataError(f'metric role of {self.metric}: {name} "{value}" must be one of {", ".join(allowed)}')


def role_row(fields: Mapping[str, str]) -> MetricRole:
    """Return a row of a catalogue from text fields; raise DataError for missing or unknown fields."""
    try:
        return MetricRole(**fields)
    except TypeError:
        raise DataError(
            f"a metric role has the fields {quoted(', '.join(fields))}, but needs "
            f"{', '.join(MetricRole.__dataclass_fields__)}; restore the episode's context.json"
        ) from None


class Catalogue:
    """Rows by metric name; exact names precede patterns, and earlier rows precede later ones."""

    def __init__(self, rows: Iterable[MetricRole]) -> None:
        self.rows = tuple(rows)
        self._exact: dict[str, MetricRole] = {}
        self._patterns: list[tuple[re.Pattern[str], MetricRole]] = []
        self._matched: dict[str, MetricRole | None] = {}
        self._roles: dict[str, str] = {}
        for row in self.rows:
            if "*" in row.metric:
                self._patterns.append((re.compile(fnmatch.translate(row.metric)), row))
            else:
                self._exact.setdefault(row.metric, row)

    def __reduce__(self) -> tuple[type[Catalogue], tuple[tuple[MetricRole, ...]]]:
        return Catalogue, (self.rows,)

    def find(self, metric: str) -> MetricRole | None:
        """Return the row of a stored metric, which may have a histogram's suffix, or None."""
        row = self._match(metric)
        if row is None and _HISTOGRAM_SUFFIX.search(metric):
            row = self._match(_HISTOGRAM_SUFFIX.sub("", metric))
            if row is not None and row.kind != "histogram":
                return None
        return row

    def role_of(self, metric: str) -> str:
        """Return the role of a stored metric or of a wide frame's column; `other` if unknown.

        >>> builtin_catalogue().role_of("container_memory_rss")
        'memory'
        >>> builtin_catalogue().role_of("http_server_request_duration_seconds_rate")
        'traffic'
        """
        if metric not in self._roles:
            self._roles[metric] = self._find_role(metric)
        return self._roles[metric]

    def _find_role(self, metric: str) -> str:
        name = metric.partition("{")[0]
        row = self.find(name)
        if row is not None:
            return row.role
        for suffix in ("_error_rate", "_mean", "_rate"):
            if name.endswith(suffix) and self._match(name.removesuffix(suffix)) is not None:
                return _DERIVED[suffix]
        return "other"

    def stored_roles(self, metric: str) -> frozenset[str]:
        """Return the roles of all wide columns that a stored metric contributes to.

        The sum of a histogram contributes to its mean, the count also to traffic and errors, buckets to nothing.
        """
        row = self.find(metric)
        if row is None and metric.endswith("_bucket"):
            return frozenset()
        if row is None:
            return frozenset({"other"})
        if row.kind != "histogram":
            return frozenset({row.role})
        if metric.endswith("_bucket"):
            return frozenset()
        return frozenset({"latency"} if metric.endswith("_sum") else {"latency", "traffic", "errors"})

    def extended(self, rows: Iterable[Mapping[str, str]]) -> Catalogue:
        """Return a catalogue with `rows` before the rows of this one."""
        added = [role_row(row) for row in rows]
        return Catalogue([*added, *self.rows]) if added else self

    def _match(self, name: str) -> MetricRole | None:
        if name not in self._matched:
            row = self._exact.get(name)
            if row is None:
                row = next((row for pattern, row in self._patterns if pattern.match(name)), None)
            self._matched[name] = row
        return self._matched[name]


@functools.cache
def builtin_catalogue() -> Catalogue:
    with files("faultset.datasets.metrics").joinpath("metric_roles.csv").open(encoding="utf-8") as file:
        return Catalogue([MetricRole(**row) for row in csv.DictReader(file)])


def catalogue_with(rows: Iterable[Mapping[str, str]]) -> Catalogue:
    """Return the built-in catalogue with `rows` before its rows; the same rows return the same object."""
    return _catalogue_with(tuple(tuple(row.items()) for row in rows))


@functools.lru_cache(maxsize=64)
def _catalogue_with(rows: tuple[tuple[tuple[str, str], ...], ...]) -> Catalogue:
    return builtin_catalogue().extended(dict(row) for row in rows)


def role_of(metric: str) -> str:
    """Return the role of a metric in the built-in catalogue; `other` if unknown."""
    return builtin_catalogue().role_of(metric)


def is_health_metric(metric: str, role: str) -> bool:
    """Return whether a metric of a role may indicate health; clocks, limits, scrapes and generations do not."""
    return role not in _EXCLUDED_ROLES and not metric.endswith(_EXCLUDED_SUFFIX)


def parse_roles(roles: Iterable[str]) -> frozenset[str]:
    """Return the roles as a set; raise UsageError for an unknown role."""
    chosen = frozenset([roles] if isinstance(roles, str) else roles)
    for role in sorted(chosen):
        if role not in ROLES:
            raise unknown_name("role", role, ROLES)
    return chosen
